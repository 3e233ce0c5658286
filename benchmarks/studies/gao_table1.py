"""Gao et al., table 1: silos, pairs and single speakers, each weighting, from scratch, and central training.

    python -m benchmarks.studies.gao_table1 [--seeds 0 1 2 3 4] [--arms silos 'two speakers'] [--rounds 80]
    python -m benchmarks.studies.gao_table1 --corpus digits   # or embedded_it, embedded_attention: with a decoder
    python -m benchmarks.studies.gao_table1 --corpus arabic_commands   # or speechocean, of a part of its speakers
    python -m benchmarks.studies.gao_table1 --corpus speechocean_all --arms examples loss
    python -m benchmarks.studies.gao_table1 --corpus common_voice_fr --set data.root=/corpora/cv task.decode.beam=80

One corpus, several seeds of training; as in the paper, five local epochs in all regimes. The embedded twin has 20
rounds of 20 clients, or of ten silos, and 300 speakers in test. Central training sees as much speech as 20 clients a
round do, or as much as ten silos do, which is more. All arms but those from scratch start from the same warmed-up
model. Scores are those of the best round by dev; intervals come from paired bootstrap over speakers. Digits are real
speech on which none of these settings was chosen. A seed is a split of the six people; three of them are clients, and a
"speaker" is one of 60 shares of their takes. Test has the same three people, and intervals are over its recordings,
which strings share. Arabic commands are single words by 24 people; a seed draws the six in test and the six who are
clients, too few for silos. Each client is in every round, as with speechocean; of speechocean_all, a round has 20 of
about 80 speakers, and training 40 rounds. All four sets need FEDRAY_SPEECH.
`--set` overrides the configurations of all arms; other `--rounds` have a page of their own. The same command resumes
the study: it keeps finished runs, and takes runs whose folders are gone from the earlier page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from benchmarks import study
from benchmarks.studies.fednst_digits import SERVERS, by_recording, drawn, strings
from fedray import experiment
from fedray.report.bootstrap import change, rate


class Arm(NamedTuple):
    """A row of the table."""

    config: str  # a name that `Corpus.config` takes
    overrides: list[str]
    as_silos: bool = False  # central training on as much speech as ten silos hear


@dataclass(frozen=True)
class Corpus:
    """The folders of a corpus' configurations, and the overrides that all arms add."""

    one: str  # the configuration with one speaker per client
    regimes: str  # the folder of the other federations
    central: str  # the folder of central training
    overrides: tuple[str, ...] = ()
    of_adamw: tuple[str, ...] = ()  # for central AdamW alone
    rounds: int | None = None  # those of the federations; None: as configured
    silos: int = 1  # factor from the speech that central training hears as configured to that of ten silos
    errors: str = "errors"  # the column of predictions.tsv
    digits: bool = False
    speech: str = ""  # the folder below FEDRAY_SPEECH; "": digits know theirs, and others need none
    without: tuple[str, ...] = ()  # configurations that need more speakers than the corpus has

    def config(self, name: str) -> str:
        if name == "one":
            return f"configs/gao/{self.one}.yaml"
        folder = self.central if name.startswith(("central", "warm_up")) else self.regimes
        return f"configs/gao/{folder}/{name}.yaml"

    def of_seed(self, seed: int) -> list[str]:
        """Overrides of all arms of a seed."""
        drawn_by_seed = [f"data.root={study.speech(self.speech)}", f"data.seed={seed}"] if self.speech else []
        return [*self.overrides, f"seed={seed}", *(drawn(seed) if self.digits else drawn_by_seed)]

    def arms(self) -> dict[str, Arm]:
        """The arms that the corpus has speech enough for."""
        found = {name: arm for name, arm in arms().items() if arm.config not in self.without}
        return {name: arm for name, arm in found.items() if self.silos > 1 or not arm.as_silos}

    def length(self, arm: Arm) -> int:
        """The rounds of an arm. Central training is configured to last as long as the federation."""
        usual, own = (experiment.load(study.ROOT / self.config(one))[0].rounds for one in ("one", arm.config))
        return max(1, round(own * (self.rounds or usual) / usual)) * (self.silos if arm.as_silos else 1)


