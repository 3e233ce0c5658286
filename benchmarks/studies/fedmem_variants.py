"""FedMem's variants: what each does to the word error rate, the size of a memory and the speed of decoding.

    python -m benchmarks.studies.fedmem_variants [--only frames states states_alone] [--seeds 0 1 2] [--arms radius]
                                                 [--runs DIR]

The four embedded dialects with the server's model, in this process on one thread. Each client builds its memory and
chooses k, lambda, T and the radius on its dev; WER is that of all clients' test sets together, at the chosen settings;
next to it is the plain mean over the clients. Speed is the CPU time of decoding one client's test in turns with its
memory, at the settings that it chose, and without. A seed draws new dialects. States are keys in a beam search by
decoder and CTC, or by the decoder alone. Writes benchmarks/results/fedmem_variants_<way>.md and .json. The same command
resumes; finished arms are kept, and arms whose folders are gone are taken from the earlier page.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

from benchmarks import study
from benchmarks.studies.fedmem_memory import BATCH, by_turns
from fedray import experiment
from fedray.config.schema import plain
from fedray.config.source import Source
from fedray.core.parallel import serial
from fedray.core.types import Received
from fedray.data.text.error_rates import edit_counts
from fedray.engine.jobs import work
from fedray.report.bootstrap import Counts, change, rate
from fedray.runs.folder import RunFolder
from fedray.storage.files import write_atomically
from fedray.training.knn.building import build_memory
from fedray.training.knn.decoding import Retrieval, SearchWithMemory
from fedray.training.knn.selection import best_by_search, setting_costs
from fedray.training.speech_to_text import SpeechToText

WAYS = {
    "frames": "configs/fedmem/embedded.yaml",
    "states": "configs/fedmem/ablations/attention.yaml",
    "states_alone": "configs/fedmem/ablations/attention_alone.yaml",
}
KEYS = {
    "frames": "frames as keys, greedy search",
    "states": "decoder states as keys, beam search by decoder and CTC",
    "states_alone": "decoder states as keys, beam search by the decoder alone",
}
TIMED = {"frames": 160, "states": 24, "states_alone": 24}  # utterances
RADII = [3.0, 10.0, 30.0, 100.0, 300.0, 1e9]  # the last one: the same lambda at any distance


@dataclass(frozen=True)
class Variant:
    """The differences from the paper's memory."""

    memory: Mapping[str, Any] = field(default_factory=dict)
    radii: tuple[float | None, ...] = (None,)
    skip_above: float = 1.0
    searched: int = 0


NONE, FIRST = "none", "as in the paper"
VARIANTS = {
    FIRST: Variant(),
    "8 lists": Variant({"fewest_probes": 8}),
    "prune_above 0.9": Variant({"prune_above": 0.9}),
    "prune_above 0.99": Variant({"prune_above": 0.99}),
    "skip_above 0.99": Variant(skip_above=0.99),
    "8 lists, skip_above 0.99": Variant({"fewest_probes": 8}, skip_above=0.99),
    "skip_above 0.9": Variant(skip_above=0.9),
    "both 0.9": Variant({"prune_above": 0.9}, skip_above=0.9),
    "both 0.99": Variant({"prune_above": 0.99}, skip_above=0.99),
    "radius": Variant(radii=tuple(RADII)),
    "radius, both 0.9": Variant({"prune_above": 0.9}, tuple(RADII), 0.9),
    "searched 4": Variant(searched=4),
    "searched 9": Variant(searched=9),
    "searched 9, radius, both 0.99": Variant({"prune_above": 0.99}, tuple(RADII), 0.99, 9),
}


def loaded(config: str, seed: int) -> tuple[experiment.Config, Source]:
    return experiment.load(study.ROOT / config, [f"seed={seed}", f"data.seed={seed}"])


class Federation:
    """The clients, the server's model and its search."""

    def __init__(self, config: str, seed: int) -> None:
        checked, source = loaded(config, seed)
        self.data, _ = experiment.build_data(checked, source, serial)
        program = experiment.build_program(checked, self.data, RunFolder(tempfile.mkdtemp()), 0)
        self.algorithm: Any = program.algorithm
        params = work.init(program, lambda: work.server(program, None, "cpu", {}, lambda *_: None))[0].params
        assets = self.algorithm.assets(self.data)
        self.task, self.received = self.algorithm.task, Received(params, {}, 0, assets)
        self.search = list(self.algorithm.searches(assets).values())[-1]
        self.grid = self.algorithm.settings.retrievals()

    def play(self, variant: Variant, utterances: int) -> dict[str, Any]:
        """Pairs, chosen settings and errors by speaker of each client; speed for the first client."""
        found: dict[str, Any] = {"pairs": [], "chosen": []}
        counts: dict[str, tuple[int, ...]] = {}
        settings = replace(self.algorithm.settings.memory, **variant.memory)
        grid = [
            replace(one, radius=radius, skip_above=variant.skip_above) for one in self.grid for radius in variant.radii
        ]
        params = self.received.params
        for name in self.data.client_ids():
            memory = build_memory(self.task, params, self.data.load(name), settings, "cpu").memory
            chosen = self.chosen(self.data.client_part(name, "dev"), memory, grid, variant.searched)
            spoken = SearchWithMemory(self.search, memory, chosen)
            test = self.data.client_part(name, "test")
            found["pairs"].append(len(memory))
            found["chosen"].append(str(chosen))
            counts |= self.errors(test, spoken, name)
            if "slower" not in found:
                timed = test.take(np.arange(min(utterances, len(test))))
                found["alone"], found["with_memory"], found["slower"] = by_turns(
                    lambda data=timed: self.task.transcribe(params, data, [self.search], "cpu"),
                    lambda data=timed, spoken=spoken: self.task.transcribe(params, data, [spoken], "cpu"),
                )
        return found | {"counts": study.packed(counts)}

    def chosen(self, dev: Any, memory: Any, grid: list[Retrieval], searched: int) -> Retrieval:
        costs = setting_costs(self.task, self.received.params, dev, memory, grid, "cpu")
        if not searched:
            return grid[int(costs.argmin())]
        return best_by_search(self.task, self.received, dev, memory, grid, costs, searched, self.search)

    def errors(self, data: Any, search: Any, client: str) -> Counts:
        """Words and errors by speaker."""
        (found,) = self.task.transcribe(self.received.params, data, [search], "cpu")
        counts = edit_counts(self.task.scored(data.texts), self.task.scored(one.text for one in found))
        by_speaker: dict[str, tuple[int, int]] = {}
        for speaker, count in zip(data.speakers, counts, strict=True):
            words, errors = by_speaker.get(f"{client} {speaker}", (0, 0))
            by_speaker[f"{client} {speaker}"] = (words + count.length, errors + count.errors)
        return by_speaker

    def alone(self) -> dict[str, Any]:
        """Errors without a memory."""
        found: dict[str, tuple[int, ...]] = {}
        for name in self.data.client_ids():
            found |= self.errors(self.data.client_part(name, "test"), self.search, name)
        return {"counts": study.packed(found)}


