"""The standard workload and its floor: the same gradient steps and average in bare torch, one thread, no framework.

    python benchmarks/engine/floor.py [base | lite | wide | mutual] [rounds]

4,000 clients with 20 one-second clips each (98 frames of 40 log-mels, 35 classes), 100 of them a round, one epoch,
batch 16, SGD 0.01, averaged by examples. Prints the seconds of each round as JSON. Imports neither fedray nor Ray.
`mutual` is FedMLAC: each client trains a personal CRNN-Base, kept in memory, and the shared CRNN-Lite, each also on the
other's predictions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax

POOL, FRAMES, BINS, CLASSES = 2000, 98, 40, 35
BATCH, LR = 16, 0.01


@dataclass(frozen=True)
class Workload:
    """A model and its clients. Client c has the clips (7 c + 13 i) mod 2,000 of the pool, i = 0, 1, ..."""

    title: str
    width: int  # of the two convolutions
    hidden: int  # of the GRU, in each direction
    bidirectional: bool
    cohort: int = 100
    clips: int = 20  # a client
    clients: int = 4000
    mutual: bool = False  # the model stays with its client; a CRNN-Lite is averaged
    lean: bool = False  # with fedray's GRU: the difference to fedray is the engine

    def rows(self, client: int) -> np.ndarray:
        """Positions of a client's clips in the pool, int64 [clips]."""
        return (client * 7 + np.arange(self.clips) * 13) % POOL

    def shared(self) -> Workload:
        """The workload of the model that is averaged."""
        return replace(self, width=32, hidden=64, bidirectional=False) if self.mutual else self

    def chosen(self, round: int) -> np.ndarray:
        return np.random.default_rng(100 + round).choice(self.clients, self.cohort, replace=False)


WORKLOADS = {
    "base": Workload("CRNN-Base", 64, 128, True),
    "lite": Workload("CRNN-Lite", 32, 64, False),
    "wide": Workload("CRNN, 2.6M", 256, 512, True, cohort=40, clips=8),
    "mutual": Workload("FedMLAC, CRNN-Base and Lite", 64, 128, True, mutual=True),
}


def pool() -> tuple[np.ndarray, np.ndarray]:
    """Clips float32 [2000, frames, bins] of white noise, and their classes int64 [2000]."""
    clips = np.random.default_rng(0).standard_normal((POOL, FRAMES, BINS), dtype=np.float32)
    return clips, np.random.default_rng(1).integers(0, CLASSES, POOL)


class Net(nn.Module):
    """Two convolutions over time, a GRU, its mean over time, one linear layer."""

    def __init__(self, width: int, hidden: int, bidirectional: bool, lean: bool = False) -> None:
        super().__init__()
        self.lean = lean
        layers: list[nn.Module] = []
        for wide in (BINS, width):
            layers += [nn.Conv1d(wide, width, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2)]
        self.conv = nn.Sequential(*layers, nn.Dropout(0.1))
        self.rnn = nn.GRU(width, hidden, batch_first=True, bidirectional=bidirectional)
        self.out = nn.Linear(hidden * (1 + bidirectional), CLASSES)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """[B, T, bins] -> logits [B, classes]."""
        frames = self.conv(features.transpose(1, 2)).transpose(1, 2)
        if self.lean:
            from fedray.models.recurrent import gru

            return self.out(gru(self.rnn, frames).mean(1))
        return self.out(self.rnn(frames)[0].mean(1))


def net(workload: Workload) -> Net:
    torch.manual_seed(0)
    return Net(workload.width, workload.hidden, workload.bidirectional, workload.lean)


def train(model: nn.Module, clips: torch.Tensor, classes: torch.Tensor) -> float:
    """One epoch of SGD, in the order of the clips. Returns the sum of the batches' losses."""
    optimizer, total = torch.optim.SGD(model.parameters(), lr=LR), 0.0
    model.train()
    for start in range(0, len(clips), BATCH):
        optimizer.zero_grad()
        loss = cross_entropy(model(clips[start : start + BATCH]), classes[start : start + BATCH])
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total


def teach(personal: nn.Module, plugin: nn.Module, clips: torch.Tensor, classes: torch.Tensor) -> float:
    """One epoch of deep mutual learning. Returns the sum of the plug-in's losses."""
    optimizers, total = [torch.optim.SGD(model.parameters(), lr=LR) for model in (personal, plugin)], 0.0
    personal.train()
    plugin.train()
    for start in range(0, len(clips), BATCH):
        batch, labels = clips[start : start + BATCH], classes[start : start + BATCH]
        answers = [personal(batch), plugin(batch)]
        for answer, other, optimizer in zip(answers, reversed(answers), optimizers, strict=True):
            optimizer.zero_grad()
            mine, taught = log_softmax(answer, 1), log_softmax(other.detach(), 1)
            loss = cross_entropy(answer, labels) + kl_div(mine, taught, reduction="batchmean", log_target=True)
            loss.backward()
            optimizer.step()
        total += loss.item()
    return total


def play(workload: Workload, rounds: int, part: int = 0, parts: int = 1) -> list[float]:
    """Seconds of each round. With `parts`, this process trains every parts-th client of a cohort."""
    torch.set_num_threads(1)
    clips, classes = pool()
    model, seconds = net(workload.shared()), []
    personal, kept = (net(workload), dict[int, dict[str, torch.Tensor]]()) if workload.mutual else (None, {})
    shared = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for round in range(rounds):
        started = time.perf_counter()
        cohort = workload.chosen(round)[part::parts]
        total = {name: torch.zeros_like(tensor) for name, tensor in shared.items()}
        for client in cohort.tolist():
            model.load_state_dict(shared)
            rows = workload.rows(client)
            mine = torch.from_numpy(clips[rows]), torch.from_numpy(classes[rows])
            if personal is None:
                train(model, *mine)
            else:
                personal.load_state_dict(kept.get(client, personal.state_dict()))
                teach(personal, model, *mine)
                kept[client] = {name: tensor.clone() for name, tensor in personal.state_dict().items()}
            for name, tensor in model.state_dict().items():
                total[name] += tensor  # all clients have as many clips
        shared = {name: tensor / len(cohort) for name, tensor in total.items()}
        seconds.append(time.perf_counter() - started)
    return seconds


def measure(workload: Workload, rounds: int, processes: int = 1) -> list[list[float]]:
    """Seconds of each round in each of `processes` new processes, which train shares of the cohort side by side."""
    command = [sys.executable, str(Path(__file__).resolve()), json.dumps(asdict(workload)), str(rounds)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen([*command, str(part), str(processes)], stdout=subprocess.PIPE, text=True, env=environment)
        for part in range(processes)
    ]
    printed = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise RuntimeError(f"the floor ended with an error: {' '.join(command)}")
    return [json.loads(text.splitlines()[-1]) for text in printed]


def main(arguments: list[str]) -> None:
    model = arguments[0] if arguments else "base"
    workload = WORKLOADS[model] if model in WORKLOADS else Workload(**json.loads(model))
    print(json.dumps(play(workload, *map(int, arguments[1:] or ["6"]))))


if __name__ == "__main__":
    main(sys.argv[1:])