TWIN = Corpus(
    "embedded", "ablations", "baselines",
    ("data.options.test_speakers=300", "data.options.test_utterances=4", "data.seed=0"), rounds=20, silos=10,
)  # fmt: skip
# The paper's recogniser, as in ablations/attention.yaml: a decoder; test is decoded by beam search.
ATTENTION = (
    "task.ctc_weight=0.5", "task.label_smoothing=0.1", "model.decoder_layers=1", "model.decoder_neurons=128",
    "task.decode={search: attention, beam: 4, ctc_weight: 0, lm_weight: 0}",
)  # fmt: skip
# Words of one second; half of the training speakers warm the model up, six are clients, six are in test.
COMMANDS = (
    "data.corpus=tsv", "data.test_share=0.33", "task.tokens=characters", "cohort={size: null, fraction: 1.0}",
    "data.options={train: [manifest.tsv], path_column: path, speaker_column: speaker, text_column: keyword, "
    "seconds_column: seconds, split_column: official_split}",
)  # fmt: skip
# Sentences of two to four seconds. Of the smaller part of its speakers, 45 are clients and 19 are in test.
ENGLISH = (
    "data.corpus=tsv", "data.test_share=0.2", "data.dev_share=0.1", "task.unknown=leave_out",
    "data.options={train: [manifest.tsv], path_column: path, speaker_column: speaker, text_column: transcript, "
    "seconds_column: seconds}",
)  # fmt: skip
VOICE = Corpus("common_voice_fr", "common_voice", "common_voice", silos=25, errors="errors_lm")
CORPORA = {
    "embedded": TWIN,
    "embedded_it": replace(TWIN, overrides=(*TWIN.overrides, "data.options.languages=[it]")),
    "embedded_attention": replace(TWIN, overrides=(*TWIN.overrides, *ATTENTION), errors="errors_lm"),
    "common_voice_fr": VOICE,
    "common_voice_it": replace(
        VOICE, one="common_voice_it", overrides=("data.options.language=it",), of_adamw=("algorithm.utterances=29000",)
    ),
    "arabic_commands": replace(
        TWIN,
        overrides=COMMANDS,
        of_adamw=("algorithm.utterances=600",),
        silos=1,
        speech="arabic-commands",
        without=("silos",),
    ),  # fmt: skip
    "speechocean": replace(
        TWIN,
        overrides=(*ENGLISH, "cohort={size: null, fraction: 1.0}"),
        of_adamw=("algorithm.utterances=1700",),
        silos=1,
        speech="speechocean-mini",
    ),
    "speechocean_all": replace(
        TWIN,
        rounds=40,
        overrides=ENGLISH,
        speech="speechocean",
        of_adamw=("algorithm.utterances=2000",),
        silos=1,
        without=("silos",),
    ),
    "digits": Corpus("digits", "digits", "digits", rounds=20, silos=3, digits=True),
}
REGIMES = {"silos": "ten silos", "pairs": "two speakers a client", "one": "one speaker a client"}
WEIGHTS = {
    "examples": "{kind: by_examples}",
    "loss": "{kind: by_loss}",
    "WER": "{kind: by_wer}",  # exp(1 - wer) on fractions, as the paper prints it
    "WER at 0.01": "{kind: by_wer, temperature: 0.01}",  # the authors' code: wer in percent
}
CENTRAL = {
    "central": "all speech, central",
    "central_second_half": "second half, central",
    "warm_up_continued": "first half, the warm-up goes on",
    "central_sgd": "all speech, central SGD",
    "central_second_half_sgd": "second half, central SGD",
}
SCRATCH = {"scratch": "from scratch, FedAvg", "scratch_fedadam": "from scratch, FedAdam"}
EXAMPLES = "strategy={kind: by_examples}"
ALONE = "algorithm.server_finetune=false"
FALLING = "algorithm.server_scheduled=true"
AS_SILOS = "as long as silos"
LAST = "algorithm.client.reported_loss=last_epoch"  # the authors' code; the paper: the mean over local training


