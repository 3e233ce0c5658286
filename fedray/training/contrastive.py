"""Contrastive pre-training of an audio encoder on clips without labels (COLA), whose result `model.init` starts from.

Saeed, Grangier, Zeghidour. Contrastive Learning of General-Purpose Audio Representations. ICASSP 2021; as FedSTAR uses it, section 4.4.

    for each batch of B clips:
        a_i, b_i <- two random segments of clip i
        g(x)     <- tanh(layer norm(linear(f(x), units)))           # f: the network up to its last layer
        S_ij     <- g(a_i)' W g(b_j)                                # bilinear similarity
        loss     <- mean_i -log softmax(S_i)_i                      # the other clips' segments are the negatives
        f, g, W  <- Adam(gradient)

g and W are dropped afterwards. What is drawn follows from the seed and the epoch, so a training that is cut between epochs and gone on
with gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedray.core.config import positive
from fedray.core.seeds import numpy_generator, seed_all
from fedray.core.types import State
from fedray.data.dataset import Batch, Utterances, batches
from fedray.training.local import finite
from fedray.training.windows import random_window


@dataclass(frozen=True)
class ContrastiveSettings:
    """The paper: FSD50K, batches of 1,024, 500 epochs. Such a batch of audio_cnn takes some 15 GB: its segments are compared at once."""

    epochs: int = 500
    batch: int = 1024  # clips; its size less one is the number of negatives
    lr: float = 1e-3
    window: float = 1.0  # seconds of a segment; clips must be longer, or their two segments are the same
    units: int = 256  # of the head g

    def __post_init__(self) -> None:
        positive(epochs=self.epochs, lr=self.lr, window=self.window, units=self.units)
        if self.batch < 2:
            raise ValueError(f"batch: {self.batch} clips have no others to be told apart from: at least 2")


class Head(nn.Module):
    """g and W."""

    def __init__(self, width: int, units: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, units)
        self.norm = nn.LayerNorm(units)
        self.bilinear = nn.Linear(units, units, bias=False)
        # W starts as the identity [ours]: with a random one even two equal segments are not alike, and the first that Adam finds
        # is to make all clips the same, from where it does not come back (loss log B for ever, on small sets).
        nn.init.eye_(self.bilinear.weight)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Two embeddings of each clip, [B, width] -> similarities [B, B], a row for each of the first."""
        a, b = (self.norm(self.linear(x)).tanh() for x in (first, second))
        similarities: Tensor = a @ self.bilinear(b).T
        return similarities


class Contrastive:
    """A training under way: `epoch()` after `epoch()`, with `state()` between them."""

    def __init__(
        self, make: Callable[[], Any], data: Utterances, frames: int, settings: ContrastiveSettings, seed: int, device: str = "cpu"
    ) -> None:
        """`make`: a new model with `embed` and `width`, such as audio_cnn, drawn from torch's global generator; `frames` of a segment.

        ValueError where there is nothing to learn from: too few clips, or none longer than a segment.
        """
        if len(data) < 2:
            raise ValueError(f"contrastive pre-training compares clips, and there are {len(data)}")
        if int(data.lengths.max()) <= frames:
            raise ValueError(
                f"contrastive.window: no clip is longer than {settings.window} s, so both segments would be the same: shorten it, "
                "or take other clips"
            )
        self.data, self.frames, self.settings, self.seed, self.device = data, frames, settings, seed, device
        seed_all(seed, "contrastive", "weights")
        self.model = make().to(device)
        if not hasattr(self.model, "embed"):
            raise ValueError(f"contrastive pre-training cannot train {type(self.model).__name__}: set model.kind=audio_cnn")
        self.head = Head(self.model.width, settings.units).to(device)
        self.parameters = [p for name, p in self.model.named_parameters() if name.split(".")[0] != self.model.head]
        self.parameters += list(self.head.parameters())
        self.optimizer = torch.optim.Adam(self.parameters, lr=settings.lr)
        self.done = 0  # epochs
        self.losses: list[float] = []  # of each epoch

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return -(-len(self.data) // self.settings.batch)

    def epoch(self, progress: Callable[[int], None] = lambda done: None) -> float:
        """One more pass over the clips; the mean loss a clip. `progress` hears how many batches are done.

        A last batch of one clip, which has no negative, is left out. ValueError when the loss is no number any more.
        """
        seed_all(self.seed, "contrastive", self.done)
        self.model.train()
        self.head.train()
        total, count = 0.0, 0
        generator = numpy_generator(self.seed, "contrastive", "batches", self.done)
        for number, batch in enumerate(batches(self.data, self.settings.batch, generator)):
            if len(batch) > 1:
                total += self._step(batch) * len(batch)
                count += len(batch)
            progress(number + 1)
        self.done += 1
        self.losses.append(total / count)
        return self.losses[-1]

    def _step(self, batch: Batch) -> float:
        moved = batch.to(self.device)
        pair = [random_window(moved, self.frames) for _ in range(2)]
        segments, lengths = torch.cat([segment.features for segment in pair]), torch.cat([segment.lengths for segment in pair])
        first, second = self.model.embed(segments, lengths).chunk(2)
        loss = cross_entropy(self.head(first, second), torch.arange(len(batch), device=self.device))
        self.optimizer.zero_grad()
        loss.backward()
        value = finite(float(loss.detach()))
        self.optimizer.step()
        return value

    def state(self) -> dict[str, Any]:
        """All that the next epoch depends on besides the data and the settings; for `torch.save`."""
        return {
            "epochs": self.done,
            "losses": list(self.losses),
            "model": _copied(self.model.state_dict()),
            "head": _copied(self.head.state_dict()),
            "optimizer": {place: _copied(moments) for place, moments in self.optimizer.state_dict()["state"].items()},
        }

    def load(self, state: State) -> None:
        """Go on from a `state()` of the same training."""
        self.done, self.losses = int(state["epochs"]), list(state["losses"])
        self.model.load_state_dict(state["model"])
        self.head.load_state_dict(state["head"])
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": {place: _copied(m) for place, m in state["optimizer"].items()}, "param_groups": groups})

    def weights(self) -> dict[str, Tensor]:
        """What `model.init` starts from: the network without its last layer."""
        return {name: value.cpu() for name, value in _copied(self.model.state_dict()).items() if name.split(".")[0] != self.model.head}


def _copied(tensors: Any) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in tensors.items()}
