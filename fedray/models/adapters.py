"""Low-rank adapters (LoRA) on named projections of any model here: the model is frozen, and each adapted weight is W + alpha / r B A.

Hu et al. LoRA: Low-Rank Adaptation of Large Language Models. ICLR 2022; in the federation of Du et al., ICASSP 2024.

A weight is adapted where it lies, as torch's parametrizations do it, so that fused projections of attention, which are no modules of their
own, can be adapted too: query, key and value each get an A and a B. Merging reads the adapted weights off. Dropout hides inputs of A, the
same for all frames of a step [ours], as the weight alone is at hand.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import torch
from speechbrain.nnet.attention import RelPosMHAXL, RoPEMHA
from torch import Tensor, nn
from torch.nn.utils import parametrize

from fedray.core.parameters import Layout
from fedray.core.types import Vector

ORIGINAL = re.compile(r"parametrizations\.(\w+)\.original$")


@dataclass(frozen=True)
class LoRASettings:
    rank: int = 4  # 0: no adapters, the whole model is tuned
    alpha: float = 8.0
    dropout: float = 0.0
    # Regular expressions: a weight is adapted where one is found in its name, a convolution's as the matrix [outputs, inputs x kernel].
    # These are self-attention's projections and both feed-forward matrices of the Conformer's encoder; with a decoder add
    # "self_attn.*_proj".
    targets: list[str] = field(default_factory=lambda: ["mha_layer.*_proj", "ffn"])

    def __post_init__(self) -> None:
        if self.rank < 0 or self.alpha <= 0 or not 0 <= self.dropout < 1:
            raise ValueError("lora.rank is at least 0, lora.alpha above 0, and lora.dropout a share from 0 to below 1")
        if not self.targets:
            raise ValueError('lora.targets names no weight: give parts of their names, such as ["mha_layer.*_proj", "ffn"]')
        for target in self.targets:
            try:
                re.compile(target)
            except re.error as error:
                raise ValueError(f"lora.targets: {target!r} is no regular expression ({error}); .* stands for anything") from error


class LowRank(nn.Module):
    """W -> W + alpha / r B A. A is drawn, B is 0, so that at first nothing changes.

    `parts` of a fused weight's rows have an A and a B each; `heads`: rows are ordered by head before part (SpeechBrain's attentions).
    """

    def __init__(self, rows: int, columns: int, settings: LoRASettings, parts: int = 1, heads: int = 1) -> None:
        super().__init__()
        self.scale, self.dropout, self.heads = settings.alpha / settings.rank, settings.dropout, heads
        self.a = nn.Parameter(torch.empty(parts, settings.rank, columns))
        self.b = nn.Parameter(torch.zeros(parts, rows // parts, settings.rank))
        nn.init.uniform_(self.a, -1 / math.sqrt(columns), 1 / math.sqrt(columns))  # as of a linear layer

    def forward(self, weight: Tensor) -> Tensor:
        a = self.a
        if self.training and self.dropout:
            a = a * nn.functional.dropout(torch.ones_like(a[:, :1]), self.dropout)
        change = self.b @ a  # [parts, rows / parts, columns]
        if self.heads > 1:
            parts, rows, columns = change.shape
            change = change.view(parts, self.heads, rows // self.heads, columns).transpose(0, 1)
        return weight + self.scale * change.reshape(weight.shape)


def adapt(model: nn.Module, settings: LoRASettings) -> nn.Module:
    """Freeze the model in place and give the weights that `targets` name adapters. ValueError for a target that names none.

    A weight that two modules share, such as Whisper's embedding and its head, gets none: it would be adapted in one of them alone.
    """
    holders = Counter(id(parameter) for module in model.modules() for parameter in module.parameters(recurse=False))
    names = [name for name, parameter in model.named_parameters() if parameter.ndim >= 2 and holders[id(parameter)] == 1]
    for target in settings.targets:
        if not any(re.search(target, name) for name in names):
            raise ValueError(f"lora.targets: no weight of its own has {target!r} in its name; there are {', '.join(names)}")
    model.requires_grad_(False)
    for name in names:
        if any(re.search(target, name) for target in settings.targets):
            owner, _, own = name.rpartition(".")
            module = model.get_submodule(owner)
            parts, heads = fused(module) if own == "in_proj_weight" else (1, 1)
            rows, columns = model.get_parameter(name).flatten(1).shape
            parametrize.register_parametrization(module, own, LowRank(rows, columns, settings, parts, heads))
            module.parametrizations[own].original.requires_grad_(False)
    return model


def fused(attention: nn.Module) -> tuple[int, int]:
    """How a fused projection of query, key and value is ordered: parts, and heads where these come first."""
    return 3, attention.num_heads if isinstance(attention, RelPosMHAXL | RoPEMHA) else 1


def merged(model: nn.Module) -> dict[str, Tensor]:
    """The state dict of the model without adapters whose outputs are the same."""
    model.eval()  # without dropout
    state: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if found := ORIGINAL.search(name):
            owner = name[: found.start()]
            state[owner + found[1]] = getattr(model.get_submodule(owner.rstrip(".")), found[1]).detach()
        elif "parametrizations." not in name:
            state[name] = tensor
    return state


def plain_names(model: nn.Module) -> dict[str, str]:
    """Name in the adapted model -> name in the model without adapters; adapters have none."""
    named = {name: ORIGINAL.sub(r"\1", name) for name in model.state_dict()}
    return {name: plain for name, plain in named.items() if "parametrizations." not in plain}


@dataclass(frozen=True)
class Pair:
    """Where the A [rank, columns] and B [rows, rank] of one projection lie in the vector of the adapters."""

    name: str
    a: slice
    b: slice
    rank: int

    def factors(self, adapters: Vector) -> tuple[Vector, Vector]:
        return adapters[self.a].reshape(self.rank, -1), adapters[self.b].reshape(-1, self.rank)


def pairs(layout: Layout) -> list[Pair]:
    """All of an adapted model; a fused projection has one for each of its parts."""
    entries = {entry.name: entry for entry in layout.entries if entry.stop <= layout.trainable}
    found = []
    for name, a in entries.items():
        if not name.endswith(".a"):
            continue
        b = entries[name[:-1] + "b"]
        parts, rank, columns = a.shape
        rows = b.shape[1]
        for part in range(parts):
            of_a, of_b = a.start + part * rank * columns, b.start + part * rows * rank
            found.append(Pair(f"{name[:-2]}.{part}", slice(of_a, of_a + rank * columns), slice(of_b, of_b + rows * rank), rank))
    return found


def products(adapters: Vector, layout: Layout) -> Vector:
    """B A of every pair, one behind the other. By torch, whose threads actors set to one; numpy's are as many as Ray leaves."""
    factors = (pair.factors(adapters) for pair in pairs(layout))
    return np.concatenate([(torch.tensor(b) @ torch.tensor(a)).reshape(-1).numpy() for a, b in factors])


