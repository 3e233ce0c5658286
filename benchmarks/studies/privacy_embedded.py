"""What privacy costs on the embedded corpus: epsilon against WER over 4,000 clients, and what bounds by layer gain.

    python -m benchmarks.studies.privacy_embedded [--only epsilon layers cohorts] [--seeds 0 1 2] [--arms FedAvg]
                                                  [--rounds 60] [--actors N] [--small] [--runs DIR]

`epsilon`: FedAvg and FedLoRA with 100 of 4,000 clients a round; no privacy, and epsilon 1, 2, 4, 8, as if a round had
25,000 of 1,000,000 clients and as simulated. `layers`: one bound against bounds by dimension, with SGD and LAMB on the
server, at the noise of epsilon 2; momentum, to tell LAMB's effect from that of larger steps; and far more noise.
`cohorts`: 100 clients with the noise of 400 and of 1,600, against real cohorts of these sizes; a real cohort has 4 and
16 times the clients, so this part takes longest. The server trains the seed model on its labelled speech. `--small`
trains a few clients, to check that everything works, and writes no page. The same command resumes the study: it keeps
finished runs, and takes runs whose folders are gone from the earlier page. Parts, arms and seeds that were not chosen
stay on the page.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import study
from fedray.report.bootstrap import Counts, rate, recovered

FEDAVG, FEDLORA = "configs/privacy/embedded.yaml", "configs/privacy/fedlora.yaml"
CONFIGS = {"FedAvg": FEDAVG, "FedLoRA": FEDLORA}
NONE = "no privacy"
EPSILONS = (8.0, 4.0, 2.0, 1.0)
SIMULATED = ("privacy.as_if={cohort: null, population: null}", "privacy.delta=1e-5")
COUNTED = ("privacy.clip.count_noise=20",)  # with the default the counts of all layers spend more than epsilon 1
LAYERS_EPSILON = 2
# One multiplier z for all cohorts, whose means then have the noise z C / n.
FIXED = ("privacy.epsilon=null", "privacy.noise=1.0", "privacy.clip={kind: fixed, norm: 1.0}")
COHORTS, CLIENTS = (400, 1600), 4000
LAMB = "server_optimizer={kind: lamb, lr: 0.006}"
MOMENTUM = "server_optimizer={kind: momentum, beta: 0.9}"
NOISY = "epsilon 8 as simulated"
SMALL = [
    "data.options={client_speakers: 60, client_utterances: 4, server_speakers: 6, server_utterances: 6, "
    "dev_speakers: 2, dev_utterances: 4, test_speakers: 3, test_utterances: 4, test_server_speakers: 0}",
    "model={kind: conformer, d_model: 32, ffn: 64, layers: 1}",
    "algorithm.pretrain.steps=20",
]


@dataclass(frozen=True)
class Arm:
    """A method of a part: its configuration and overrides."""

    config: str
    overrides: tuple[str, ...]


def arms(part: str) -> dict[str, Arm]:
    """Name -> arm. The names of a part are those of its table's rows."""
    if part == "epsilon":
        found = {}
        for method, config in CONFIGS.items():
            found[f"{method}, {NONE}"] = Arm(config, ("privacy.kind=none",))
            for epsilon in EPSILONS:
                claim = f"privacy.epsilon={epsilon:g}"
                found[f"{method}, epsilon {epsilon:g} as if of a million"] = Arm(config, (claim,))
                found[f"{method}, epsilon {epsilon:g} as simulated"] = Arm(config, (claim, *SIMULATED, *COUNTED))
        return found
    if part == "layers":
        given, bounds = f"privacy.epsilon={LAYERS_EPSILON}", "privacy.clip.layers="
        found = {
            f"{layers}, {optimiser}": Arm(FEDAVG, (given, bounds + layers, *more))
            for optimiser, more in {"SGD": (), "LAMB": (LAMB,)}.items()
            for layers in ("global", "uniform", "dim")
        }
        # Is it LAMB, or only larger steps? Do bounds matter if noise is far above the signal?
        found["global, momentum"] = Arm(FEDAVG, (given, bounds + "global", MOMENTUM))
        for layers in ("global", "dim"):
            noisy = ("privacy.epsilon=8", *SIMULATED, *COUNTED, bounds + layers, LAMB)
            found[f"{layers}, LAMB, {NOISY}"] = Arm(FEDAVG, noisy)
        return found
    return {
        f"{cohort:,} clients, {how}": Arm(FEDAVG, (*FIXED, *overrides))
        for cohort in COHORTS
        for how, overrides in {
            "from 100": (f"privacy.as_if={{cohort: {cohort}, population: {10 * CLIENTS}}}",),
            "real": (f"cohort.fraction={cohort / CLIENTS}", "cohort.limit=null", *SIMULATED),
        }.items()
    }


