"""The compiled CTC loss and its gradients are those of torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedray.models.kernels.ctc import ctc_loss


def losses(logits: Tensor, targets: list[list[int]], lengths: list[int]) -> list[Tensor]:
    """The compiled loss and torch's in float64, each followed by the logits' gradient of 3 x the loss."""
    flat, sizes = torch.tensor(sum(targets, [])), torch.tensor([len(row) for row in targets])
    found = []
    for kind in (torch.float32, torch.float64):
        x = logits.to(kind).requires_grad_()
        log_probs, frames = x.log_softmax(-1), torch.tensor(lengths)
        if kind == torch.float32:
            loss = ctc_loss(log_probs, flat, frames, sizes)
        else:
            loss = functional.ctc_loss(log_probs.transpose(0, 1), flat.long(), frames, sizes, zero_infinity=True)
        found += [loss.detach().double(), *torch.autograd.grad(3 * loss, x)]
    return found


@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
@pytest.mark.parametrize(
    ("targets", "lengths"),
    [
        ([[1]], [1]),
        ([[]], [4]),
        ([[2, 2]], [3]),
        ([[1, 2, 3, 3, 1], [4], [], [1, 1, 1]], [60, 7, 13, 5]),
        ([[5, 4, 3, 2, 1] * 8, [1, 2] * 30], [200, 60]),
    ],
)
def test_losses_and_gradients_are_those_of_torch(targets: list[list[int]], lengths: list[int], scale: float) -> None:
    torch.manual_seed(0)
    logits = scale * torch.randn(len(lengths), max(lengths), 6)
    found, gradient, expected, wanted = losses(logits, targets, lengths)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient.double(), wanted, rtol=1e-3, atol=1e-5)
    for row, length in zip(gradient, lengths, strict=True):
        assert not row[length:].any()


def test_too_few_frames_count_as_no_loss() -> None:
    logits = torch.randn(2, 6, 5)
    found, gradient, expected, wanted = losses(logits, [[1, 1, 2], [3, 3, 3, 3]], [6, 6])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient.double(), wanted, rtol=1e-4, atol=1e-6)
    assert gradient[0].any() and not gradient[1].any()


def test_the_loss_of_what_is_not_a_number_is_none() -> None:
    logits = torch.randn(2, 30, 5)
    logits[1, 7, 2] = torch.nan
    assert losses(logits, [[1, 2], [3, 4]], [30, 30])[0].isnan()


@pytest.mark.parametrize(
    ("token", "length", "words"), [(7, 4, "has 5 tokens"), (-1, 4, "has 5 tokens"), (1, 9, "has 6 frames")]
)
def test_what_lies_beyond_is_refused(token: int, length: int, words: str) -> None:
    log_probs = torch.zeros(1, 6, 5).log_softmax(-1)
    with pytest.raises(ValueError, match=words):
        ctc_loss(log_probs, torch.tensor([token]), torch.tensor([length]), torch.tensor([1]))