def factorised(wanted: Vector, before: Vector, layout: Layout) -> Vector:
    """Adapters whose products are as near to the wanted ones as their rank allows (least squares: the largest singular values).

    Of the many that have these products: |A| = |B|, turned to be nearest to those `before`, to which clients' moments belong.
    """
    adapters = np.empty(layout.trainable, np.float32)
    start = 0
    for pair in pairs(layout):
        old_a, old_b = (torch.tensor(factor).double() for factor in pair.factors(before))
        rows, columns = len(old_b), old_a.shape[1]
        product = torch.tensor(wanted[start : start + rows * columns]).double().view(rows, columns)
        start += product.numel()
        left, values, right = torch.linalg.svd(product, full_matrices=False)
        root = values[: pair.rank].sqrt()
        a, b = torch.zeros_like(old_a), torch.zeros_like(old_b)  # a rank above the projection's own leaves some of it 0
        a[: len(root)], b[:, : len(root)] = root[:, None] * right[: pair.rank], left[:, : pair.rank] * root
        u, _, v = torch.linalg.svd(old_a @ a.T + old_b.T @ b)
        turn = u @ v
        adapters[pair.a], adapters[pair.b] = (turn @ a).reshape(-1).numpy(), (b @ turn.T).reshape(-1).numpy()
    return adapters
