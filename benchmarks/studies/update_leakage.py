"""What the updates of clients give away of them, and what defences leave: attributes of speakers, labels, identity.

    python -m benchmarks.studies.update_leakage [--arms 'keywords, CRNN'] [--seeds 0 1 2] [--rounds 30] [--actors N]

At the end of each run an attacker sees what clients send, and knows auxiliary clients, half of all, who take no part
(docs/privacy.md). Keywords: embedded speech, 400 speakers, ten words in shares of Dirichlet's 0.3, which CRNN-Base
classifies from random weights and a Conformer recognises from a seed model. speechocean: real sentences by 207
speakers, of whom three in ten train the seed model, a Conformer: too few for a useful WER, so two defences run.
arabic-commands: real keywords by 24 speakers with 400 clips each, of whom only identity is known, a third of the
rounds; also with adapters on Whisper tiny's encoder, a sixth; 12 clients are too few for epsilon 8. Real speech needs
FEDRAY_SPEECH. Sums, as under secure aggregation, are at most half of the clients of a side. The same command resumes
the study: it keeps finished runs, and takes runs whose folders are gone from the earlier page.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import study
from benchmarks.pictures import Dot, dots

CONFIG = "configs/privacy/updates.yaml"
PRIVATE = ("strategy.kind=uniform", "algorithm.buffers=frozen")
COMPRESSED = "top 5 % in 8 bits"
EPSILON_8 = "epsilon: 8, delta: 1e-5, clip: {norm: 1.0}"
DEFENCES: dict[str, tuple[str, ...]] = {
    "none": (),
    "dropout 0.2": ("model.dropout=0.2",),
    COMPRESSED: ("upload={kind: topk, share: 0.05, values: int8}",),
    "epsilon 8, local": (*PRIVATE, f"privacy={{kind: local, {EPSILON_8}}}"),
    "epsilon 8, Skellam": (*PRIVATE, f"privacy={{kind: skellam, bits: 24, {EPSILON_8}}}"),
}
FREE = tuple(defence for defence in DEFENCES if not defence.startswith("epsilon"))  # of noise


@dataclass(frozen=True)
class Setup:
    """A corpus and a model. `sums`: the numbers of clients in a sum; `speech`: the folder below FEDRAY_SPEECH.

    `fewer`: the number by which rounds are divided.
    """

    overrides: tuple[str, ...]
    sums: tuple[int, ...]
    speech: str = ""
    fewer: int = 1
    defences: tuple[str, ...] = tuple(DEFENCES)

    def located(self) -> list[str]:
        """The overrides, with the folders of real speech and of Whisper."""
        if not self.speech:
            return list(self.overrides)
        found, root = "\n".join(self.overrides), study.speech(self.speech)
        if "WHISPER" in found:
            found = found.replace("WHISPER", str(study.speech("whisper-tiny.en")))
        return [*found.replace("ROOT", str(root)).split("\n"), f"data.root={root}"]


PLAIN = "model.dropout=0"
CONFORMER = (
    "task={kind: recognition, tokens: characters, decode: {search: greedy}}",
    "model={kind: conformer, dropout: 0}",
    "algorithm.client={lr: 0.3, batch: 5, epochs: 4, clip: 5}",
    "algorithm.pretrain={steps: 1000, lr: 3e-3, warmup: 100, batch: 8}",
)
EMBEDDED = ("data.options.client_speakers=400", "audit.clients=200")
TABLE = "path_column: path, speaker_column: speaker, seconds_column: seconds"
ARABIC = (
    "data.corpus=tsv",
    f"data.options={{train: [manifest.tsv], label_column: keyword, {TABLE}}}",
    "data.own_share=0.1",
    "evaluation.best=own/accuracy",
    "audit={kind: updates, clients: 12, attributes: [], auxiliary: 0.5}",
)
ADAPTERS = (
    "algorithm={kind: fedlora, lora: {rank: 16, alpha: 32}, client: {lr: 0.001, batch: 8}, pretrain: {steps: 0}}",
    "model={kind: encoder, folder: WHISPER, seconds: 1.0}",
    "features={kind: whisper}",
)
SPEECHOCEAN = (
    "data.corpus=tsv",
    f"data.options={{train: [manifest.tsv], text_column: transcript, lower_case: true, {TABLE}}}",
    "data.server.share=0.3",
    "data.dev_share=0.03",
    "data.test_share=0.1",
    "audit={kind: updates, clients: 60, attributes: [age_group, gender], file: ROOT/manifest.tsv, auxiliary: 0.5}",
)
SETUPS = {
    "keywords, CRNN": Setup((*EMBEDDED, PLAIN), (5, 20, 100)),
    "keywords, Conformer": Setup((*EMBEDDED, "data.options.server_speakers=40", *CONFORMER), (5, 20, 100)),
    "speechocean, Conformer": Setup((*SPEECHOCEAN, *CONFORMER), (5, 20), "speechocean", 1, ("none", COMPRESSED)),
    "arabic-commands, CRNN": Setup((*ARABIC, PLAIN), (5,), "arabic-commands-full", 3, FREE),
    "arabic-commands, adapters on Whisper": Setup(
        (*ARABIC, *ADAPTERS), (5,), "arabic-commands-full", 6, ("none", COMPRESSED)
    ),
}


def arms() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Arm -> (setup, overrides)."""
    found = {}
    for name, setup in SETUPS.items():
        sums = f"audit.sums={[1, *setup.sums]}".replace(" ", "")
        found |= {
            f"{name}: {defence}": (name, (*DEFENCES[defence], *([sums] if defence == "none" else [])))
            for defence in setup.defences
        }
    return found