def play(arm: Arm, seed: int, place: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """The spent epsilon, and errors by speaker of test, of the seed model and of the best round."""
    overrides = [*arm.overrides, f"seed={seed}", f"data.seed={seed}"]
    overrides += [f"rounds={chosen.rounds}", f"engine.actors={chosen.actors}"]
    results = study.run(arm.config, [*overrides, *SMALL] if chosen.small else overrides, place)
    rows = study.rounds(place)
    snr = [row["privacy/snr"] for row in rows if row.get("privacy/snr") is not None]
    return {
        "seed": seed,
        "round": results["best"]["round"],
        "epsilon": results.get("privacy", {}).get("epsilon"),
        "noise": results.get("privacy", {}).get("noise"),
        "snr": sum(snr) / len(snr) if snr else None,
        "before": study.packed(study.by_speaker(study.predictions(place, "seed"))),
        "best": study.packed(study.by_speaker(study.predictions(place, "best"))),
    }


def counts(results: Sequence[dict[str, Any]], model: str = "best") -> list[Counts]:
    return [study.unpacked(one[model]) for one in results]


def table(found: study.Found) -> str:
    """A row for each arm. The gain is that of the same method without privacy, where it was run."""
    rows = []
    for name, results in found.items():
        before, after = counts(results, "before"), counts(results)
        reference = found.get(f"{name.partition(',')[0]}, {NONE}")
        share = None
        if reference not in (None, results):
            here, there = study.common(results, reference)
            share = recovered(*(counts(runs, model) for runs in (here, there) for model in ("before", "best")))
        row = {"": name, "test WER (%)": str(rate(after)), "against the seed model": str(study.change(before, after))}
        if any(name.endswith(NONE) for name in found):
            row["share of the gain (%)"] = "" if share is None else str(share)
        row["z"] = _mean(results, "noise", 3)
        row["signal to noise"] = _mean(results, "snr", 2)
        row["best rounds"] = ", ".join(str(one["round"]) for one in results)
        rows.append(row | {"seeds": ", ".join(str(one["seed"]) for one in results)})
    return study.table(rows)


def _mean(results: Sequence[dict[str, Any]], name: str, digits: int) -> str:
    values = [one[name] for one in results if one[name] is not None]
    return f"{sum(values) / len(values):.{digits}f}" if values else ""


def pairs(part: str) -> dict[str, tuple[str, str]]:
    """The comparisons of a part: words -> (before, after)."""
    if part == "layers":
        return {
            "one bound with SGD -> by dimension with LAMB": ("global, SGD", "dim, LAMB"),
            "one bound with LAMB -> by dimension with LAMB": ("global, LAMB", "dim, LAMB"),
            "one bound with SGD -> by dimension with SGD": ("global, SGD", "dim, SGD"),
            "one bound: SGD -> momentum": ("global, SGD", "global, momentum"),
            "one bound: momentum -> LAMB": ("global, momentum", "global, LAMB"),
            f"{NOISY}, LAMB: one bound -> by dimension": (f"global, LAMB, {NOISY}", f"dim, LAMB, {NOISY}"),
        }
    if part == "cohorts":
        return {f"{n:,}: from 100 -> real": (f"{n:,} clients, from 100", f"{n:,} clients, real") for n in COHORTS}
    return {}


def section(part: str, found: study.Found) -> str:
    """The tables of a part."""
    rows = []
    for words, (one, other) in pairs(part).items():
        before, after = study.common(found.get(one, []), found.get(other, []))
        if before:
            rows.append({"change": words, "in test WER": str(study.change(counts(before), counts(after)))})
            rows[-1]["seeds"] = ", ".join(str(run["seed"]) for run in before)
    text = f"## {TITLES[part]}\n\n{table(found)}"
    return text + (f"\n\n{study.table(rows)}" if rows else "")


TITLES = {
    "epsilon": "Epsilon against WER",
    "layers": f"Bounds by layer and LAMB, at the noise of epsilon {LAYERS_EPSILON}",
    "cohorts": "Does a small cohort stand for a large one?",
}
ABOUT = """# Privacy on the embedded corpus

Training starts from a seed model, with 100 of 4,000 clients a round. Scores are the greedy word error rate on new
speakers in the best round by dev: the mean over seeds with its 95 % interval (paired bootstrap over speakers). *As if
of a million*: epsilon is that of 25,000 of 1,000,000 clients a round, and the mean of the 100 gets the noise of the
larger cohort's mean. *As simulated*: epsilon is that of the 4,000 clients."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = study.parser(__spec__.name, __doc__, "study-privacy", rounds=60)
    parser.add_argument("--only", nargs="+", choices=list(TITLES), default=list(TITLES))
    parser.add_argument("--small", action="store_true", help="a few clients; writes no page")
    chosen = study.chosen(parser, lambda options: [arm for part in options.only for arm in arms(part)], arguments)
    before = {} if chosen.small else study.page_before("privacy_embedded", rounds=chosen.rounds).get("found", {})
    parts: dict[str, study.Found] = {}
    for part in TITLES:
        known = before.get(part, {})
        found = played(part, known, chosen) if part in chosen.only else known
        if found:
            parts[part] = found
    text = "\n\n".join([ABOUT, *(section(part, found) for part, found in parts.items())])
    if not chosen.small:
        numbers = {"rounds": chosen.rounds, "found": parts}
        command = study.command(parser, chosen, only=[*parts], arms=[""])
        study.write("privacy_embedded", text, numbers, command, study.seeds(*parts.values()))
    print(text)


def played(part: str, known: study.Found, chosen: argparse.Namespace) -> study.Found:
    """The runs of a part by arm."""
    found = arms(part)

    def place(name: str, seed: int) -> Path:
        runs = chosen.runs / "small" if chosen.small else chosen.runs
        return Path(runs / part / f"seed-{seed}" / name.lower().replace(",", "").replace(" ", "-"))

    return study.gathered(known, found, chosen, place, lambda name, seed, to: play(found[name], seed, to, chosen))


if __name__ == "__main__":
    main()
