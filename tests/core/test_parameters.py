from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedray.core.parameters import FlatModel, Layout


class Speech(nn.Module):
    """A model with frozen and trainable parameters, batch norm, a GRU, a table, a counter and an unsaved buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Linear(5, 4)
        self.norm = nn.BatchNorm1d(4)
        self.gru = nn.GRU(4, 3, batch_first=True)
        self.out = nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("table", torch.arange(3.0))
        self.register_buffer("seen", torch.zeros(4), persistent=False)
        self.front.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        hidden = self.norm(self.front(x).transpose(1, 2)).transpose(1, 2)
        return self.out(self.gru(hidden)[0] + self.table) * self.scale


@pytest.fixture
def model() -> Speech:
    torch.manual_seed(0)
    return Speech()


def train(model: nn.Module, zero: Callable[[], object], step: Callable[[], object], steps: int = 3) -> None:
    model.train()
    for index in range(steps):
        zero()
        torch.manual_seed(index)
        model(torch.randn(2, 6, 5)).square().mean().backward()
        step()


def test_trainable_first_then_float_buffers_then_what_is_frozen(model: Speech) -> None:
    layout = Layout.of(model)
    parameters = [
        "scale",
        "norm.weight",
        "norm.bias",
        *(f"gru.{name}" for name, _ in model.gru.named_parameters()),
        "out.weight",
        "out.bias",
    ]
    buffers, frozen = ["table", "norm.running_mean", "norm.running_var"], ["front.weight", "front.bias"]
    assert [entry.name for entry in layout.entries] == [*parameters, *buffers, *frozen]
    assert layout.trainable == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert layout.moving == layout.trainable + 3 + 4 + 4 and layout.size == layout.moving + 24
    starts = [entry.start for entry in layout.entries]
    assert [entry.stop for entry in layout.entries] == [*starts[1:], layout.size]
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert all(entry.shape == shapes[entry.name] for entry in layout.entries)


def test_keep_chooses_what_travels(model: Speech) -> None:
    layout = Layout.of(model, lambda name: name.startswith("norm."))
    assert [entry.name for entry in layout.entries] == [
        "norm.weight",
        "norm.bias",
        "norm.running_mean",
        "norm.running_var",
    ]
    assert (layout.trainable, layout.size) == (8, 16)
    nothing = Layout.of(model, lambda name: False)
    assert (nothing.trainable, nothing.size, nothing.join({}).shape) == (0, 0, (0,))


def test_tied_parameters_travel_once() -> None:
    tied = nn.ModuleDict({"embed": nn.Embedding(7, 3), "out": nn.Linear(3, 7, bias=False)})
    tied["out"].weight = tied["embed"].weight
    flat = FlatModel(tied)
    assert [entry.name for entry in flat.layout.entries] == ["embed.weight"]
    flat.load(np.arange(21, dtype=np.float32))
    assert torch.equal(tied["out"].weight, torch.arange(21.0).view(7, 3))
    assert tied["out"].weight is tied["embed"].weight


def test_join_and_cut(model: Speech) -> None:
    layout = Layout.of(model)
    vector = layout.join(model.state_dict())
    assert vector.dtype == np.float32 and vector.shape == (layout.size,)
    tensors = layout.cut(vector)
    state = model.state_dict()
    assert all(
        torch.equal(tensor, state[name]) and tensor.shape == state[name].shape for name, tensor in tensors.items()
    )
    assert np.array_equal(layout.join(tensors), vector)
    tensors["out.bias"] += 1  # `cut` returns copies
    assert np.array_equal(layout.join(model.state_dict()), vector)


def test_what_does_not_fit_is_refused(model: Speech) -> None:
    layout = Layout.of(model)
    with pytest.raises(ValueError, match=rf"7 parameters do not fit a model of {layout.size}: .*another model"):
        layout.cut(np.zeros(7, np.float32))
    with pytest.raises(ValueError, match="do not fit"):
        FlatModel(model).load(np.zeros(layout.size + 1, np.float32))
    wrong = model.state_dict() | {"out.weight": torch.zeros(3, 2)}  # as many numbers, in another shape
    with pytest.raises(ValueError, match=r"out\.weight has shape \[3, 2\], but the model's has \[2, 3\]"):
        layout.join(wrong)


def test_the_vector_is_the_memory_of_the_model(model: Speech) -> None:
    before = copy.deepcopy(model.state_dict())
    flat = FlatModel(model)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    vector = flat.read()
    assert np.array_equal(vector, flat.layout.join(before))
    flat.load(vector * 2)
    state = model.state_dict()
    assert all(torch.equal(state[entry.name], before[entry.name] * 2) for entry in flat.layout.entries)
    vector[:] = 0  # `read` returns a copy
    assert flat.read().any()


def test_training_is_that_of_torch(model: Speech) -> None:
    """One operation on the flat tensors gives the parameters and buffers of torch.optim.SGD on an ordinary copy."""
    ordinary = copy.deepcopy(model)
    optimizer = torch.optim.SGD([p for p in ordinary.parameters() if p.requires_grad], lr=0.1)
    train(ordinary, optimizer.zero_grad, optimizer.step)
    flat = FlatModel(model)
    trainable = flat.values[: flat.layout.trainable]
    train(model, flat.gradient.zero_, lambda: trainable.add_(flat.gradient, alpha=-0.1))
    for name, tensor in ordinary.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor, rtol=1e-6, atol=1e-7)


def test_the_difference_is_what_training_changed(model: Speech) -> None:
    flat = FlatModel(model)
    start = flat.read()
    train(model, flat.gradient.zero_, lambda: flat.values[: flat.layout.trainable].add_(flat.gradient, alpha=-0.1))
    delta, everything = flat.difference(start), flat.difference(start, buffers=True)
    assert delta.shape == (flat.layout.trainable,) and everything.shape == (flat.layout.moving,)
    assert np.array_equal(everything, (flat.layout.join(model.state_dict()) - start)[: flat.layout.moving])
    assert np.array_equal(everything[: flat.layout.trainable], delta) and delta.any()
    changed = {entry.name for entry in flat.layout.entries if everything[entry.start : entry.stop].any()}
    assert {"norm.running_mean", "norm.running_var"} < changed and "table" not in changed


@pytest.mark.parametrize(
    "keep", [lambda name: True, lambda name: "running" not in name], ids=["averaged statistics", "frozen statistics"]
)
def test_nothing_of_a_client_stays(model: Speech, keep: Callable[[str], bool]) -> None:
    """The second client on an actor finds every buffer, including integer and unsaved ones, as the first client did."""
    flat = FlatModel(model, keep)
    start = flat.read()
    model.norm.num_batches_tracked += 5  # as a loader might; `load` undoes it
    found = []
    for _ in range(2):
        flat.load(start)
        found.append({name: tensor.clone() for name, tensor in [*model.named_parameters(), *model.named_buffers()]})
        train(model, flat.gradient.zero_, lambda: flat.values[: flat.layout.trainable].add_(flat.gradient, alpha=-0.1))
        assert model.norm.num_batches_tracked == 3 and model.seen[0] == 3 and model.norm.running_mean.any()
    assert all(torch.equal(found[0][name], tensor) for name, tensor in found[1].items())
    assert (
        found[1]["norm.num_batches_tracked"] == 0
        and not found[1]["norm.running_mean"].any()
        and not found[1]["seen"].any()
    )


def stays(name: str) -> bool:
    return name.startswith("gru.") or name in ("norm.bias", "norm.running_var", "front.weight")


def test_what_stays_with_a_client_follows_what_travels(model: Speech) -> None:
    """A model trains all as one stretch; what travels comes first, in the vector and in a gradient."""
    layout, flat = Layout.of(model, personal=stays), FlatModel(copy.deepcopy(model), personal=stays)
    gru = [f"gru.{name}" for name, _ in model.gru.named_parameters()]
    shared, buffers = ["scale", "norm.weight", "out.weight", "out.bias"], ["table", "norm.running_mean"]
    own, frozen = ["norm.bias", *gru], ["front.weight", "front.bias"]
    names = [*shared, *buffers, *own, "norm.running_var", *frozen]
    assert [entry.name for entry in layout.entries] == names
    assert [entry.name for entry in layout.training.entries] == [
        *shared, *own, *buffers, "norm.running_var", *frozen
    ]  # fmt: skip
    size = sum(parameter.numel() for parameter in model.gru.parameters()) + 4
    assert (layout.trainable, layout.moving, layout.own) == (1 + 4 + 6 + 2, 13 + 3 + 4, (size, 4))
    assert layout.personal == slice(20, 20 + size + 4) and layout.size == layout.personal.stop + 24
    assert layout.tensors == (1, 4, 6, 2)

    vector = layout.join(model.state_dict())
    assert np.array_equal(layout.restored(layout.arranged(vector)), vector)
    flat.load(vector)
    assert np.array_equal(flat.read(), vector) and flat.weights.numel() == 13 + size
    assert all(torch.equal(flat.model.state_dict()[name], model.state_dict()[name]) for name in names)
    train(flat.model, flat.gradient.zero_, lambda: flat.weights.add_(flat.gradient, alpha=-0.1))
    plain = FlatModel(copy.deepcopy(model))
    plain.load(plain.layout.join(model.state_dict()))
    train(plain.model, plain.gradient.zero_, lambda: plain.weights.add_(plain.gradient, alpha=-0.1))
    assert all(torch.equal(flat.model.state_dict()[name], plain.model.state_dict()[name]) for name in names)
    after = layout.join(flat.model.state_dict())
    assert np.array_equal(flat.difference(vector), (after - vector)[:13])
    assert np.array_equal(flat.difference(vector, buffers=True), (after - vector)[:20])