ARMS = arms()
SCORES = ("own/accuracy", "test/wer", "test/accuracy")  # the first that a run has
Runs = dict[str, list[dict[str, Any]]]  # attribute -> a finding of each run


def overrides(arm: str, seed: int, chosen: argparse.Namespace) -> list[str]:
    """The overrides of a run."""
    setup, defence = ARMS[arm]
    rounds = chosen.rounds // SETUPS[setup].fewer
    of_run = [f"seed={seed}", f"data.seed={seed}", f"rounds={rounds}", f"engine.actors={chosen.actors}"]
    return [*SETUPS[setup].located(), *defence, *of_run]


def play(arm: str, seed: int, place: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """The best round's score, and the findings of the audit: updates in a sum -> attribute -> finding."""
    results = study.run(CONFIG, overrides(arm, seed, chosen), place)
    metric = next(metric for metric in SCORES if metric in results["best"])
    sums = results["audit"]["sums"]
    found = {count: {**one["attributes"], "same client": one["same_client"]} for count, one in sums.items()}
    return {
        "seed": seed,
        "score": {metric: results["best"][metric]},
        "findings": {count: {name: one for name, one in of.items() if one is not None} for count, of in found.items()},
    }


def defences(found: study.Found, setup: str) -> dict[str, Runs]:
    """Defence -> attribute -> the findings of its runs; sums of updates count as a defence."""
    table: dict[str, Runs] = {}
    for arm, runs in found.items():
        if ARMS[arm][0] != setup:
            continue
        for count, first in runs[0]["findings"].items():
            defence = arm.removeprefix(f"{setup}: ") if count == "1" else f"sums of {count}"
            table[defence] = {name: [run["findings"][count][name] for run in runs] for name in first}
    return table


def auroc(found: Sequence[dict[str, float]]) -> Dot:
    """The mean over seeds, and the lowest and the highest end of the seeds' intervals."""
    low, high = min(one["auroc_low"] for one in found), max(one["auroc_high"] for one in found)
    return mean(one["auroc"] for one in found), low, high


def table(found: study.Found, setup: str) -> str:
    """One row per defence and attribute of a setup; empty without runs."""
    rows = []
    for defence, by_name in defences(found, setup).items():
        for name, ones in by_name.items():
            rows.append({
                "defence": defence,
                "attribute": name,
                "AUROC": "{:.2f} [{:.2f}, {:.2f}]".format(*auroc(ones)),
                "right (%)": study.spread([100 * one.get("accuracy", one.get("first")) for one in ones]),
                "chance (%)": f"{mean(100 * one['chance'] for one in ones):.1f}",
                "balanced (%)": study.spread([100 * one["balanced_accuracy"] for one in ones])
                if "balanced_accuracy" in ones[0] else "",
            })  # fmt: skip
    return study.table(rows) if rows else ""


def costs(found: study.Found, setup: str) -> str:
    """The score of each defence of a setup; empty without runs."""
    rows = []
    for arm, runs in found.items():
        if ARMS[arm][0] == setup:
            (metric,) = runs[0]["score"]
            scores = study.spread([run["score"][metric] for run in runs])
            seeds = ", ".join(str(run["seed"]) for run in runs)
            rows.append({"defence": arm.removeprefix(f"{setup}: "), f"{metric} (%)": scores, "seeds": seeds})
    return study.table(rows) if rows else ""


def draw(found: study.Found, path: Path) -> None:
    """AUROC of each attribute, by setup and defence."""
    panels = {
        setup: {
            defence: {name: auroc(ones) for name, ones in by_name.items()}
            for defence, by_name in defences(found, setup).items()
        }
        for setup in dict.fromkeys(ARMS[arm][0] for arm in found)
    }
    dots(panels, "AUROC (0.5: guessing)", path, line=0.5)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-update-leakage", rounds=30)
    chosen = study.chosen(parser, ARMS)
    before = study.page_before("update_leakage", rounds=chosen.rounds).get("found", {})
    place = study.place(chosen.runs)
    found = study.gathered(before, ARMS, chosen, place, lambda arm, seed, to: play(arm, seed, to, chosen))
    parts = [
        f"## {name}\n\nAfter {chosen.rounds // setup.fewer} rounds:\n\n{rows}\n\n"
        f"What defences cost:\n\n{costs(found, name)}"
        for name, setup in SETUPS.items()
        if (rows := table(found, name))
    ]
    text = "\n\n".join(
        [
            """# What updates give away

FedAvg, and with adapters FedLoRA. An attacker who knows half of the clients, which take no part, guesses attributes of
others from what they send. *AUROC*: of each value against the others, and for "same client" of two updates of one
client (other models, other halves of its speech) against those of two; mean over seeds, and in brackets the lowest and
the highest end of the seeds' 95 % intervals over clients. 0.5 is guessing. *Right*: the attacker's guesses, and for
"same client" how often the most similar of all updates is the client's own; *chance*: what guessing the auxiliary
clients' most frequent value gets. *Balanced*: the mean over values, of guesses that ignore how frequent they are.

![AUROC by defence](update_leakage.png)""",
            *parts,
        ]
    )
    print(text)
    draw(found, study.RESULTS / "update_leakage.png")
    command = study.command(parser, chosen, arms=study.on_page(ARMS, found))
    study.write("update_leakage", text, {"rounds": chosen.rounds, "found": found}, command, study.seeds(found))


if __name__ == "__main__":
    main()
