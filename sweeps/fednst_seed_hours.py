"""FedNST, table 3: less labelled speech on the server, hence a worse seed model and worse labels; the same clients.

    python sweeps/fednst_seed_hours.py
    python sweeps/fednst_seed_hours.py rounds=100 algorithm.server_scheduled=true   # until dev levels off

Tokens and language model are the same in all trials, as in the paper: they learn from the transcripts of all labelled
speakers, which the sweep writes first, into runs/fednst_seed_hours.txt.
A labelled speaker has 25 utterances: 10, 20, 30 and 40 speakers are a quarter to all of the embedded corpus' labelled
speech, as the paper's 120 to 480 hours are of LibriSpeech's half. Three training seeds on one corpus: the text of one
corpus contains sentences that must stay unseen in the test of another.
"""

import sys

from fedray.report.figures import Curves, Trend
from fedray.sweep import Sweep, main, tune

SWEEP = Sweep(
    name="fednst_seed_hours",
    question="How much labelled speech does the server need?",
    base="configs/fednst/embedded.yaml",
    space={"data.options.server_speakers": tune.grid_search([10, 20, 30, 40]), "seed": tune.grid_search([0, 1, 2])},
    settings=["data.text={text}"],
    text="configs/fednst/embedded.yaml",
    figures=[Trend("data.options.server_speakers", "test/wer_lm"), Curves(("dev/wer",))],
    small=["rounds=2", "algorithm.pretrain.steps=200"],
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
