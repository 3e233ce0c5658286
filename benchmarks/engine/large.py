"""Clients of larger models against their floor: a CRNN of 2.6M parameters, a Conformer of 12M, Whisper tiny with 38M.

    python -m benchmarks.engine.large [--models own conformer whisper] [--turns 9]

Whisper needs FEDRAY_SPEECH, the folder that holds whisper-tiny.en/. A client trains in fedray's lane (its data loaded,
the broadcast loaded, its steps, difference, checks, sum), and the same number of steps runs in bare torch, SpeechBrain
and transformers: the weights loaded, the steps, the sum. One process, one thread; both sides take turns. The CRNN and
Whisper are the same modules on both sides, the Conformer is SpeechBrain's on one side and fedray's on the other.
"""

from __future__ import annotations

import argparse
import string
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks import study
from benchmarks.engine import lane_profile, runs, stores, workloads
from benchmarks.engine.toys import Own
from benchmarks.engine.workloads import KEYWORDS, POOL, LargeConformer, Workload
from fedray import experiment
from fedray.data.features.dataset import Utterances, collate
from fedray.data.federation.speech_data import SpeechData
from fedray.engine.jobs.work import Program
from fedray.models import MODELS
from fedray.runs.client_states import ClientStore
from fedray.training.task import targets_at

COMMAND = "python -m benchmarks.engine.large"
MODELS_MEASURED = ("own", "conformer", "whisper")
CLIENTS = 3  # of a lane
BATCH, UTTERANCES, WINDOW = 6, 10, 6.0  # of Whisper's clients; the window in seconds
CONFORMER = LargeConformer("Conformer", "conformer", 40, 100, 28, 12, epochs=1, lr=0.01)


@dataclass(frozen=True)
class Sides:
    """A lane's clients on both sides, by the number of the lane."""

    title: str
    parameters: int
    fedray: Callable[[int], object]
    bare: Callable[[int], object]


def in_fedray(program: Program) -> Callable[[int], object]:
    place, broadcast = lane_profile.workplace(program)

    def play(number: int) -> None:
        result = lane_profile.lane(program, CLIENTS, number).run(place, broadcast, broadcast)
        assert len(result.reports) == CLIENTS, result.failures

    return play


def in_torch(model: nn.Module, train: Callable[[nn.Module, int], float]) -> Callable[[int], object]:
    """`train(model, client)` trains a client, and returns its loss."""
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def play(number: int) -> None:
        total = {name: torch.zeros_like(tensor) for name, tensor in start.items()}
        for client in range(number * CLIENTS, (number + 1) * CLIENTS):
            model.load_state_dict(start)
            assert np.isfinite(train(model, client))
            for name, tensor in model.state_dict().items():
                total[name].add_(tensor, alpha=2)

    return play


def of_workload(workload: Workload, folder: Path) -> Sides:
    clips = stores.write(folder, workload)
    with mock.patch.dict(MODELS, own=Own):
        _, program = runs.build(folder, clips, workload, 1, 1)

    def train(model: nn.Module, client: int) -> float:
        return workloads.train(workload, model, workload.data(client % workload.clients))

    bare = in_torch(workload.net(), train)
    return Sides(workload.title, program.algorithm.task.layout.size, in_fedray(program), bare)


