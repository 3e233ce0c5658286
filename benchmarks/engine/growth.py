"""What grows with a run: 10,000 rounds of a toy on a disk, 600 in a bucket, and rounds after 100,000 clients.

`python -m benchmarks.engine.growth` takes a quarter of an hour and writes results/growth.md, .json and .png. A part
alone (`--only disk`) is merged into the numbers that are there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any
from unittest import mock

import matplotlib
import numpy as np
import psutil
import ray
from matplotlib.figure import Figure

from benchmarks import study
from benchmarks.engine import figure, toys
from benchmarks.engine.runs import ray_here
from fedray.core.algorithm import Parts
from fedray.core.metrics import Metrics
from fedray.core.types import Client, Evaluation, Received, Update
from fedray.engine.cluster.resources import share
from fedray.engine.driver import driver as drivers
from fedray.engine.driver import session
from fedray.engine.driver.driver import Assignment
from fedray.engine.jobs.work import Program
from fedray.engine.round.plan import Plan
from fedray.engine.settings import CohortSettings, EngineSettings, EvaluationSettings
from fedray.runs.client_states import ClientStore
from fedray.runs.folder import ClientRecord, Progress, RunFolder
from fedray.runs.standing import ATTACH
from fedray.storage.opening import open_storage

Json = dict[str, Any]
COMMAND = "python -m benchmarks.engine.growth"
COLOURS = {"before": "#b0b0b0", "now": "#1b6ca8"}
WHERE = {"disk": "on a disk", "bucket": "in a bucket"}
PARTS = ("disk", "bucket", "seen")
WRITTEN = {"bytes", "pages"}  # counted from the start of a driver
POINTS = 50  # in which the rounds of a run are summed up
SHOWN = {  # what is measured -> title, factor
    "seconds": ("Milliseconds a round", 1e3),
    "bytes": ("Kilobytes written a round", 1e-3),
    "pages": ("Kilobytes of pages a round", 1e-3),
    "memory": ("Memory of the driver, MB (RSS)", 1e-6),
    "files": ("Open files of the driver", 1.0),
}


INTRODUCTION = """A toy: 10,000 clients, 16 of them a round in two lanes, with a state each, a checkpoint a round, a
dev score a round that is best in round 3, and one client in fifty that fails. Two actors. Bytes on a disk are those
that the driver writes; bytes of a bucket are those of all requests. Pages are those that the driver changes, the file
system's own included (`write_bytes` of Linux): they rise until all clients have states, since a round removes the old
states of its clients from other folders, and each file that is synced writes pages anew. *before* is fedray as of
commit 9250eec, which synced no files."""
SEEN = """Rounds of 100 clients, after a checkpoint with the records of so many clients that have taken part."""


class Scored(toys.Population):
    """Clients without data, and a dev set."""

    def splits(self) -> list[str]:
        return ["dev"]

    def evaluation(self, split: str, index: int = 0, count: int = 1) -> None:
        return None


class Growing(toys.Toy):
    """A toy whose clients have states, of whom one in fifty fails, and which is best on dev in its third round."""

    best = ("dev/distance", "min")

    def client_update(self, client: Client, received: Received) -> Update:
        if client.seed % 50 == 0:
            raise ValueError(f"client {client.id} has no luck in round {received.round}")
        state = {"rounds": 1 + (client.state["rounds"] if client.state is not None else 0)}
        return replace(super().client_update(client, received), state=state)

    def evaluate(self, data: None, received: Received, final: bool) -> Evaluation:
        return Evaluation(Metrics(distance=(float(abs(received.round - 3)), 1)))


def assignment(place: Path | str, population: int, cohort: int, rounds: int) -> Assignment:
    """A run of the toy at a path or URI, with two actors."""
    engine = EngineSettings(actors=2, lanes=2, failures_allowed=1.0)
    algorithm = Growing(toys.ToySettings(1000), Parts(rounds=rounds))
    program = Program(algorithm, Scored(population), 0, ClientStore(open_storage(place).child("states")))
    plan = Plan(rounds, CohortSettings(size=cohort), engine, EvaluationSettings(shards=1))
    return Assignment("growth", program, {}, plan, share(engine, session.resources()), place)


def play(given: Assignment, written: Callable[[psutil.Process], Json]) -> list[Json]:
    """Play a run; what was measured after each round. `written`: what a driver has written by now, in bytes."""
    driver = drivers.start(given)
    try:
        finished, seen, over = driver.run.remote(), 0, False
        process, samples = None, list[Json]()
        while not over:
            for event in ray.get(driver.events.remote(seen, 1.0)):
                seen, over = event.number + 1, event.kind == "end"
                if event.kind != "round":
                    continue
                if process is None:
                    process = psutil.Process(json.loads(RunFolder(given.folder).read_text(ATTACH))["pid"])
                row = event.data["row"]
                samples.append(
                    {
                        "round": row["round"],
                        "seconds": row["time/round_s"] + (row["time/checkpoint_s"] or 0) + (row["time/events_s"] or 0),
                        **written(process),
                        "memory": process.memory_info().rss,
                        "files": process.num_fds(),
                    }
                )
        ray.get(finished)  # raises the error of a failed run
        return samples
    finally:
        session.end(driver, given.folder)


def on_disk(process: psutil.Process) -> Json:
    written = process.io_counters()
    return {"bytes": written.write_chars, "pages": written.write_bytes}


@contextmanager
def bucket() -> Iterator[tuple[str, Callable[[psutil.Process], Json]]]:
    """The URI of a folder in a bucket of this machine, and the bytes that were sent there."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication as App

    from tests import stores

    sent, serve = [0], App.__call__

    def counting(app: Any, environ: Mapping[str, Any], start: Any) -> Any:
        sent[0] += int(environ.get("HTTP_X_AMZ_DECODED_CONTENT_LENGTH") or environ.get("CONTENT_LENGTH") or 0)
        return serve(app, environ, start)

    with stores.s3() as new, mock.patch.object(App, "__call__", counting):
        yield new(), lambda process: {"bytes": sent[0]}