def arms() -> dict[str, Arm]:
    """Name -> configuration and overrides, in the paper's order."""
    found = {words: Arm(name, [EXAMPLES]) for name, words in CENTRAL.items()}
    found |= {f"{words}, {AS_SILOS}": Arm(name, [EXAMPLES], True) for name, words in CENTRAL.items()}
    for regime, words in REGIMES.items():
        found[f"{words}, loss of the last epoch"] = Arm(regime, [f"strategy={WEIGHTS['loss']}", LAST])
        for weight, strategy in WEIGHTS.items():
            name, weighted = f"{words}, {weight}", f"strategy={strategy}"
            found[name] = Arm(regime, [weighted])
            found[f"{name}, no fine-tuning"] = Arm(regime, [weighted, ALONE])
            found[f"{name}, falling rate"] = Arm(regime, [weighted, FALLING])  # that of fine-tuning, too
    return found | {words: Arm(name, [EXAMPLES]) for name, words in SCRATCH.items()}


def compared() -> list[tuple[str, str]]:
    """Pairs of arms: the page has the change from the first to the second."""
    silos, pairs, one = REGIMES.values()
    by_regime = [
        (f"{worse}, {weight}", f"{better}, {weight}")
        for worse, better in ((one, pairs), (pairs, silos))
        for weight in WEIGHTS
    ]
    by_weight = [
        (f"{words}, {worse}{tuning}", f"{words}, {better}{tuning}")
        for words in REGIMES.values()
        for tuning in ("", ", no fine-tuning")
        for worse, better in (("examples", "loss"), ("examples", "WER"), ("loss", "WER"), ("loss", "WER at 0.01"))
    ]
    by_weight += [(f"{words}, loss", f"{words}, loss of the last epoch") for words in REGIMES.values()]
    tuned = [
        (f"{words}, {weight}, no fine-tuning", f"{words}, {weight}{tuning}")
        for words in REGIMES.values()
        for weight in WEIGHTS
        for tuning in ("", ", falling rate")
    ]
    tuned += [
        (f"{words}, {weight}", f"{words}, {weight}, falling rate") for words in (pairs, one) for weight in WEIGHTS
    ]
    central = [
        (f"{silos}, examples", f"{words}{length}") for words in CENTRAL.values() for length in ("", f", {AS_SILOS}")
    ]
    return by_regime + by_weight + tuned + central + [(CENTRAL["warm_up_continued"], f"{pairs}, examples")]


def play(corpus: Corpus, arm: Arm, seed: int, extra: Sequence[str], out: Path) -> dict[str, Any]:
    """Errors by speaker of the seed model and of the best round, and the mean effective number of clients."""
    config = corpus.config(arm.config)
    if experiment.load(study.ROOT / config)[0].algorithm.kind == "sl":
        # Central AdamW has no clients' settings.
        extra = [*corpus.of_adamw, *(one for one in extra if not one.startswith("algorithm.client."))]
    settings = [*corpus.of_seed(seed), f"rounds={corpus.length(arm)}", *arm.overrides, *extra]
    results = study.run(config, settings, out)
    rows = study.rounds(out)
    predicted = [study.predictions(out, model) for model in ("seed", "best")]
    if corpus.digits:
        recordings = strings(config, settings)
        before, best = (by_recording(rows, corpus.errors, recordings) for rows in predicted)
    else:
        before, best = (study.by_speaker(rows, corpus.errors) for rows in predicted)
    return {
        "seed": seed,
        "round": results["best"]["round"],
        "dev": results["best"]["dev/wer"],
        "before": study.packed(before),
        "best": study.packed(best),
        "cohort": mean(row["clients/ok"] for row in rows),
        "effective": mean(row["clients/effective"] for row in rows),
        "seconds": mean(row["time/round_s"] for row in rows),
    }


