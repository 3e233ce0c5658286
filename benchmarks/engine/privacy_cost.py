"""What privacy costs: rounds of 100 clients with a CRNN-Base, without privacy and with each kind, by turns.

    python -m benchmarks.engine.privacy_cost [--turns 24] [--rounds 8] [--actors N]   # half an hour on two cores
    python -m benchmarks.engine.privacy_cost --tiny      # a minute; its numbers say nothing

Each turn starts one run of each kind, in an order that rotates from turn to turn. A round of a kind is compared with a
round without privacy of the same turn. Two runs of one kind differ by several percent even on a quiet machine, so the
page also has what the clients and the driver do beside training, which is measured within the round and hardly differs.
The file `--kept` holds the complete turns: the same command continues after them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles

from benchmarks import study
from benchmarks.engine import runs, stores, workloads
from benchmarks.engine.workloads import Workload
from fedray.core.machine import allowed
from fedray.core.privacy.accounting import Sampling
from fedray.core.privacy.factorisation import coefficients
from fedray.core.privacy.guarantee import Guarantee
from fedray.core.privacy.mechanism import Mechanism
from fedray.core.privacy.settings import ClipSettings, Correlated, Gaussian, Private, Skellam
from fedray.core.strategies import Uniform
from fedray.engine.settings import CohortSettings
from fedray.storage.files import write_atomically

COMMAND = "python -m benchmarks.engine.privacy_cost"
NONE = "without privacy"
CLIP, DELTA, NOISE = ClipSettings(norm=1.0), 1e-6, 1.0
KINDS: dict[str, Private | None] = {
    NONE: None,
    "Gaussian, bounds by layers": Gaussian(delta=DELTA, noise=NOISE, clip=ClipSettings(norm=1.0, layers="dim")),
    "correlated": Correlated(delta=DELTA, noise=NOISE, clip=CLIP),
    "Skellam, 20 bits": Skellam(delta=DELTA, noise=NOISE, clip=CLIP, bits=20),
}
ALLOWED = {"Gaussian, bounds by layers": 3, "correlated": 6, "Skellam, 20 bits": 10}  # percent of a round
SECONDS, BESIDE = "seconds", "beside"  # of a round, and of these what is not training
Turn = dict[str, dict[str, list[float]]]  # kind -> SECONDS and BESIDE of each round but the first


def mechanism(settings: Private, workload: Workload, cohort: CohortSettings, rounds: int) -> Mechanism:
    sampling = Sampling(cohort.sampling, workload.cohort, workload.clients)
    weights = tuple(coefficients(settings.bands).tolist()) if isinstance(settings, Correlated) else (1.0,)
    guarantee = Guarantee.of(settings, sampling, rounds)
    return Mechanism(settings, guarantee.noise, workload.cohort, weights, guarantee)


def play(kind: str, workload: Workload, rounds: int, actors: int, folder: Path) -> dict[str, list[float]]:
    """SECONDS and BESIDE of the rounds after the first. Cohorts have a fixed size: rounds have the same work."""
    settings = KINDS[kind]
    cohort = CohortSettings(size=workload.cohort, sampling="cyclic" if isinstance(settings, Correlated) else "uniform")
    with tempfile.TemporaryDirectory(dir=folder) as place, runs.ray_here():
        clips = stores.write(folder / "clips", workload)
        given = runs.assignment(Path(place) / "run", clips, workload, rounds, actors)
        given.program.algorithm.strategy = Uniform()
        privacy = None if settings is None else mechanism(settings, workload, cohort, rounds)
        played = runs.play(replace(given, plan=replace(given.plan, cohort=cohort, privacy=privacy)))
    return {SECONDS: played.seconds, BESIDE: [beside(row, actors) for row in played.rows[1:]]}


def beside(row: Mapping[str, float], actors: int) -> float:
    """Seconds of a round in which clients check, clip, encode and add up updates, or the driver works alone."""
    return row["time/fold_actors_s"] / actors + row["time/round_s"] - row["time/train_s"]


def page(turns: Sequence[Turn], rounds: int, workload: Workload, actors: int) -> str:
    rows = []
    for kind in KINDS:
        work = of_all(turns, kind, BESIDE)
        row = {"": kind, "seconds a round": f"{of_all(turns, kind, SECONDS):.3f}"}
        row["beside training (ms)"] = f"{1000 * work:.1f}"
        more = (work - of_all(turns, NONE, BESIDE)) / of_all(turns, NONE, SECONDS)
        row["this makes it dearer by (%)"] = "" if kind == NONE else f"{100 * more:+.1f}"
        ratios = [median(turn[kind][SECONDS]) / median(turn[NONE][SECONDS]) - 1 for turn in turns]
        low, middle, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        row["dearer by (%)"] = "" if kind == NONE else f"{100 * middle:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
        rows.append(row | {"at most (%)": str(ALLOWED.get(kind, ""))})
    return f"""# What privacy costs

