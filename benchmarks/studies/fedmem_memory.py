"""FedMem's memory: decoding speed, word error rate by lists searched, a million keys, and 135 settings against one.

    python -m benchmarks.studies.fedmem_memory [--keys 1000000]

Runs in this process on one thread. Decoding with and without memory is timed in turns, 16 utterances a batch, on the
embedded dialects: greedy CTC with frames as keys, and SpeechBrain's beam search with decoder states as keys. Each of
the four clients decodes utterances of its own test at the k, lambda and T that it chose on its dev. WER is the mean
over the four test sets; WER by lists is at one setting. Seed models come from the cache or are trained first. The
million keys are drawn around a thousand centres.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import mean, median
from typing import Any

import numpy as np
import torch

from benchmarks import study
from fedray import experiment
from fedray.core.parallel import serial
from fedray.core.types import Received, Vector
from fedray.engine.jobs import work
from fedray.models.memory import Memory, MemorySettings
from fedray.runs.folder import RunFolder
from fedray.training.decoding.search import Search
from fedray.training.knn.building import build_memory
from fedray.training.knn.decoding import Retrieval, SearchWithMemory, search_scores
from fedray.training.knn.selection import setting_costs
from fedray.training.speech_to_text import SpeechToText

BATCH, REPEATS = 16, 9
UTTERANCES = 48  # of each client
LOUD, PROBES = Retrieval(8, 0.6, 10.0), (4, 8, 16, 32)  # a weight at which mistakes show; numbers of lists searched
GRID = [
    Retrieval(k, share / 10, t) for k in (4, 8, 16) for share in range(1, 10) for t in (10.0, 20.0, 50.0, 100.0, 200.0)
]
WAYS = {
    "frames, greedy CTC": "configs/fedmem/embedded.yaml",
    "states, beam of 5": "configs/fedmem/ablations/attention.yaml",
}
DIMENSIONS, CENTRES, QUERIES = 64, 1000, 10_000


def seconds(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def by_turns(one: Callable[[], Any], other: Callable[[], Any]) -> tuple[float, float, float]:
    """CPU seconds of `one` and of `other`, and the ratio other / one: medians over turns."""
    turns = [(seconds(one), seconds(other)) for _ in range(REPEATS)]
    return (
        median(turn[0] for turn in turns),
        median(turn[1] for turn in turns),
        median(turn[1] / turn[0] for turn in turns),
    )


def decoding(config: str) -> dict[str, Any]:
    checked, source = experiment.load(study.ROOT / config)
    data, _ = experiment.build_data(checked, source, serial)
    program = experiment.build_program(checked, data, RunFolder(tempfile.mkdtemp()), 0)
    algorithm: Any = program.algorithm
    params = work.init(program, lambda: work.server(program, None, "cpu", {}, lambda *_: None))[0].params
    settings, task, assets = algorithm.settings.memory, algorithm.task, algorithm.assets(data)
    SpeechToText.evaluation_batch = BATCH
    found: dict[str, Any] = {}
    memories: dict[str, Memory] = {}
    found["build"] = seconds(lambda: memories.update(build(task, params, data, settings))) / len(data.client_ids())
    search = next(iter(algorithm.searches(assets).values()))
    grid, decoders = algorithm.settings.retrievals(), []
    for name, memory in memories.items():
        costs = setting_costs(task, params, data.client_part(name, "dev"), memory, grid, "cpu")
        decoders.append(SearchWithMemory(search, memory, grid[int(costs.argmin())]))
    found["chosen"] = [str(one.retrieval) for one in decoders]
    tests = [data.client_part(name, "test") for name in memories]
    parts = [test.take(np.arange(min(UTTERANCES, len(test)))) for test in tests]
    found["alone"], found["with_memory"], found["slower"] = by_turns(
        lambda: [task.transcribe(params, part, [search], "cpu") for part in parts],
        lambda: [
            task.transcribe(params, *each, "cpu") for each in zip(parts, ([one] for one in decoders), strict=True)
        ],
    )
    received = Received(params, {}, 0, assets)
    for words, tried in (("wer_alone", [search] * len(tests)), ("wer_with_memory", decoders)):
        found[words] = mean(wer(task, received, *each) for each in zip(tests, tried, strict=True))
    name, memory = next(iter(memories.items()))
    dev = data.client_part(name, "dev")
    found["one"], found["all"], found["settings"] = by_turns(
        lambda: setting_costs(task, params, dev, memory, GRID[:1], "cpu"),
        lambda: setting_costs(task, params, dev, memory, GRID, "cpu"),
    )
    found["lists"] = f"{memory.index.nprobe} of {memory.index.nlist}"
    found["wer"] = by_lists(task, received, data, memories, search)
    found["pairs"] = mean(len(memory) for memory in memories.values())
    return found | {"utterances": sum(map(len, parts)), "kind": type(memory.index).__name__}


def build(task: Any, params: Vector, data: Any, settings: MemorySettings) -> dict[str, Memory]:
    """The memory of each client."""
    return {name: build_memory(task, params, data.load(name), settings, "cpu").memory for name in data.client_ids()}


def by_lists(task: Any, received: Received, data: Any, memories: dict[str, Memory], search: Search) -> dict[str, float]:
    """WER in percent, mean over the clients: without memory, with exact search, and by number of lists searched.

    Leaves the memories at the last number of lists.
    """
    found: dict[str, list[float]] = {}
    for name, listed in memories.items():
        mine, test = data.load(name), data.client_part(name, "test")
        everything = replace(listed.settings, exact_below=sys.maxsize)
        exact = build_memory(task, received.params, mine, everything, "cpu").memory
        for words, tried in (("alone", search), ("exact", SearchWithMemory(search, exact, LOUD))):
            found.setdefault(words, []).append(wer(task, received, test, tried))
        spoken = SearchWithMemory(search, listed, LOUD)
        for probes in PROBES:
            listed.index.nprobe = probes
            found.setdefault(f"{probes} lists", []).append(wer(task, received, test, spoken))
    return {words: mean(values) for words, values in found.items()}


def wer(task: Any, received: Received, data: Any, search: Search) -> float:
    """The WER of a search, in percent."""
    return float(search_scores(task, received, data, {"wer": search}, final=False).metrics["wer"])


def large(keys: int) -> dict[str, float]:
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((CENTRES, DIMENSIONS)).astype(np.float32)
    drawn = centres[generator.integers(CENTRES, size=keys)] + 0.5 * generator.standard_normal(
        (keys, DIMENSIONS), np.float32
    )
    tokens = generator.integers(30, size=keys)
    start = time.process_time()
    memory = Memory(drawn, tokens, "model", MemorySettings())
    built = time.process_time() - start
    queries = drawn[generator.choice(keys, min(QUERIES, keys), replace=False)]
    queries += 0.1 * generator.standard_normal(queries.shape, np.float32)
    spent = seconds(lambda: memory.search(queries, LOUD.k))
    exact = Memory(drawn, tokens, "model", MemorySettings(exact_below=keys + 1))
    slow = seconds(lambda: exact.search(queries[:200], LOUD.k)) / 200
    size = sum(value.nbytes for value in memory.state().values() if not isinstance(value, str))
    return {"build": built, "bytes": size, "a second": len(queries) / spent, "exactly": 1 / slow}


def main() -> None:
    parser = argparse.ArgumentParser(
        f"python -m {__spec__.name}", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=1_000_000)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    ways = {words: decoding(config) for words, config in WAYS.items()}
    rows = [
        {"keys": words, "pairs": f"{one['pairs']:,.0f}", "index": one["kind"], "build (CPU s)": f"{one['build']:.1f}"}
        | {"utterances per CPU second, without memory": one["utterances"] / one["alone"]}
        | {"with memory": one["utterances"] / one["with_memory"]}
        | {"lists searched": one["lists"], "relative speed": f"{100 / one['slower']:.1f} %"}
        | {"WER without memory": f"{one['wer_alone']:.1f}", "WER with memory": f"{one['wer_with_memory']:.1f}"}
        | {"time of 135 settings against one": f"{one['settings']:.1f} x", "settings chosen": "; ".join(one["chosen"])}
        for words, one in ways.items()
    ]
    by_number = [
        {"keys": words} | {column: f"{value:.1f}" for column, value in one["wer"].items()}
        for words, one in ways.items()
    ]
    million = large(chosen.keys)
    text = "# FedMem's memory\n\nFour dialects. Each client decodes with its own memory, at the settings that it "
    text += "chose on its dev, in batches of 16\nutterances on one thread. Pairs and the CPU seconds of the build are "
    text += "means over clients.\n\n"
    text += f"{study.table(rows)}\n\n"
    text += f"Test WER in percent, mean over the four dialects at lambda {LOUD.share:g}, "
    text += "by number of lists searched:\n\n"
    text += f"{study.table(by_number)}\n\n"
    text += f"{chosen.keys:,} keys of {DIMENSIONS} numbers: built in {million['build']:.0f} CPU seconds, "
    text += f"{million['bytes'] / 1e6:.0f} MB, {million['a second']:,.0f} queries per CPU second "
    text += f"(exact search: {million['exactly']:,.0f})."
    study.write("fedmem_memory", text, {"decoding": ways, "large": million}, study.command(parser, chosen), [0])
    print(text)


if __name__ == "__main__":
    main()