def after(seen: int, cohort: int, rounds: int, folder: Path) -> list[Json]:
    """Some rounds of a run in which `seen` clients have taken part before."""
    given = assignment(folder, max(2 * seen, 1000), cohort, 10 + rounds)
    state = given.program.algorithm.init(None)  # type: ignore[arg-type]
    store, random = RunFolder(folder), np.random.default_rng(0)
    store.save(Progress(state))
    reports = random.random((seen, 2)).tolist()
    clients = {
        name: ClientRecord(None, 3, 0, 9, {"examples": float(round(20 * examples)), "loss": loss})
        for name, (examples, loss) in zip(toys.Ids(seen)[:], reports, strict=True)
    }
    store.save(Progress(state, 10, clients))
    del clients
    return play(given, on_disk)


def summary(samples: Sequence[Json]) -> Json:
    """The samples in POINTS pieces: medians of seconds, means of bytes a round, last memory and files."""
    size = max(1, len(samples) // POINTS)
    found: Json = {"rounds": len(samples), "at": [], **{name: [] for name in SHOWN if name in samples[0]}}
    for start in range(1, len(samples) - size + 1, size):
        piece, before = samples[start : start + size], samples[start - 1]
        found["at"].append(piece[-1]["round"])
        found["seconds"].append(median(one["seconds"] for one in piece))
        for name in WRITTEN & found.keys():
            found[name].append((piece[-1][name] - before[name]) / len(piece))
        found["memory"].append(piece[-1]["memory"])
        found["files"].append(piece[-1]["files"])
    return found


def measure(part: str, options: argparse.Namespace, folder: Path) -> Json:
    """The numbers of a part."""
    if part == "disk":
        with ray_here():
            return summary(play(assignment(folder / "run", 10_000, 16, options.rounds), on_disk))
    if part == "bucket":
        with bucket() as (place, sent), ray_here():  # in this order: Ray's processes get the credentials
            return summary(play(assignment(place, 10_000, 16, options.bucket_rounds), sent))
    found = {}
    for seen in options.seen:
        with ray_here():
            samples = after(seen, 100, options.seen_rounds, folder / f"after-{seen}")
        found[str(seen)] = {
            "seconds": median(one["seconds"] for one in samples[1:]),
            **{name: (samples[-1][name] - samples[0][name]) / (len(samples) - 1) for name in WRITTEN},
            "memory": samples[-1]["memory"],
            "files": samples[-1]["files"],
        }
    return found


def draw(numbers: Json, path: Path) -> None:
    """A row of panels for the disk and one for the bucket: a line for each version."""
    parts = [part for part in ("disk", "bucket") if any(part in found for found in numbers.values())]
    with matplotlib.rc_context(figure.STYLE):
        drawing = Figure(figsize=(16, 3.0 * len(parts)), layout="constrained")
        for row, part in enumerate(parts):
            for column, (name, (title, factor)) in enumerate(SHOWN.items(), 1):
                if not any(name in found.get(part, {}) for found in numbers.values()):
                    continue
                axes = drawing.add_subplot(len(parts), len(SHOWN), row * len(SHOWN) + column)
                for label, found in numbers.items():
                    if name in found.get(part, {}):
                        line = found[part]
                        axes.plot(line["at"], [factor * value for value in line[name]], COLOURS[label], label=label)
                axes.set_title(title)
                axes.set_xlabel(f"rounds, {WHERE[part]}")
                axes.set_ylim(bottom=0, top=1.15 * axes.get_ylim()[1])
                if not row and column == 1:
                    axes.legend(frameon=False)
        drawing.savefig(path, dpi=110)


def page(numbers: Json) -> str:
    """The tables: the first and the last tenth of each run, and rounds after few and after many clients."""
    lines = ["# What grows with a run", "", INTRODUCTION, "", "![Panels for a disk and for a bucket](growth.png)"]
    for part in ("disk", "bucket"):
        rows = [
            {"version": label, "rounds": f"{found[part]['rounds']:,}"} | _tenths(found[part])
            for label, found in numbers.items()
            if part in found
        ]
        if rows:
            lines += ["", f"## {WHERE[part].capitalize()}", "", "First and last tenth of the rounds.", ""]
            lines += [study.table(rows)]
    rows = [
        {"version": label, "clients before": f"{int(seen):,}"}
        | {title: f"{factor * one[name]:,.0f}" for name, (title, factor) in SHOWN.items() if name in one}
        for label, found in numbers.items()
        for seen, one in found.get("seen", {}).items()
    ]
    if rows:
        lines += ["", "## After many clients", "", SEEN, "", study.table(rows)]
    return "\n".join(lines)


def _tenths(found: Json) -> dict[str, str]:
    tenth = max(1, len(found["at"]) // 10)
    return {
        title: f"{factor * mean(found[name][:tenth]):,.0f} → {factor * mean(found[name][-tenth:]):,.0f}"
        for name, (title, factor) in SHOWN.items()
        if name in found
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to measure")
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--bucket-rounds", type=int, default=600)
    parser.add_argument("--seen", type=int, nargs="+", default=[100, 10_000, 100_000])
    parser.add_argument("--seen-rounds", type=int, default=50)
    parser.add_argument("--label", choices=COLOURS, default="now", help="before: of the version that is compared")
    options = parser.parse_args(arguments)
    file = study.RESULTS / "growth.json"
    there = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    numbers: Json = {label: there.get(label, {}) for label in COLOURS}
    session.ship(sys.modules[Growing.__module__])
    for part in options.only:
        with tempfile.TemporaryDirectory(prefix="fedray-") as folder:
            numbers[options.label][part] = measure(part, options, Path(folder))
        shown = {label: found for label, found in numbers.items() if found}
        study.write("growth", page(shown), shown, COMMAND, [0])
        draw(shown, study.RESULTS / "growth.png")


if __name__ == "__main__":
    main()
