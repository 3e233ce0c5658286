"""The workloads of the benchmarks of speed: what every framework trains, exactly. Imports neither fedray nor Ray.

Keywords: 4,000 clients with 20 one-second clips each (98 frames of 40 log-mels, 35 classes), a CRNN, 100 clients a
round, one epoch, batch 16, SGD 0.01.

Recognition: 60 clients with 3 to 40 utterances each (10 in the median) of 1 to 6 seconds (2.6 in the mean), a small
Conformer or CRDNN of SpeechBrain with CTC, batch 6, clipped gradients. All clients are in every round: they differ, and
every framework must train the same. Sizes and settings are those of configs/fednst/embedded.yaml and
configs/gao/embedded.yaml, without SpecAugment.

Everywhere the features are white noise, and the new model is the mean of the clients' models, weighted by their
examples. Generators with fixed seeds draw everything.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from benchmarks.engine.networks import CRNN, SpeechBrainConformer, SpeechBrainCRDNN

POOL, FRAMES, BINS, CLASSES = 2000, 98, 40, 35
Data = Sequence[Tensor]  # what a client has; the first dimension of each tensor counts its examples


class Workload(Protocol):
    """A model and its clients."""

    title: str
    clients: int
    cohort: int  # clients of a round
    batch: int
    epochs: int
    lr: float
    clip: float | None  # largest norm of a step's gradient

    def net(self) -> nn.Module: ...

    def rows(self, client: int) -> np.ndarray:
        """Positions of a client's examples in the pool, int64 [examples]."""
        ...

    def data(self, client: int) -> Data: ...

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """The mean loss of a batch: a slice of each of a client's tensors."""
        ...


def chosen(workload: Workload, round: int) -> list[int]:
    """The clients of a round."""
    return np.random.default_rng(100 + round).choice(workload.clients, workload.cohort, replace=False).tolist()


def train(workload: Workload, model: nn.Module, data: Data) -> float:
    """A client's training, in the order of its examples. Returns the sum of the batches' losses."""
    optimizer, total = torch.optim.SGD(model.parameters(), lr=workload.lr), 0.0
    model.train()
    for _ in range(workload.epochs):
        for start in range(0, len(data[0]), workload.batch):
            optimizer.zero_grad()
            loss = workload.loss(model, *(part[start : start + workload.batch] for part in data))
            loss.backward()
            if workload.clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), workload.clip)
            optimizer.step()
            total += loss.item()
    return total


