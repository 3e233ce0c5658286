"""FedMem's variants: what each does to the word error rate, the size of a memory and the speed of decoding.

    python -m benchmarks.studies.fedmem_variants [--only frames states] [--seed 0]

The four embedded dialects with the server's model, in this process on one thread. Each client builds its memory and
chooses k, lambda, T and the radius on its dev; WER is that of all clients' test sets together, at the chosen settings.
Speed is the CPU time of decoding one client's test with its memory at the settings that it chose, and without, by
turns.
"""

from __future__ import annotations

import argparse
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import Any

import numpy as np
import torch

from benchmarks import study
from benchmarks.studies.fedmem_memory import BATCH, by_turns
from fedray import experiment
from fedray.core.parallel import serial
from fedray.core.types import Received
from fedray.data.text.error_rates import edit_counts
from fedray.engine import work
from fedray.report.bootstrap import Counts, change, rate
from fedray.runs.folder import RunFolder
from fedray.training import speech_to_text
from fedray.training.knn.building import build_memory
from fedray.training.knn.decoding import Retrieval, SearchWithMemory
from fedray.training.knn.selection import best_by_search, setting_costs

WAYS = {"frames": "configs/fedmem/embedded.yaml", "states": "configs/fedmem/ablations/attention.yaml"}
TIMED = {"frames": 160, "states": 24}  # utterances
RADII = [3.0, 10.0, 30.0, 100.0, 300.0, 1e9]  # the last: the same lambda at any distance


@dataclass(frozen=True)
class Variant:
    """What differs from the paper's memory."""

    memory: Mapping[str, Any] = field(default_factory=dict)
    radii: tuple[float | None, ...] = (None,)
    skip_above: float = 1.0
    searched: int = 0


FIRST = "as in the paper"
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


class Federation:
    """The clients, the server's model and its search."""

    def __init__(self, config: str, seed: int) -> None:
        checked, source = experiment.load(study.ROOT / config, [f"seed={seed}", f"data.seed={seed}"])
        self.data, _ = experiment.build_data(checked, source, serial)
        program = experiment.build_program(checked, self.data, RunFolder(tempfile.mkdtemp()), 0)
        self.algorithm: Any = program.algorithm
        params = work.init(program, lambda: work.server(program, None, "cpu", {}, lambda *_: None))[0].params
        assets = self.algorithm.assets(self.data)
        self.task, self.received = self.algorithm.task, Received(params, {}, 0, assets)
        self.search = list(self.algorithm.searches(assets).values())[-1]
        self.grid = self.algorithm.settings.retrievals()

    def play(self, variant: Variant, utterances: int) -> dict[str, Any]:
        """Pairs, the chosen settings and errors by speaker of each client; speed of the first one."""
        found: dict[str, Any] = {"pairs": [], "chosen": [], "counts": {}}
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
            found["counts"] |= self.errors(test, spoken, name)
            if "slower" not in found:
                timed = test.take(np.arange(min(utterances, len(test))))
                found["alone"], found["with_memory"], found["slower"] = by_turns(
                    lambda data=timed: self.task.transcribe(params, data, [self.search], "cpu"),
                    lambda data=timed, spoken=spoken: self.task.transcribe(params, data, [spoken], "cpu"),
                )
        return found

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

    def alone(self) -> Counts:
        """Errors without a memory."""
        found: dict[str, tuple[int, ...]] = {}
        for name in self.data.client_ids():
            found |= self.errors(self.data.client_part(name, "test"), self.search, name)
        return found


def page(alone: Counts, found: Mapping[str, Mapping[str, Any]]) -> str:
    first = found[FIRST]
    rows = [{"memory": "none", "WER": str(rate([alone])), "change": "", "pairs": "", "as fast": "", "chosen": ""}]
    rows += [
        {
            "memory": name,
            "WER": str(rate([one["counts"]])),
            "change": str(change([first["counts"]], [one["counts"]], "points")) if one is not first else "",
            "pairs": f"{mean(one['pairs']):,.0f}",
            "as fast": f"{100 / one['slower']:.1f} %",
            "chosen": "; ".join(dict.fromkeys(one["chosen"])),
        }
        for name, one in found.items()
    ]
    return study.table(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    speech_to_text.EVALUATION_BATCH = BATCH
    for way in chosen.only:
        federation = Federation(WAYS[way], chosen.seed)
        alone, found = federation.alone(), {}
        for name in dict.fromkeys([FIRST, *chosen.variants]):
            variant = VARIANTS[name]
            if variant.searched and way == "frames":
                continue  # whose settings are chosen by the search itself
            found[name] = federation.play(variant, TIMED[way])
            print(way, name, {key: value for key, value in found[name].items() if key != "counts"}, flush=True)
            print(rate([found[name]["counts"]]), flush=True)
            text = f"# FedMem's variants: {way}\n\nFour dialects, the server's model. 95 % intervals over speakers; "
            text += "changes are from the paper's memory.\nPairs are a client's, mean of four. Speed is relative to no "
            text += f"memory.\n\n{page(alone, found)}"
            command = f"python -m benchmarks.studies.fedmem_variants --only {way}"
            if chosen.variants != list(VARIANTS):
                command += f" --variants {shlex.join(chosen.variants)}"
            study.write(f"fedmem_variants_{way}", text, {"alone": alone, "found": found}, command, [chosen.seed])


if __name__ == "__main__":
    main()
