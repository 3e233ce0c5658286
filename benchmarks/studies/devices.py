"""FedNST on slow and fast phones: virtual hours to a target, synchronous, with over-selection and with FedBuff.

    python -m benchmarks.studies.devices [--only modes oort dialect] [--seeds 0 1 2] [--draws 0 1]

`modes`: rounds of six clients; rounds with eight chosen clients, of whom the six fastest count; FedBuff with eight
clients training at a time and a step at every third arrival: twice as many steps, each with half of the server's
utterances. The seconds of a phone are log-normal with sigma = 1. The target is the best dev WER of the synchronous run
of the same seed, plus half a point. Another draw gives the clients other phones. Synchronous rounds train the same
model whatever the phones, so their hours at another draw follow from the trips alone. `oort`: Oort's selection against
uniform. `dialect`: slow phones speak one dialect; the page shows who loses. Writes benchmarks/results/devices_<part>.md
and .json. The same command resumes; finished runs are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks import study
from fedray import experiment
from fedray.core.devices.table import jain
from fedray.experiment.devices import build_devices
from fedray.runs.folder import RunFolder

ABOVE = 0.5  # the target: points of dev WER above the best of the synchronous run
PHONES = "{seconds: 0.6, down: 20e6, up: 5e6, latency: 2, watts: 3, radio: 1}"
DEVICES = f"devices={{kind: classes, classes: {{phone: {PHONES}}}, spread: 1.0}}"
SYNCHRONOUS = "rounds"
MODES = {
    SYNCHRONOUS: [],
    "over-selection 8 of which 6": ["clock={kind: rounds, over: 1.3333}"],
    "FedBuff, 8 at work, steps of 3": [
        "clock={kind: buffered, concurrency: 8, buffer: 3}",
        "rounds=50",
        "algorithm.server.utterances=30",
        "evaluation.every=2",
    ],
}
SELECTIONS = {SYNCHRONOUS: [], "rounds, Oort": ["cohort={size: 6, sampling: oort}"]}
BASE = ["algorithm.server_scheduled=true"]
SLOW = "en-gb-scotland"  # the dialect of slow phones


def play(name: str, config: str, overrides: Sequence[str], seed: int, draw: int, runs: Path) -> Path:
    """The folder of a run of a configuration; starts or resumes the run unless it is finished."""
    out = runs / f"seed-{seed}" / f"draw-{draw}" / study.folder_name(name)
    print(f"seed {seed}, draw {draw}, {name}: {out}", flush=True)
    study.run(config, [f"seed={seed}", f"data.seed={seed}", *BASE, *overrides, f"devices.draw={draw}"], out)
    return out


def curve(out: Path) -> list[tuple[float, float]]:
    """(virtual hours, dev WER) after each scored round."""
    return [(row["virtual/hours"], row["dev/wer"]) for row in study.rounds(out) if row.get("dev/wer") is not None]


def at_draw(out: Path, draw: int) -> tuple[list[tuple[float, float]], float]:
    """The curve and the energy (Wh) of a synchronous run if its clients had the phones of another draw.

    A round lasts as long as its longest trip.
    """
    loaded = [experiment.load(out / "config.yaml", [f"devices.draw={number}"] * (number >= 0)) for number in (-1, draw)]
    data, _ = experiment.build_data(*loaded[0])
    own, other = (build_devices(config, data) for config, _ in loaded)
    places, seconds = {client: place for place, client in enumerate(data.client_ids())}, Counter[int]()
    energy = 0.0
    for trip in RunFolder(out).each("trips.jsonl"):
        place = places[trip["client"]]
        compute = trip["compute_s"] * other.slow[place] / own.slow[place]
        transfer = trip["transfer_s"] * other.narrow[place] / own.narrow[place]
        whole = trip["end_s"] - trip["start_s"] - trip["compute_s"] - trip["transfer_s"] + compute + transfer
        seconds[trip["round"]] = max(seconds[trip["round"]], whole)
        energy += other.energy(place, compute, transfer)
    hours = {number: sum(seconds[r] for r in range(1, number + 1)) / 3600 for number in seconds}
    points = [(hours[row["round"]], row["dev/wer"]) for row in study.rounds(out) if row.get("dev/wer") is not None]
    return points, energy


def reached(points: Sequence[tuple[float, float]], target: float) -> float | None:
    """The hours after which dev is at the target or below; None: never."""
    return next((hours for hours, wer in points if wer <= target), None)


def fairness(out: Path) -> float:
    """Jain's index of the updates that the server used, over all clients."""
    config, source = experiment.load(out / "config.yaml")
    data, _ = experiment.build_data(config, source)
    used = Counter(trip["client"] for trip in RunFolder(out).each("trips.jsonl") if trip["used"])
    return jain([used[client] for client in data.client_ids()])