def page(found: study.Found, rounds: Mapping[str, int], pairs: Sequence[tuple[str, str]]) -> str:
    """A row for each arm, and the changes between `pairs` of arms. `rounds`: those of a run of each arm."""
    rows = []
    for arm, runs in found.items():
        before, after = of(runs, "before"), of(runs, "best")
        counting = f"{mean(one['effective'] for one in runs):.1f} of {mean(one['cohort'] for one in runs):.0f}"
        row = {"trained on": arm, "test WER": str(rate(after)), "before": str(rate(before))}
        row |= {"change": str(change(before, after, "points")), "effective clients": counting}
        row["best rounds"] = study.best_rounds([one["round"] for one in runs], [rounds[arm]] * len(runs))
        row["seconds a round"] = f"{mean(one['seconds'] for one in runs):.1f}"
        rows.append(row | {"seeds": ", ".join(str(one["seed"]) for one in runs)})
    text, orders = study.table(rows), []
    for worse, better in pairs:
        both = study.from_one_start(found.get(worse, []), found.get(better, []))
        if both:
            before, after = zip(*both, strict=True)
            row = {"from": worse, "to": better}
            row["change in WER"] = str(change(of(before, "best"), of(after, "best"), "points"))
            orders.append(row | {"seeds": ", ".join(str(one["seed"]) for one in before)})
    return text + (f"\n\n## Changes\n\n{study.table(orders)}" if orders else "")


def of(runs: Sequence[Mapping[str, Any]], model: str) -> list[dict[str, tuple[int, int]]]:
    """Each run's words and errors by speaker, of its `best` round or of the model `before`."""
    return [study.unpacked(run[model]) for run in runs]


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-gao-table1")
    parser.set_defaults(seeds=None)  # five; for digits, all splits
    parser.add_argument("--corpus", choices=list(CORPORA), default="embedded")
    parser.add_argument("--rounds", type=int, help="of a run (default: 20, or as configured)")
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="overrides of all arms; of algorithm.client not for central AdamW",
    )
    chosen = study.chosen(parser, lambda options: CORPORA[options.corpus].arms())
    corpus, title = CORPORA[chosen.corpus], chosen.corpus
    known = corpus.arms()
    if chosen.rounds is not None:
        corpus, title = replace(corpus, rounds=chosen.rounds), f"{title}_{chosen.rounds}"
    chosen.seeds = chosen.seeds or [*range(len(SERVERS) if corpus.digits else 5)]
    given = [one for one in chosen.set if not one.startswith("engine.")]
    before = study.page_before(f"gao_table1_{title}", overrides=given).get("found", {})
    found = study.gathered(
        before, known, chosen,
        lambda name, seed: chosen.runs / title / name.replace(", ", "-").replace(" ", "-") / f"seed-{seed}",
        lambda name, seed, out: play(corpus, known[name], seed, chosen.set, out),
    )  # fmt: skip
    length = f" over {corpus.rounds} rounds" if corpus.rounds else ""
    text = f"# Gao et al., table 1: {chosen.corpus}{length}\n\nTest WER in percent of the best round by dev, "
    text += 'and of the model that the arm starts from ("before").\nMeans over seeds, with 95 % intervals from a '
    text += f"paired bootstrap over {'recordings' if corpus.digits else 'speakers'}. "
    text += 'Rows that differ in "before" started\nfrom different models; changes between arms leave such runs out.'
    if corpus.digits:
        text += ' A "speaker" is one of 60 shares of three people\'s\ntakes; test has the same three people.'
    text += f"\n\n{page(found, {name: corpus.length(known[name]) for name in found}, compared())}"
    numbers = {"overrides": given, "found": found}
    command = study.command(parser, chosen, set=given, arms=study.on_page(known, found))
    study.write(f"gao_table1_{title}", text, numbers, command, study.seeds(found))
    print(text)


if __name__ == "__main__":
    main()
