"""The compiled GRU and LSTM have the outputs, gradients and training steps of torch's."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fedray.core.parameters import FlatModel
from fedray.models.crnn import CRNN, CRNNSettings
from fedray.models.kernels.recurrent import recurrent


def assert_near(found: Tensor, expected: Tensor, precise: float = 1e-5) -> None:
    """Compare relative to the norm of the whole tensor: one element may be a difference of large ones."""
    assert found.shape == expected.shape
    assert (found - expected).norm() <= precise * expected.norm()


def packed(module: nn.GRU | nn.LSTM, inputs: Tensor, lengths: Tensor) -> Tensor:
    """The outputs of torch for utterances of these lengths, in float64, with zeros after their ends."""
    double = copy.deepcopy(module).double()
    together = pack_padded_sequence(inputs.double(), lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(double(together)[0], batch_first=True, total_length=inputs.shape[1])[0]


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("layers", "hidden"), [(1, 7), (2, 32)])
@pytest.mark.parametrize("lengths", [[1], [24], [9, 24, 1, 24, 2]])
def test_outputs_and_gradients_are_those_of_the_module(
    kind: type[nn.GRU | nn.LSTM], bidirectional: bool, layers: int, hidden: int, lengths: list[int]
) -> None:
    torch.manual_seed(0)
    module = kind(20, hidden, layers, batch_first=True, bidirectional=bidirectional)
    inputs = torch.randn(len(lengths), max(lengths), 20, requires_grad=True)
    counts = torch.tensor(lengths)
    speech = (torch.arange(max(lengths)) < counts[:, None])[..., None]
    found = recurrent(module, inputs, counts) * speech
    double = copy.deepcopy(module).double()
    together = pack_padded_sequence(precise := inputs.detach().double().requires_grad_(), counts, True, False)
    expected = pad_packed_sequence(double(together)[0], batch_first=True, total_length=max(lengths))[0]
    assert_near(found.double(), expected)
    direction = torch.randn_like(found)
    have = torch.autograd.grad(found, [inputs, *module.parameters()], direction, retain_graph=True)
    again = torch.autograd.grad(found, [inputs, *module.parameters()], direction)
    want = torch.autograd.grad(expected, [precise, *double.parameters()], direction.double())
    for h, a, w in zip(have, again, want, strict=True):
        assert_near(h.double(), w)
        assert torch.equal(h, a)


def test_some_weights_may_be_frozen() -> None:
    module = nn.GRU(20, 32, batch_first=True, bidirectional=True)
    module.weight_hh_l0.requires_grad_(False)
    recurrent(module, torch.randn(2, 5, 20), torch.tensor([5, 3])).sum().backward()
    assert [name for name, parameter in module.named_parameters() if parameter.grad is None] == ["weight_hh_l0"]


def test_dropout_is_between_the_layers() -> None:
    module = nn.LSTM(4, 8, 2, batch_first=True, dropout=0.5)
    inputs, lengths = torch.randn(2, 6, 4), torch.tensor([6, 6])
    torch.manual_seed(1)
    one = recurrent(module, inputs, lengths)
    assert not torch.equal(one, recurrent(module, inputs, lengths))
    torch.manual_seed(1)
    assert torch.equal(one, recurrent(module, inputs, lengths))
    assert_near(recurrent(module.eval(), inputs, lengths), module(inputs)[0])


@pytest.mark.parametrize("size", ["lite", "base", "wide"])
def test_a_step_of_a_flat_model(size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of two batches add up in the flat gradient itself, and one step of SGD ends where nn.GRU's does."""
    torch.manual_seed(0)
    networks = [CRNN(CRNNSettings(size, 0.0), 40, 35)]
    networks.append(copy.deepcopy(networks[0]))
    batches, lengths, labels = torch.randn(2, 16, 98, 40), torch.full((16,), 98), torch.randint(35, (16,))
    flats = [FlatModel(network) for network in networks]
    start = flats[0].read()
    for flat, compiled in zip(flats, [True, False], strict=True):
        monkeypatch.setattr("fedray.models.crnn.on_cpu", lambda frames, compiled=compiled: compiled)
        for features in batches:
            nn.functional.cross_entropy(flat.model(features, lengths), labels).backward()
        inside = [
            parameter.grad.untyped_storage().data_ptr()
            for parameter in flat.model.parameters()
            if parameter.grad is not None
        ]
        assert inside == [flat.gradient.untyped_storage().data_ptr()] * len(flat.layout.entries)
        torch.optim.SGD(flat.model.parameters(), lr=0.1).step()
    assert_near(flats[0].gradient, flats[1].gradient)
    steps = [torch.from_numpy(flat.difference(start)) for flat in flats]
    assert steps[0].any()
    assert_near(steps[0], steps[1], 1e-4)  # the difference of much larger float32 parameters


@pytest.mark.parametrize("other", [{}, {"bias": False, "batch_first": True}])
def test_other_modules_are_refused(other: dict[str, bool]) -> None:
    with pytest.raises(ValueError, match="with biases and batch_first=True"):
        recurrent(nn.GRU(3, 2, **other), torch.zeros(1, 2, 3), torch.tensor([2]))
