"""Low-rank adapters (LoRA) on named weights of any model. The model is frozen; an adapted weight is W + alpha / r B A.

Hu et al. LoRA: Low-Rank Adaptation of Large Language Models. ICLR 2022; federated by Du et al., ICASSP 2024.

Adapters are torch parametrizations of a weight, so a fused projection of attention, which is a weight without a module,
can be adapted too: query, key and value each get an A and a B. Merging evaluates the parametrizations. Dropout zeroes
inputs of A, the same ones for all frames of a step [ours], because a parametrization sees the weight but no frames.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from speechbrain.nnet.attention import RelPosMHAXL, RoPEMHA
from torch import Tensor, nn
from torch.nn.utils import parametrize

from fedray.core.parameters import Layout
from fedray.core.ranges import Natural, Part, Positive, Ranged
from fedray.core.types import Vector

ORIGINAL = re.compile(r"parametrizations\.(\w+)\.original$")
FACTOR = re.compile(r"parametrizations\.\w+\.\d+\.[ab]$")  # of an adapter; other parametrizations are the model's own


@dataclass(frozen=True)
class LoRASettings(Ranged):
    """The size of the adapters, and which weights get one."""

    rank: Natural = 4  # 0: no adapters, the whole model is tuned
    alpha: Positive = 8.0  # adapters are scaled by alpha / rank
    dropout: Part = 0.0  # share of an adapter's inputs that training drops
    # Regular expressions: a weight gets an adapter if one of them matches in its name. The weight of a convolution is
    # adapted as a matrix [outputs, inputs x kernel]. The defaults match the self-attention projections and both
    # feed-forward matrices of the Conformer's encoder. With a decoder, add "self_attn.*_proj".
    targets: list[str] = field(default_factory=lambda: ["mha_layer.*_proj", "ffn"])
    # Regular expressions: a parameter without an adapter is tuned whole, and sent, if one of them matches in its name,
    # or in its module's class followed by its own name, as in LayerNorm.weight. ["bias$", "[Nn]orm"]: biases and norms.
    whole: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.targets:
            raise ValueError(
                'lora.targets is empty: list parts of weights\' names, such as ["mha_layer.*_proj", "ffn"]'
            )
        for key in ("targets", "whole"):
            for pattern in getattr(self, key):
                try:
                    re.compile(pattern)
                except re.error as error:
                    raise ValueError(
                        f"lora.{key}: {pattern!r} is not a regular expression ({error}); .* matches anything"
                    ) from error


class LowRank(nn.Module):
    """The parametrization W -> W + alpha / r B A.

    Initially A is random and B is 0, so the model's outputs do not change. Each of the `parts` of a fused weight's rows
    has its own A and B. `heads` above 1: rows are ordered by head, then by part, as in SpeechBrain's attention modules.
    """

    def __init__(self, rows: int, columns: int, settings: LoRASettings, parts: int = 1, heads: int = 1) -> None:
        super().__init__()
        self.scale, self.dropout, self.heads = settings.alpha / settings.rank, settings.dropout, heads
        self.a = nn.Parameter(torch.empty(parts, settings.rank, columns))
        self.b = nn.Parameter(torch.zeros(parts, rows // parts, settings.rank))
        nn.init.uniform_(self.a, -1 / math.sqrt(columns), 1 / math.sqrt(columns))  # as in nn.Linear

    def forward(self, weight: Tensor) -> Tensor:
        """The adapted weight, of the same shape."""
        a: Tensor = self.a
        if self.training and self.dropout:
            a = a * nn.functional.dropout(torch.ones_like(a[:, :1]), self.dropout)
        change = self.b @ a  # [parts, rows / parts, columns]
        if self.heads > 1:
            parts, rows, columns = change.shape
            change = change.view(parts, self.heads, rows // self.heads, columns).transpose(0, 1)
        return weight + self.scale * change.reshape(weight.shape)


def adapt(model: nn.Module, settings: LoRASettings) -> nn.Module:
    """Freeze the model in place, except for `whole`, and add adapters to the weights that `targets` match.

    ValueError for a pattern without a match. A weight that two modules share, such as Whisper's embedding and head,
    gets no adapter: a parametrization changes it in one module only.
    """
    holders = Counter(id(parameter) for module in model.modules() for parameter in module.parameters(recurse=False))
    names = [
        name
        for name, parameter in model.named_parameters()
        if parameter.ndim >= 2 and holders[id(parameter)] == 1 and "parametrizations." not in name
    ]
    for target in settings.targets:
        if not any(re.search(target, name) for name in names):
            raise ValueError(
                f"lora.targets: {target!r} matches no weight that one module holds alone; there are {', '.join(names)}"
            )
    model.requires_grad_(False)
    adapted = [name for name in names if any(re.search(target, name) for target in settings.targets)]
    tune_whole(model, settings.whole, adapted)
    for name in adapted:
        owner, _, weight = name.rpartition(".")
        module = model.get_submodule(owner)
        parts, heads = fused(module) if weight == "in_proj_weight" else (1, 1)
        rows, columns = model.get_parameter(name).flatten(1).shape
        parametrize.register_parametrization(module, weight, LowRank(rows, columns, settings, parts, heads))
        model.get_parameter(f"{owner}.parametrizations.{weight}.original".lstrip(".")).requires_grad_(False)
    return model


def tune_whole(model: nn.Module, patterns: Sequence[str], adapted: Collection[str]) -> None:
    """Make parameters that a pattern matches trainable, but not adapted ones. ValueError: a pattern has no match."""
    others = [name for name, _ in model.named_parameters() if name not in adapted]
    by_class = {name: type(model.get_submodule(name.rpartition(".")[0])).__name__ for name in others}
    for pattern in patterns:
        matched = [
            name
            for name, kind in by_class.items()
            if re.search(pattern, name) or re.search(pattern, f"{kind}.{name.rpartition('.')[2]}")
        ]
        if not matched:
            raise ValueError(
                f"lora.whole: {pattern!r} matches no parameter without an adapter; there are {', '.join(others)}"
            )
        for name in matched:
            model.get_parameter(name).requires_grad_(True)


def fused(attention: nn.Module) -> tuple[int, int]:
    """The parts and heads that order the rows of a fused query-key-value projection (heads 1: parts come first)."""
    return 3, attention.num_heads if isinstance(attention, RelPosMHAXL | RoPEMHA) else 1


def merged(model: nn.Module) -> dict[str, Tensor]:
    """The state dict of a model without adapters that has the same outputs."""
    model.eval()  # dropout would change the adapted weights
    state: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if found := ORIGINAL.search(name):
            owner = name[: found.start()]
            state[owner + found[1]] = getattr(model.get_submodule(owner.rstrip(".")), found[1]).detach()
        elif not FACTOR.search(name):
            state[name] = tensor
    return state


def plain_names(model: nn.Module) -> dict[str, str]:
    """Names in the adapted model -> names in the model without adapters, leaving out the adapters' parameters."""
    named = {name: ORIGINAL.sub(r"\1", name) for name in model.state_dict()}
    return {name: plain for name, plain in named.items() if not FACTOR.search(plain)}


