"""The compiled convolutional blocks have the outputs, gradients and training steps of SpeechBrain's CRDNN."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedray.models.crdnn import CRDNN, CRDNNSettings
from fedray.models.kernels import maps, rows
from fedray.models.kernels.maps_loops import kept_bins
from fedray.models.padding import padding
from tests.models.kernels.test_recurrent import assert_near
from tests.models.kernels.without import switched_off

SMALL = CRDNNSettings(channels=(8, 16), time_pooling=4, rnn_neurons=16, dnn_neurons=16, dropout=0.0)
CASES = {
    "two blocks": (SMALL, 32),
    "channels that are no multiples of four, odd bins": (replace(SMALL, channels=(3, 5), time_pooling=3), 23),
    "three blocks, no pooling of time": (replace(SMALL, channels=(2, 7, 6), time_pooling=1), 8),
    "a GRU": (replace(SMALL, channels=(12,), time_pooling=2, rnn="gru"), 17),
}
LENGTHS = [[61], [4, 4], [60, 33, 5, 59]]


def model(settings: CRDNNSettings, bins: int) -> CRDNN:
    """A CRDNN with random parameters in its norms; before the first step, weights would be one and biases zero."""
    torch.manual_seed(0)
    made = CRDNN(settings, bins, 9)
    for name, parameter in made.named_parameters():
        if ".norm" in name:
            nn.init.normal_(parameter)
    return made


def maps_of(made: CRDNN, features: Tensor, lengths: Tensor) -> Tensor:
    """The input of the recurrent layers, [B, T', D], as the modules compute it for each utterance alone."""
    encoder, longest = made.encoder, features.shape[1] // made.settings.time_pooling
    alone = [
        encoder["time_pooling"](encoder["CNN"](x[None, :count]))
        for x, count in zip(features, lengths.tolist(), strict=True)
    ]
    return torch.cat([nn.functional.pad(x.flatten(2), (0, 0, 0, longest - x.shape[1])) for x in alone])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_blocks_are_those_of_speechbrain(case: str, lengths: list[int]) -> None:
    settings, bins = CASES[case]
    made, counts = model(settings, bins), torch.tensor(lengths)
    features = torch.randn(len(lengths), max(lengths), bins)
    precise = copy.deepcopy(made).double()
    inputs = [features.clone().requires_grad_(), features.double().requires_grad_()]
    found = maps.blocks(made.encoder["CNN"].values(), inputs[0], counts, settings.time_pooling).flatten(2)
    expected = maps_of(precise, inputs[1], counts)
    assert_near(found.double(), expected)
    direction = torch.randn_like(found)
    have = torch.autograd.grad(found, [inputs[0], *made.encoder["CNN"].parameters()], direction)
    want = torch.autograd.grad(expected, [inputs[1], *precise.encoder["CNN"].parameters()], direction.double())
    whole = torch.cat([gradient.flatten() for gradient in want]).norm()
    for h, w in zip(have, want, strict=True):
        assert h.shape == w.shape
        assert (h - w).norm() <= 1e-5 * w.norm() + 1e-7 * whole  # almost 0 for a bias before a norm over few values


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("training", [True, False])
def test_the_whole_model_is_that_of_the_modules(case: str, lengths: list[int], training: bool) -> None:
    settings, bins = CASES[case]
    made = model(settings, bins).train(training)
    plain = model(settings, bins).double().train(training)  # the loops take float32 only
    counts, features = torch.tensor(lengths), torch.randn(len(lengths), max(lengths), bins)
    found, frames = made(features, counts)
    expected, others = plain(features.double(), counts)
    assert torch.equal(frames, others)
    speech = ~padding(frames, found.shape[1])
    direction = torch.randn(found.shape) * speech[..., None]
    assert_near(found[speech].double(), expected[speech])
    have = torch.autograd.grad(found, list(made.parameters()), direction)
    want = torch.autograd.grad(expected, list(plain.parameters()), direction.double())
    whole = torch.cat([gradient.flatten() for gradient in want]).norm()
    # In training, batch norm over few frames amplifies rounding errors of float32.
    precise = (1e-5, 1e-7) if not training else (1e-4, 1e-5)
    for h, w in zip(have, want, strict=True):
        assert (h - w).norm() <= precise[0] * w.norm() + precise[1] * whole
    for (name, buffer), other in zip(made.named_buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(buffer.to(other.dtype), other, rtol=1e-5, atol=1e-6, msg=name)


def test_what_stands_in_the_padding_has_no_part_in_it() -> None:
    made, counts = model(SMALL, 32), torch.tensor([40, 21])
    features = torch.randn(2, 40, 32)
    filled = features.clone()
    filled[1, 21:] = torch.nan
    outputs = [made.encode(x, counts)[0] for x in (features, filled)]
    assert torch.equal(*outputs)
    gradients = [torch.autograd.grad(x.sum(), list(made.encoder["CNN"].parameters())) for x in outputs]
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


def test_dropout_is_that_of_the_modules() -> None:
    """Dropout drops a bin in all frames and channels; the backward pass drops what the forward pass dropped."""
    made, counts = model(replace(SMALL, channels=(8,), time_pooling=1, dropout=0.4), 20), torch.tensor([30, 17])
    (block,) = made.encoder["CNN"].values()
    features, parameters = torch.randn(2, 30, 20), list(block.parameters())
    torch.manual_seed(3)
    found = maps.blocks([block], features, counts, 1)
    torch.manual_seed(3)
    (drop,), mask = rows.drops(0.4, 1), torch.empty(2, 8 * 10)
    for utterance, kept in enumerate(mask):
        kept_bins(utterance, 10, *drop, kept.numpy())
    assert torch.equal(mask.view(2, 8, 10)[:, :1].expand(2, 8, 10), mask.view(2, 8, 10))
    expected = maps_of(made.eval(), features, counts).view(2, 30, 10, 8) * mask.view(2, 1, 8, 10).transpose(2, 3)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    direction = torch.randn_like(found)
    for h, w in zip(*(torch.autograd.grad(x, parameters, direction) for x in (found, expected)), strict=True):
        assert_near(h, w)
    assert 0 < (mask == 0).float().mean() < 1


def test_training_without_dropout_ends_at_the_same_loss() -> None:
    """30 steps of SGD end at the same loss in compiled loops and in the modules, which compute in float64.

    In float32 the modules differ more, because rounding decides some maxima.
    """
    features, counts = torch.randn(6, 60, 32, generator=torch.Generator().manual_seed(1)), torch.tensor([60, 41] * 3)
    losses = []
    for kind in (torch.float32, torch.float64):
        torch.manual_seed(0)
        made = CRDNN(SMALL, 32, 9).to(kind)
        optimizer = torch.optim.SGD(made.parameters(), lr=0.0001)
        for _ in range(30):
            found, frames = made(features.to(kind), counts)
            tokens = torch.tensor([[1, 2, 3]] * 6)
            loss = nn.functional.ctc_loss(found.transpose(0, 1), tokens, frames, torch.full((6,), 3))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.filterwarnings("ignore:dropout2d. Received a 3D input")  # SpeechBrain squeezes a single map
@pytest.mark.parametrize("other", ["float64", "autocast", "switch", "one map"])
def test_the_modules_run_where_the_loops_do_not(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(SMALL, channels=(1, 8)) if other == "one map" else SMALL
    made, features = model(settings, 32).eval(), torch.randn(2, 40, 32)
    if other == "float64":
        made, features = made.double(), features.double()

    def refuse(*_: object) -> None:
        raise AssertionError("the compiled loops ran")

    monkeypatch.setattr(maps, "blocks", refuse)
    switch = switched_off() if other == "switch" else nullcontext()
    with switch, torch.autocast("cpu", torch.bfloat16, enabled=other == "autocast"):
        made(features, torch.tensor([40, 31]))