def steps(workload: Workload, client: int) -> int:
    """Gradient steps of a client in a round."""
    return workload.epochs * -(-len(workload.rows(client)) // workload.batch)


@dataclass(frozen=True)
class Keywords:
    """A CRNN and its clients. Client c has the clips (7 c + 13 i) mod 2,000 of the pool, i = 0, 1, ..."""

    title: str
    width: int  # of the two convolutions
    hidden: int  # of the GRU, in each direction
    bidirectional: bool
    cohort: int = 100
    clips: int = 20  # a client
    clients: int = 4000
    mutual: bool = False  # FedMLAC: the model stays with its client; a CRNN-Lite is averaged
    lean: bool = False  # with fedray's GRU: the difference to fedray is the engine
    own: bool = False  # fedray too trains the network of torch's layers, as a user's own
    batch: int = 16
    epochs: int = 1
    lr: float = 0.01
    clip: float | None = None

    def rows(self, client: int) -> np.ndarray:
        return (client * 7 + np.arange(self.clips) * 13) % POOL

    def shared(self) -> Keywords:
        """The workload of the model that is averaged."""
        return replace(self, width=32, hidden=64, bidirectional=False) if self.mutual else self

    def net(self) -> CRNN:
        torch.manual_seed(0)
        return CRNN(self.width, self.hidden, self.bidirectional, BINS, CLASSES, self.lean)

    def data(self, client: int) -> Data:
        """Clips float32 [clips, frames, bins] and their classes int64 [clips]."""
        (clips, classes), rows = pool(), self.rows(client)
        return torch.from_numpy(clips[rows]), torch.from_numpy(classes[rows])

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        clips, classes = batch
        return cross_entropy(model(clips), classes)


@functools.cache
def pool() -> tuple[np.ndarray, np.ndarray]:
    """Clips float32 [2000, frames, bins] of white noise, and their classes int64 [2000]."""
    clips = np.random.default_rng(0).standard_normal((POOL, FRAMES, BINS), dtype=np.float32)
    return clips, np.random.default_rng(1).integers(0, CLASSES, POOL)


def teach(workload: Keywords, personal: nn.Module, plugin: nn.Module, data: Data) -> float:
    """FedMLAC's client: deep mutual learning of both models. Returns the sum of the plug-in's losses."""
    models, total = (personal, plugin), 0.0
    optimizers = [torch.optim.SGD(model.parameters(), lr=workload.lr) for model in models]
    for model in models:
        model.train()
    for start in range(0, len(data[0]), workload.batch):
        clips, classes = (part[start : start + workload.batch] for part in data)
        answers = [personal(clips), plugin(clips)]
        for answer, other, optimizer in zip(answers, reversed(answers), optimizers, strict=True):
            optimizer.zero_grad()
            mine, taught = log_softmax(answer, 1), log_softmax(other.detach(), 1)
            loss = cross_entropy(answer, classes) + kl_div(mine, taught, reduction="batchmean", log_target=True)
            loss.backward()
            optimizer.step()
        total += loss.item()
    return total


@dataclass(frozen=True)
class Recognition:
    """A recogniser and its clients."""

    title: str
    model: str  # conformer | crdnn
    bins: int
    frames_a_second: int
    tokens: int  # with the blank, token 0
    tokens_a_second: int
    epochs: int
    lr: float
    cohort: int = 60
    clients: int = 60
    batch: int = 6
    clip: float | None = 5.0

    def rows(self, client: int) -> np.ndarray:
        """In the order of their lengths, so batches have little padding."""
        generator = np.random.default_rng([2, client])
        count = round(np.clip(generator.lognormal(np.log(10), 0.6), 3, 40))
        rows = generator.choice(POOL, count, replace=False)
        return rows[np.argsort(seconds()[rows], kind="stable")]

    def frames(self) -> np.ndarray:
        """Frames of each utterance of the pool, int64 [2000]."""
        return np.round(seconds() * self.frames_a_second).astype(np.int64)

    def utterances(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The pool: features float16 [frames, bins] and tokens int64 [tokens] of each utterance."""
        return _utterances(self.bins, self.frames_a_second, self.tokens, self.tokens_a_second)

    def data(self, client: int) -> Data:
        """Padded features float32 [n, T, bins] and tokens int64 [n, L], each with its lengths int64 [n]."""
        features, tokens = ([part[row] for row in self.rows(client)] for part in self.utterances())
        return *padded(features, np.float16), *padded(tokens, np.int64)

    def net(self) -> SpeechBrainConformer | SpeechBrainCRDNN:
        torch.manual_seed(0)
        return {"conformer": SpeechBrainConformer, "crdnn": SpeechBrainCRDNN}[self.model](self.bins, self.tokens)

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """SpeechBrain's CTC loss: a mean over the tokens of an utterance, then over utterances."""
        from speechbrain.nnet.losses import ctc_loss

        features, lengths, tokens, sizes = batch
        longest, most = int(lengths.max()), int(sizes.max())
        log_probs = model(features[:, :longest], lengths / longest)
        return ctc_loss(log_probs, tokens[:, :most], lengths / longest, sizes / most, blank_index=0)


@dataclass(frozen=True)
class LargeConformer(Recognition):
    """A Conformer whose encoder has other sizes."""

    width: int = 256
    layers: int = 7

    def net(self) -> SpeechBrainConformer:
        torch.manual_seed(0)
        return SpeechBrainConformer(self.bins, self.tokens, self.width, self.layers)


@functools.cache
def seconds() -> np.ndarray:
    """Lengths of the pool's utterances, float64 [2000]."""
    return np.clip(np.random.default_rng(3).lognormal(np.log(2.45), 0.35, POOL), 1, 6)


@functools.lru_cache(1)
def _utterances(bins: int, rate: int, tokens: int, speed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    noise, spoken = np.random.default_rng(4), np.random.default_rng(5)
    lengths = np.round(seconds() * rate).astype(np.int64).tolist()
    features = [noise.standard_normal((length, bins), dtype=np.float32).astype(np.float16) for length in lengths]
    return features, [spoken.integers(1, tokens, size) for size in np.round(seconds() * speed).astype(int).tolist()]


def padded(arrays: Sequence[np.ndarray], kind: type) -> tuple[Tensor, Tensor]:
    """Arrays [length, ...] as one tensor [n, longest, ...], float32 or int64, with zeros behind them; lengths [n]."""
    lengths = [len(array) for array in arrays]
    whole = np.zeros((len(arrays), max(lengths), *arrays[0].shape[1:]), kind)
    for place, array in zip(whole, arrays, strict=True):
        place[: len(array)] = array
    tensor = torch.from_numpy(whole)
    return tensor.float() if tensor.is_floating_point() else tensor, torch.tensor(lengths)


KEYWORDS = {
    "base": Keywords("CRNN-Base", 64, 128, True),
    "lite": Keywords("CRNN-Lite", 32, 64, False),
    "wide": Keywords("CRNN, 2.6M", 256, 512, True, cohort=40, clips=8),
    "own": Keywords("the same, torch's layers in fedray too", 256, 512, True, cohort=40, clips=8, own=True),
    "mutual": Keywords("FedMLAC, CRNN-Base and Lite", 64, 128, True, mutual=True),
}
RECOGNITION = {
    "conformer": Recognition("Conformer", "conformer", 40, 100, 28, 12, epochs=2, lr=0.25),
    "crdnn": Recognition("CRDNN", "crdnn", 32, 50, 200, 4, epochs=5, lr=0.3),
}
WORKLOADS: dict[str, Workload] = {**KEYWORDS, **RECOGNITION}