def numbers(out: Path, points: Sequence[tuple[float, float]], target: float) -> dict[str, Any]:
    """The scores that a run reaches and what it spends."""
    results = RunFolder(out).read_json("results.json")
    stale = [row["virtual/staleness"] for row in study.rounds(out) if row.get("virtual/staleness") is not None]
    return {
        "hours": reached(points, target),
        "all hours": points[-1][0],
        "dev": min(wer for _, wer in points),
        "test": results["best"]["test/wer"],
        "test_lm": results["best"]["test/wer_lm"],
        "wasted": results["virtual/wasted_share"],
        "energy": results["virtual/energy_wh"],
        "staleness": mean(stale),
        "fairness": fairness(out),
    }


def measured(arms: dict[str, list[str]], reference: str, seeds: Sequence[int], draws: Sequence[int], runs: Path) -> Any:
    """Arm -> its numbers by seed and draw. The target of a seed is that of the reference arm."""
    found: dict[str, list[dict[str, Any]]] = {arm: [] for arm in arms}
    for seed in seeds:
        target, first = 0.0, Path()
        for draw in draws:
            for arm, overrides in arms.items():
                more: dict[str, Any] = {}
                if arm == SYNCHRONOUS and draw != draws[0]:
                    (points, energy), out = at_draw(first, draw), first
                    more = {"energy": energy, "replayed": True}
                else:
                    out = play(arm, "configs/fednst/embedded.yaml", [DEVICES, *overrides], seed, draw, runs)
                    points = curve(out)
                if arm == reference and draw == draws[0]:
                    target, first = min(wer for _, wer in points) + ABOVE, out
                numbered = numbers(out, points, target) | more
                found[arm].append({"seed": seed, "draw": draw, "target": target, **numbered})
    return found


def table(found: dict[str, list[dict[str, Any]]], reference: str) -> str:
    """A row for each arm; ratios are to the reference of the same seed and draw."""
    rows = []
    for arm, runs in found.items():
        pairs = [(ours["hours"], theirs["hours"]) for ours, theirs in zip(runs, found[reference], strict=True)]
        sooner = [theirs / ours for ours, theirs in pairs if ours is not None and theirs is not None]
        missed = sum(ours is None for ours, _ in pairs)
        there = [ours for ours, _ in pairs if ours is not None]
        played = [run for run in runs if not run.get("replayed")]
        ratio = f"{median(sooner):.2f} x [{min(sooner):.2f}, {max(sooner):.2f}]" if sooner else "none"
        rows.append(
            {
                "arm": arm,
                "hours to the target": study.spread(there) if there else "not reached",
                "speed-up": ratio + (f"; {missed} of {len(runs)} runs miss the target" if missed else ""),
                "dev": study.spread([run["dev"] for run in played]),
                "test, greedy": study.spread([run["test"] for run in played]),
                "test, LM": study.spread([run["test_lm"] for run in played]),
                "wasted (%)": study.spread([100 * run["wasted"] for run in played]),
                "energy (Wh)": study.spread([run["energy"] for run in runs]),
                "staleness": study.spread([run["staleness"] for run in played]),
                "Jain": f"{mean(run['fairness'] for run in runs):.2f}",
            }
        )
    return study.table(rows)