def of_whisper(folder: Path) -> Sides:
    checkpoint = study.speech("whisper-tiny.en")
    rows = {f"client-{number:02d}": np.arange(UTTERANCES) + UTTERANCES * number for number in range(60)}
    given: dict[str, Any] = {
        "name": "whisper",
        "rounds": 1,
        "algorithm": {"kind": "fedavg", "client": {"lr": 1e-5, "batch": BATCH, "clip": 5.0}},
        "model": {"kind": "whisper", "folder": str(checkpoint), "seconds": WINDOW},
        "task": {"kind": "recognition"},
        "cohort": {"size": CLIENTS},
    }
    config, _ = experiment.load(given)
    data = SpeechData(texts(folder), rows, {}, None)
    program = Program(experiment.build_algorithm(config, data), data, 0, ClientStore(folder / "states"))
    task = program.algorithm.task
    from transformers import WhisperForConditionalGeneration

    ours = task.model()
    model = WhisperForConditionalGeneration(ours.whisper.config)
    prompt, ids = torch.tensor(ours.prompt), list(rows)

    def train(model: nn.Module, client: int) -> float:
        mine = data.load(ids[client % len(ids)])
        optimizer, total = torch.optim.SGD(model.parameters(), lr=1e-5), 0.0
        targets = task.targets(mine)
        model.train()
        for first, stop in pairwise([*range(0, len(mine), BATCH), len(mine)]):
            batch = collate(mine, np.arange(first, stop))
            heard = batch.features[:, : ours.window]
            heard = nn.functional.pad(heard, (0, 0, 0, ours.window - heard.shape[1]))
            tokens, labels = teacher_forced(prompt, targets_at(targets, np.arange(first, stop)), ours.eos)
            optimizer.zero_grad()
            logits = model(input_features=heard.transpose(1, 2), decoder_input_ids=tokens, use_cache=False).logits
            loss = cross_entropy(logits.flatten(0, 1), labels.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item()
        return total

    return Sides("Whisper tiny", task.layout.size, in_fedray(program), in_torch(model, train))


def teacher_forced(prompt: Tensor, targets: Sequence[Sequence[int]], eos: int) -> tuple[Tensor, Tensor]:
    """Decoder inputs [B, L], and what follows each of them, with -100 where nothing is learnt."""
    longest = max(map(len, targets)) + len(prompt)
    tokens, labels = torch.full((len(targets), longest), eos), torch.full((len(targets), longest), -100)
    for row, target in enumerate(targets):
        text = torch.tensor(list(target), dtype=torch.long)
        tokens[row, : len(prompt) + len(text)] = torch.cat([prompt, text])
        labels[row, len(prompt) - 1 : len(prompt) + len(text)] = torch.cat([text, torch.tensor([eos])])
    return tokens, labels


def texts(folder: Path) -> Utterances:
    """White noise in place of log-mels, and random words of five letters, two a second."""
    generator, letters = np.random.default_rng(6), np.array(list(string.ascii_lowercase))
    lengths = np.round(100 * workloads.seconds()).astype(np.int64).tolist()
    features = [generator.standard_normal((length, 80), dtype=np.float32).astype(np.float16) for length in lengths]
    words = [["".join(generator.choice(letters, 5)) for _ in range(max(1, length // 50))] for length in lengths]
    columns = {"seconds": workloads.seconds(), "text": list(map(" ".join, words))}
    assert len(features) == POOL
    return stores.store(folder / "whisper", features, columns)


def measure(sides: Sides, turns: int) -> dict[str, Any]:
    """Milliseconds a client, medians over turns, and the ratio of each turn. A first turn does not count."""
    found: dict[str, list[float]] = {"fedray": [], "bare": []}
    for turn in range(turns + 1):
        for side in ("fedray", "bare") if turn % 2 else ("bare", "fedray"):
            since = time.perf_counter()
            getattr(sides, side)(turn)
            if turn:
                found[side].append(1000 * (time.perf_counter() - since) / CLIENTS)
    ratios = [ours / floor for ours, floor in zip(found["fedray"], found["bare"], strict=True)]
    return {
        "model": sides.title,
        "parameters": sides.parameters,
        "floor, ms a client": median(found["bare"]),
        "fedray, ms a client": median(found["fedray"]),
        "ratio": median(ratios),
        "least": min(ratios),
        "largest": max(ratios),
    }


def all_sides(name: str, folder: Path) -> Sides:
    if name == "whisper":
        return of_whisper(folder)
    return of_workload(KEYWORDS["own"] if name == "own" else CONFORMER, folder)


def main(arguments: list[str] | None = None) -> None:
    form = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    form.add_argument("--models", nargs="+", choices=MODELS_MEASURED, default=list(MODELS_MEASURED))
    form.add_argument("--turns", type=int, default=9)
    given = form.parse_args(arguments)
    torch.set_num_threads(1)
    found = study.page_before("large").get("found", {})
    for name in given.models:
        with tempfile.TemporaryDirectory(prefix="fedray-bench-") as folder:
            found[name] = measure(all_sides(name, Path(folder)), given.turns)
        print(found[name], flush=True)
    shown = {"parameters": ",.0f", "floor, ms a client": ",.0f", "fedray, ms a client": ",.0f"}
    rows = [
        {key: value if key == "model" else f"{value:{shown.get(key, '.2f')}}" for key, value in row.items()}
        for row in found.values()
    ]
    text = f"# Larger models\n\n{PAGE}\n\n{study.table(rows)}"
    print(text)
    study.write("large", text, {"found": found}, COMMAND, (0,))


PAGE = """Milliseconds of a client in fedray's lane, from its data to the sum, and of the same steps in bare torch,
SpeechBrain and transformers, with the weights loaded and the result added. One thread; both sides take turns: medians
over turns, and the median, least and largest ratio of a turn. The CRNN (eight clips a client) and Whisper (ten
utterances, a window of six seconds) are the same modules on both sides; the Conformer (3 to 40 utterances) is
SpeechBrain's and fedray's."""


if __name__ == "__main__":
    main()
