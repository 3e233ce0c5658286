"""The compiled encoder has the outputs and gradients of SpeechBrain's modules, in float64 if they support it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from fedray.models.adapters import LoRASettings, adapt
from fedray.models.conformer import Conformer, ConformerSettings
from fedray.models.kernels import feed_forward, rows
from fedray.models.padding import padding
from tests.models.kernels.without import switched_off

SMALL = ConformerSettings(d_model=32, layers=2, heads=2, ffn=48, kernel=7, dropout=0.0)
CASES = {
    "relative": replace(SMALL, attention="RelPosMHAXL"),
    "rotary": SMALL,
    "two dimensions": replace(SMALL, front="conv2d", layers=1),
    "a wide kernel": replace(SMALL, attention="RelPosMHAXL", kernel=31, layers=1, heads=4),
}


def model(settings: ConformerSettings, adapters: bool = False) -> Conformer:
    torch.manual_seed(0)
    made = Conformer(settings, 20, 9)
    if adapters:
        adapt(made, LoRASettings(rank=2))
        for name, parameter in made.named_parameters():
            if name.endswith(".b"):
                torch.nn.init.normal_(parameter, std=0.1)
    return made


def outputs(made: Conformer, features: Tensor, lengths: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Log-probabilities, 0 in the padding, and the gradients of trainable parameters, for one direction."""
    found, counts = made(features, lengths)
    found = found.masked_fill(padding(counts, found.shape[1])[..., None], 0.0)
    torch.manual_seed(1)
    direction = torch.randn(found.shape)
    trains = [parameter for parameter in made.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(found, trains, direction.to(found.dtype), allow_unused=True)
    return found, [gradient for gradient in gradients if gradient is not None]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("lengths", [[3], [61], [60, 33, 3, 59]])
@pytest.mark.parametrize("adapters", [False, True])
def test_outputs_and_gradients_are_those_of_speechbrain(case: str, lengths: list[int], adapters: bool) -> None:
    made = model(CASES[case], adapters)
    features, counts = torch.randn(len(lengths), max(lengths), 20), torch.tensor(lengths)
    found, gradients = outputs(made, features, counts)
    plain = model(CASES[case], adapters)
    # RelPosMHAXL computes its softmax in float32 only.
    kind, precise = (torch.float32, 1e-4) if "Rel" in made.settings.attention else (torch.float64, 1e-5)
    with switched_off():
        expected, wanted = outputs(plain.to(kind), features.to(kind), counts)
    assert (found - expected).abs().max() <= precise * expected.abs().max()
    assert len(gradients) == len(wanted) > 10
    whole = torch.cat([want.flatten() for want in wanted]).norm()
    for have, want in zip(gradients, wanted, strict=True):
        assert (have - want).norm() <= precise * want.norm() + 1e-7 * whole


def test_padding_has_no_part_in_it() -> None:
    made = model(CASES["relative"])
    alone = torch.randn(1, 33, 20)
    batch = torch.randn(2, 60, 20)
    batch[0, :33] = alone
    together, lengths = made(batch, torch.tensor([33, 60]))
    one, _ = made(alone, torch.tensor([33]))
    torch.testing.assert_close(together[0, : lengths[0]], one[0], rtol=1e-4, atol=1e-5)


def test_other_modules_run_where_the_loops_do_not() -> None:
    features, lengths = torch.randn(2, 40, 20), torch.tensor([40, 31])
    compiled = model(CASES["relative"])
    plain = model(CASES["relative"])
    names = [type(module).__name__ for module in plain.modules()]
    called: list[str] = []
    for module in plain.modules():
        module.register_forward_hook(lambda module, inputs, output: called.append(type(module).__name__))
    with switched_off():
        expected = plain(features, lengths)[0]
    torch.testing.assert_close(expected, compiled(features, lengths)[0], rtol=1e-4, atol=1e-5)
    assert "RelPosMHAXL" in called and "RelPosMHAXL" in names


def test_seeds_decide_what_is_dropped() -> None:
    made, features, lengths = model(replace(SMALL, dropout=0.2)), torch.randn(2, 40, 20), torch.tensor([40, 31])
    torch.manual_seed(3)
    first, second = (made(features, lengths)[0].detach() for _ in range(2))
    torch.manual_seed(3)
    assert torch.equal(made(features, lengths)[0], first) and not torch.equal(first, second)
    made.eval()
    assert torch.equal(*(made(features, lengths)[0] for _ in range(2)))


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5])
def test_the_share_that_is_dropped(share: float) -> None:
    torch.manual_seed(0)
    one, other = rows.drops(share, 2)
    masks = [rows.Dropout.apply(torch.ones(1000, 300), drop) for drop in (one, other)]
    for mask in masks:
        assert set(mask.unique().tolist()) <= {0.0, float(one.scale)}
        assert (mask == 0).float().mean() == pytest.approx(share, abs=0.003)
        for step in ((mask[1:], mask[:-1]), (mask[:, 1:], mask[:, :-1])):  # neighbours are dropped independently
            both = ((step[0] == 0) & (step[1] == 0)).float().mean()
            assert both == pytest.approx(share**2, abs=0.003)
    assert ((masks[0] == 0) & (masks[1] == 0)).float().mean() == pytest.approx(share**2, abs=0.003)


def test_the_backward_pass_drops_what_the_forward_pass_dropped() -> None:
    """A feed-forward part equals its formula, with the two masks written out, in outputs and gradients."""
    torch.manual_seed(0)
    x, weights = torch.randn(50, 8), [torch.randn(*shape) for shape in ((8,), (8,), (12, 8), (12,), (8, 12), (8,))]
    tensors = [tensor.requires_grad_() for tensor in (x, *weights)]
    inner, outer = rows.drops(0.3, 2)
    found = feed_forward.FeedForward.apply(*tensors, inner, outer)
    mask, other = (rows.Dropout.apply(torch.ones(shape), d) for shape, d in (((50, 12), inner), ((50, 8), outer)))
    normed = torch.nn.functional.layer_norm(x, (8,), *weights[:2])
    wide = torch.nn.functional.silu(normed @ weights[2].t() + weights[3]) * mask
    expected = x + 0.5 * other * (wide @ weights[4].t() + weights[5])
    torch.testing.assert_close(found, expected)
    direction = torch.randn_like(found)
    pairs = zip(*(torch.autograd.grad(y, tensors, direction) for y in (found, expected)), strict=True)
    for have, want in pairs:
        torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-5)


def test_dropouts_come_from_the_global_generator() -> None:
    torch.manual_seed(5)
    first = rows.drops(0.1, 3)
    torch.manual_seed(5)
    assert rows.drops(0.1, 3) == first and len({drop.seed for drop in first}) == 3
    state = torch.get_rng_state()
    assert rows.drops(0.0, 3)[0].threshold == np.uint32(0)
    assert torch.equal(torch.get_rng_state(), state), "nothing is drawn where nothing is dropped"