Rounds of {workload.cohort} of {workload.clients:,} clients with {workload.title}, {actors} client actors: the median
over {len(turns)} turns of {rounds} rounds each, without the first. *Beside training*: clients check, clip, encode and
add up updates, the driver adds noise, in milliseconds of a round. *Dearer* compares the median rounds of a turn: the
median over the turns, with the range of their middle half. *At most* is what the kind may cost.

{study.table(rows)}"""


def of_all(turns: Sequence[Turn], kind: str, what: str) -> float:
    """The median over all rounds of all turns."""
    return median(value for turn in turns for value in turn[kind][what])


def kept(path: Path, settings: Mapping[str, object]) -> list[Turn]:
    """The turns of an interrupted measurement with these settings. ValueError: the file is another measurement's."""
    if not path.exists():
        return []
    found = json.loads(path.read_text(encoding="utf-8"))
    if found["settings"] != settings:
        raise ValueError(f"{path} holds turns of other settings: remove it, or name another file with --kept")
    turns: list[Turn] = found["turns"]
    return turns


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--actors", type=int, default=allowed().whole_cores())
    parser.add_argument("--tiny", action="store_true", help="a few clients, two turns of three rounds; writes no page")
    parser.add_argument(
        "--kept", type=Path, default=study.ROOT / "runs" / "privacy-cost.json", help="the file that keeps the turns"
    )
    chosen = parser.parse_args(arguments)
    workload, turns, rounds = workloads.KEYWORDS["base"], chosen.turns, chosen.rounds
    if chosen.tiny:
        workload, turns, rounds = replace(workload, clients=40, cohort=4, clips=4), 2, 3
    settings = {"rounds": rounds, "actors": chosen.actors, "cohort": workload.cohort, "measured": [SECONDS, BESIDE]}
    found = [] if chosen.tiny else kept(chosen.kept, settings)
    with tempfile.TemporaryDirectory(prefix="fedray-bench-") as folder:
        for number in range(len(found), turns):
            order = [*list(KINDS)[number % len(KINDS) :], *list(KINDS)[: number % len(KINDS)]]
            found.append({kind: play(kind, workload, rounds, chosen.actors, Path(folder)) for kind in order})
            shown = ", ".join(f"{kind} {median(found[-1][kind][SECONDS]):.3f}" for kind in KINDS)
            print(f"turn {number + 1} of {turns}, seconds a round: {shown}", flush=True)
            if not chosen.tiny:
                text = json.dumps({"settings": settings, "turns": found})
                chosen.kept.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(chosen.kept, lambda path, text=text: path.write_text(text, encoding="utf-8"))
    text = page(found, rounds, workload, chosen.actors)
    if not chosen.tiny:
        command = f"{COMMAND} --turns {turns} --rounds {rounds}"
        study.write("privacy_cost", text, {"turns": found}, command, [0])
    print(text)


if __name__ == "__main__":
    main()