def modes(seeds: Sequence[int], draws: Sequence[int], runs: Path) -> tuple[str, Any]:
    found = measured(MODES, SYNCHRONOUS, seeds, draws, runs)
    text = f"""# FedNST on slow and fast phones

The embedded federation of `configs/fednst/embedded.yaml`, 25 rounds of six clients. A phone takes 0.6 s (median) for
one pass over an utterance; its computing and its network each vary log-normally over phones, with sigma = 1. Hours are
virtual, until dev WER (greedy) reaches the best of the synchronous run of the same seed plus {ABOVE} points.
"Speed-up" compares runs of the same seed on the same phones: median, and range over seeds and draws of phones.

{table(found, SYNCHRONOUS)}
"""
    return text, found


def oort(seeds: Sequence[int], draws: Sequence[int], runs: Path) -> tuple[str, Any]:
    found = measured(SELECTIONS, SYNCHRONOUS, seeds, draws, runs)
    text = f"""# Oort's selection against uniform

The federation and the phones of [FedNST on slow and fast phones](devices_modes.md), in rounds of six clients chosen
uniformly or by Oort. The target is the best dev WER of the uniform run of the same seed, plus {ABOVE} points.

{table(found, SYNCHRONOUS)}
"""
    return text, found


def dialect(seeds: Sequence[int], draws: Sequence[int], runs: Path) -> tuple[str, Any]:
    found: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
    for seed in seeds:
        for mode, overrides in MODES.items():
            settings = overrides or ["clock={kind: rounds, over: 1.0}"]
            out = play(mode, "configs/devices/fednst_dialect.yaml", settings, seed, draws[0], runs / "dialect")
            used = Counter(trip["class"] for trip in RunFolder(out).each("trips.jsonl") if trip["used"])
            one = {"seed": seed, "hours": study.rounds(out)[-1]["virtual/hours"], "fairness": fairness(out)}
            one["used"] = {name: count / used.total() for name, count in used.items()}
            one["wer"] = {model: by_label(study.predictions(out, model)) for model in ("seed", "best")}
            found[mode].append(one)
    rows = []
    for mode, played in found.items():
        cells = {"arm": mode, "virtual hours": study.spread([one["hours"] for one in played])}
        for label, name in (("en", "fast"), (SLOW, "slow")):
            cells[f"updates of the {name} dialect (%)"] = study.spread([100 * one["used"][label] for one in played])
            before, after = (study.spread([one["wer"][model][label] for one in played]) for model in ("seed", "best"))
            cells[f"test WER of the {name} dialect"] = f"{before} → {after}"
        rows.append(cells | {"Jain": f"{mean(one['fairness'] for one in played):.2f}"})
    text = f"""# One dialect on slow phones

`configs/devices/fednst_dialect.yaml`: half of the clients speak Scottish English, on phones eight times as slow as
those of the others (`devices.by: label`). Test WER (greedy) of new speakers of each dialect, from the seed model to the
best round; {"one seed" if len(seeds) == 1 else f"mean ± SD over {len(seeds)} seeds"}.

{study.table(rows)}
"""
    return text, found


def by_label(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Label -> word error rate in percent."""
    words, errors = Counter[str](), Counter[str]()
    for row in rows:
        words[row["label"]] += row["words"]
        errors[row["label"]] += row["errors"]
    return {label: 100 * errors[label] / words[label] for label in words}


PARTS = {"modes": modes, "oort": oort, "dialect": dialect}


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-devices")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--draws", type=int, nargs="+", default=[0, 1], help="of phones, for each seed")
    chosen = parser.parse_args()
    for part in chosen.only:
        text, found = PARTS[part](chosen.seeds, chosen.draws, chosen.runs)
        command = study.command(parser, chosen, only=[part])
        study.write(f"devices_{part}", text, {"found": found}, command, chosen.seeds)
        print(text)


if __name__ == "__main__":
    main()