@dataclass(frozen=True)
class Pair:
    """The places of one projection's A [rank, columns] and B [rows, rank] in the vector of the adapters."""

    name: str
    a: slice
    b: slice
    rank: int

    def factors(self, adapters: Vector) -> tuple[Vector, Vector]:
        """A [rank, columns] and B [rows, rank], as views."""
        return adapters[self.a].reshape(self.rank, -1), adapters[self.b].reshape(-1, self.rank)


def pairs(layout: Layout) -> list[Pair]:
    """The pairs of an adapted model: one for each projection, or for each part of a fused projection."""
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
            found.append(
                Pair(f"{name[:-2]}.{part}", slice(of_a, of_a + rank * columns), slice(of_b, of_b + rows * rank), rank)
            )
    return found


def rate_factors(layout: Layout, b_factor: float) -> Tensor:
    """The factor of the learning rate of each trainable parameter, [trainable]: `b_factor` for B, else 1.

    Hayou, Ghosh, Yu. LoRA+: Efficient Low Rank Adaptation of Large Models. ICML 2024.
    """
    factors = torch.ones(layout.trainable)
    for pair in pairs(layout):
        factors[pair.b] = b_factor
    return factors


def products(adapters: Vector, layout: Layout) -> Vector:
    """The products B A of all pairs, concatenated. torch multiplies: actors limit it to one thread, but not numpy."""
    factors = (pair.factors(adapters) for pair in pairs(layout))
    return np.concatenate([(torch.tensor(b) @ torch.tensor(a)).reshape(-1).numpy() for a, b in factors])


def factorised(wanted: Vector, before: Vector, layout: Layout) -> Vector:
    """Adapters whose products B A are the least-squares fit to the wanted ones, from the largest singular values.

    Many A and B have these products. The ones returned have |A| = |B|, and are rotated to be nearest to the adapters
    `before`, so that the clients' optimiser moments still fit.
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
        a, b = torch.zeros_like(old_a), torch.zeros_like(old_b)  # surplus rank stays 0
        a[: len(root)], b[:, : len(root)] = root[:, None] * right[: pair.rank], left[:, : pair.rank] * root
        u, _, v = torch.linalg.svd(old_a @ a.T + old_b.T @ b)
        turn = u @ v
        adapters[pair.a], adapters[pair.b] = (turn @ a).reshape(-1).numpy(), (b @ turn.T).reshape(-1).numpy()
    return adapters
