"""The GRU with a backward pass of its own is nn.GRU: its outputs, its gradients, its steps."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from fedray.core.parameters import FlatModel
from fedray.models import crnn
from fedray.models.crnn import CRNN, CRNNSettings
from fedray.models.recurrent import gru

PRECISE = {torch.float32: 1e-5, torch.float64: 1e-10}


def module(bidirectional: bool, dtype: torch.dtype, features: int = 20, hidden: int = 32) -> nn.GRU:
    torch.manual_seed(0)
    return nn.GRU(features, hidden, batch_first=True, bidirectional=bidirectional).to(dtype)


def assert_near(found: Tensor, expected: Tensor, precise: float) -> None:
    """Relative to the whole tensor: one element may be a difference of large ones."""
    assert found.shape == expected.shape
    assert (found - expected).norm() <= precise * expected.norm()


@pytest.mark.parametrize("dtype", PRECISE)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("time", [1, 24])
@pytest.mark.parametrize("to_inputs", [False, True])
def test_outputs_and_gradients_are_those_of_the_module(
    dtype: torch.dtype, bidirectional: bool, batch: int, time: int, to_inputs: bool
) -> None:
    model = module(bidirectional, dtype)
    inputs = torch.randn(batch, 20, time, dtype=dtype, requires_grad=to_inputs)  # time last, as convolutions leave it
    expected, found = model(inputs.transpose(1, 2))[0], gru(model, inputs.transpose(1, 2))
    assert_near(found, expected, PRECISE[dtype])
    direction = torch.randn_like(expected)
    to = [*model.parameters(), *([inputs] if to_inputs else [])]
    want = torch.autograd.grad(expected, to, direction)
    have = torch.autograd.grad(found, to, direction, retain_graph=True)
    again = torch.autograd.grad(found, to, direction)
    for w, h, a in zip(want, have, again, strict=True):
        if time == 1 and not w.any():  # no state but zeros has met these weights
            assert not h.any()
        assert_near(h, w, PRECISE[dtype])
        assert torch.equal(h, a)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_gradients_are_numerical_ones(bidirectional: bool) -> None:
    model = module(bidirectional, torch.float64, 3, 2)
    inputs = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    # gradcheck moves the parameters in place, so the module need not be told.
    assert torch.autograd.gradcheck(lambda inputs, *_: gru(model, inputs), (inputs, *model.parameters()))


def test_some_weights_may_be_frozen() -> None:
    model = module(True, torch.float32)
    model.weight_hh_l0.requires_grad_(False)
    gru(model, torch.randn(2, 5, 20)).sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == ["weight_hh_l0"]


@pytest.mark.parametrize("size", ["lite", "base"])
def test_a_step_of_a_flat_model(size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of two batches add up in the flat gradient itself, and one step of SGD lands where nn.GRU's does."""
    torch.manual_seed(0)
    networks = [CRNN(CRNNSettings(size, 0.0), 40, 35)]
    networks.append(copy.deepcopy(networks[0]))
    batches, lengths, labels = torch.randn(2, 16, 98, 40), torch.full((16,), 98), torch.randint(35, (16,))
    flats = [FlatModel(network) for network in networks]
    start = flats[0].read()
    for flat, own in zip(flats, [True, False], strict=True):
        if not own:
            monkeypatch.setattr(crnn, "gru", lambda module, inputs: module(inputs)[0])
        for features in batches:
            nn.functional.cross_entropy(flat.model(features, lengths), labels).backward()
        inside = [
            parameter.grad.untyped_storage().data_ptr()
            for parameter in flat.model.parameters()
            if parameter.grad is not None
        ]
        assert inside == [flat.gradient.untyped_storage().data_ptr()] * len(flat.layout.entries)
        torch.optim.SGD(flat.model.parameters(), lr=0.1).step()
    assert_near(flats[0].gradient, flats[1].gradient, 1e-5)
    steps = [torch.from_numpy(flat.difference(start)) for flat in flats]
    assert steps[0].any()
    assert_near(steps[0], steps[1], 1e-4)  # a difference of float32 parameters that are far larger than it


def test_it_stands_in_where_the_crnn_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    model, features, lengths = CRNN(CRNNSettings("tiny", 0.0), 40, 35), torch.randn(2, 98, 40), torch.tensor([98, 98])
    trained = model(features, lengths)
    assert "_GRU" in str(trained.grad_fn.next_functions[1][0].next_functions[0][0].name())  # logits, mean, GRU
    monkeypatch.setattr(crnn, "gru", None)
    with torch.no_grad():
        torch.testing.assert_close(model(features, lengths), trained.detach())


@pytest.mark.parametrize("other", [{"num_layers": 2, "batch_first": True}, {}, {"bias": False, "batch_first": True}])
def test_other_grus_are_refused(other: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="one layer with biases and batch_first=True"):
        gru(nn.GRU(3, 2, **other), torch.zeros(1, 2, 3))
