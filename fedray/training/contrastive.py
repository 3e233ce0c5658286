"""Contrastive pre-training of an audio encoder on clips without labels (COLA); `model.init` loads its weights.

Saeed, Grangier, Zeghidour. Contrastive Learning of General-Purpose Audio Representations. ICASSP 2021; as in FedSTAR,
section 4.4.

    for each batch of B clips:
        a_i, b_i <- two random segments of clip i
        g(x)     <- tanh(layer norm(linear(f(x), units)))           # f: the network up to its last layer
        S_ij     <- g(a_i)' W g(b_j)                                # bilinear similarity
        loss     <- mean_i -log softmax(S_i)_i                      # the other clips' segments are the negatives
        f, g, W  <- Adam(gradient)

Pre-training drops g and W at its end. All random numbers follow from the seed and the epoch, so training that stops
between epochs and resumes gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedray.core.ranges import Count, Positive, Range, Ranged
from fedray.core.seeds import numpy_generator, seed_all
from fedray.core.types import State
from fedray.data.features.dataset import Batch, Utterances, batches
from fedray.training.local import finite
from fedray.training.windows import random_window


@dataclass(frozen=True)
class ContrastiveSettings(Ranged):
    """The defaults are the paper's, for FSD50K.

    A batch of 1,024 clips takes about 15 GB with audio_cnn, since the loss compares all its segments at once.
    """

    epochs: Count = 500  # passes over all clips
    batch: Annotated[int, Range(2)] = 1024  # clips; each has batch - 1 negatives
    lr: Positive = 1e-3  # Adam's learning rate
    window: Positive = 1.0  # seconds of a segment; a clip must be longer, or its two segments are the same
    units: Count = 256  # outputs of the head g


class Head(nn.Module):
    """The head: g and W."""

    def __init__(self, width: int, units: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, units)
        self.norm = nn.LayerNorm(units)
        self.bilinear = nn.Linear(units, units, bias=False)
        # W starts as the identity [ours]. With a random W, even equal segments are not similar. On small sets Adam then
        # maps all clips to one embedding and stays there, at the loss log B.
        nn.init.eye_(self.bilinear.weight)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Two embeddings of each clip, [B, width] each -> similarities [B, B], one row for each first embedding."""
        a, b = (self.norm(self.linear(x)).tanh() for x in (first, second))
        similarities: Tensor = a @ self.bilinear(b).T
        return similarities


class Encoder(Protocol):
    """A network with embeddings, such as audio_cnn."""

    head: str  # the name of the last layer, which `embed` leaves out
    width: int  # dimensions of an embedding

    def embed(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Features [B, T, bins] and lengths [B] in frames -> embeddings [B, width]."""


class Contrastive:
    """Pre-training, one epoch at a time; `state()` lets another process continue it between epochs."""

    def __init__(
        self,
        make: Callable[[], nn.Module],
        data: Utterances,
        frames: int,
        settings: ContrastiveSettings,
        seed: int,
        device: str = "cpu",
        silence: float = 0.0,
    ) -> None:
        """`make`: builds a model with an `Encoder`'s attributes, from torch's global generator. `frames`: per segment.

        `silence`: the value that pads a shorter clip.
        ValueError: there are fewer than two clips, no clip is longer than a segment, or the model has no `embed`.
        """
        if len(data) < 2:
            raise ValueError(
                f"contrastive pre-training compares clips, but there are {len(data)}: take a larger corpus"
            )
        if int(data.lengths.max()) <= frames:
            raise ValueError(
                f"contrastive.window: no clip is longer than {settings.window} s, so both segments would be the same: "
                "shorten it, or take longer clips"
            )
        self.data, self.frames, self.silence, self.settings, self.seed = data, frames, silence, settings, seed
        self.device = device
        seed_all(seed, "contrastive", "weights")
        self.model = make().to(device)
        if not hasattr(self.model, "embed"):
            raise ValueError(
                f"contrastive pre-training cannot train {type(self.model).__name__}: set model.kind=audio_cnn"
            )
        self.encoder = cast(Encoder, self.model)
        self.head = Head(self.encoder.width, settings.units).to(device)
        self.parameters = [p for name, p in self.model.named_parameters() if name.split(".")[0] != self.encoder.head]
        self.parameters += list(self.head.parameters())
        self.optimizer = torch.optim.Adam(self.parameters, lr=settings.lr)
        self.done = 0  # epochs
        self.losses: list[float] = []  # of each epoch

    @property
    def steps(self) -> int:
        """The number of batches in an epoch."""
        return -(-len(self.data) // self.settings.batch)

    def epoch(self, progress: Callable[[int], None] = lambda done: None) -> float:
        """Train one epoch and return the mean loss per clip. `progress` receives the number of finished batches.

        A batch of one clip is left out, since it has no negative. ValueError when the loss is NaN or infinite.
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
        pair = [random_window(batch, self.frames, self.silence).to(self.device) for _ in range(2)]
        segments = torch.cat([segment.features for segment in pair])
        lengths = torch.cat([segment.lengths for segment in pair])
        first, second = self.encoder.embed(segments, lengths).chunk(2)
        loss = cross_entropy(self.head(first, second), torch.arange(len(batch), device=self.device))
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        value = finite(float(loss.detach()))
        self.optimizer.step()
        return value

    def state(self) -> dict[str, Any]:
        """All that the next epoch depends on besides the data and the settings, for `torch.save`."""
        return {
            "epochs": self.done,
            "losses": list(self.losses),
            "model": _copied(self.model.state_dict()),
            "head": _copied(self.head.state_dict()),
            "optimizer": {number: _copied(moments) for number, moments in self.optimizer.state_dict()["state"].items()},
        }

    def load(self, state: State) -> None:
        """Continue from a `state()` of the same training."""
        self.done, self.losses = int(state["epochs"]), list(state["losses"])
        self.model.load_state_dict(state["model"])
        self.head.load_state_dict(state["head"])
        groups = self.optimizer.state_dict()["param_groups"]
        moments = {number: _copied(tensors) for number, tensors in state["optimizer"].items()}
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})

    def weights(self) -> dict[str, Tensor]:
        """The weights for `model.init`: the network without its last layer."""
        state = _copied(self.model.state_dict())
        return {name: value.cpu() for name, value in state.items() if name.split(".")[0] != self.encoder.head}


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in tensors.items()}