def page(found: study.Found) -> str:
    rows = []
    for name, runs in found.items():
        row = {"memory": name, "WER": str(rate(counts(runs))), "mean over clients": f"{by_client(runs):.1f}"}
        for title, other in (("change from none", NONE), ("change from the paper's", FIRST)):
            before, after = study.common(found.get(other, []), runs)
            asked = before and name not in (NONE, other)
            row[title] = str(change(counts(before), counts(after), "points")) if asked else ""
        if name != NONE:
            row["pairs"] = f"{mean(pairs for run in runs for pairs in run['pairs']):,.0f}"
            row["speed"] = ", ".join(f"{100 / run['slower']:.1f} %" for run in runs)
            row["settings chosen"] = "; ".join(dict.fromkeys(one for run in runs for one in run["chosen"]))
        rows.append(row | {"seeds": ", ".join(str(run["seed"]) for run in runs)})
    return study.table([{column: row.get(column, "") for column in rows[-1]} for row in rows])


def counts(runs: Sequence[Mapping[str, Any]]) -> list[Counts]:
    """Words and errors by speaker of each run."""
    return [study.unpacked(run["counts"]) for run in runs]


def by_client(runs: Sequence[Mapping[str, Any]]) -> float:
    """The paper's Avg: the mean of the clients' WER in percent, then the mean over the seeds."""
    means = []
    for run in counts(runs):
        clients: dict[str, list[tuple[int, ...]]] = {}
        for unit, found in run.items():
            clients.setdefault(unit.partition(" ")[0], []).append(found)
        means.append(mean(sum(wrong for _, wrong in one) / sum(words for words, _ in one) for one in clients.values()))
    return 100 * mean(means)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedmem-variants")
    parser.add_argument("--only", nargs="+", choices=list(WAYS), default=list(WAYS))
    chosen = study.chosen(parser, [NONE, *VARIANTS])
    torch.set_num_threads(1)
    SpeechToText.evaluation_batch = BATCH
    for way in chosen.only:
        name, arms = f"fedmem_variants_{way}", arms_of(way)
        wanted = argparse.Namespace(seeds=chosen.seeds, arms=[*chosen.arms, NONE, FIRST])
        found = study.gathered(
            study.page_before(name).get("found", {}), arms, wanted,
            lambda arm, seed, way=way: chosen.runs / way / f"seed-{seed}" / study.folder_name(arm),
            lambda arm, seed, to, way=way: kept(to, way, arm, seed),
        )  # fmt: skip
        text = f"# FedMem's variants: {KEYS[way]}\n\nFour dialects, decoded with the server's model. 95 % intervals "
        text += "are over speakers. Pairs are the mean over clients.\nSpeed is relative to decoding without a memory, "
        text += f"one value per seed.\n\n{page(found)}"
        command = study.command(parser, chosen, only=[way], arms=study.on_page(arms, found))
        study.write(name, text, {"found": found}, command, study.seeds(found))
        print(text)


def arms_of(way: str) -> list[str]:
    """No memory, and each variant of it. For frames the search itself always chooses the settings."""
    return [NONE, *(name for name, variant in VARIANTS.items() if way != "frames" or not variant.searched)]


def play(way: str, arm: str, seed: int) -> dict[str, Any]:
    """The errors of an arm; with a memory also its pairs, its settings and its speed."""
    here = federation(way, seed)
    return {"seed": seed, **(here.alone() if arm == NONE else here.play(VARIANTS[arm], TIMED[way]))}


@functools.lru_cache(1)
def federation(way: str, seed: int) -> Federation:
    return Federation(WAYS[way], seed)


def kept(place: Path, way: str, arm: str, seed: int) -> dict[str, Any]:
    """The result of `play`, from its file in the folder `place` if it is there. Ends the program if settings differ."""
    file = place / "found.json"
    settings = {"config": plain(loaded(WAYS[way], seed)[0]), "variant": repr(VARIANTS.get(arm)), "timed": TIMED[way]}
    if file.exists():
        before = json.loads(file.read_text(encoding="utf-8"))
        if before.pop("settings") != json.loads(json.dumps(settings)):
            sys.exit(f"{place} holds {arm} with other settings: move it away")
        return dict(before)
    found = play(way, arm, seed)
    place.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"settings": settings, **found}, indent=1)
    write_atomically(file, lambda path: path.write_text(text, encoding="utf-8"))
    return found


if __name__ == "__main__":
    main()
