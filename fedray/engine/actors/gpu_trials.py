"""Trials of a device: the operations that every run needs. `fedray doctor` runs them on each GPU.

`python -m fedray.engine.actors.gpu_trials cuda:0` prints a line of JSON for each: its name, whether it worked, the
result.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch
from torch.nn.functional import ctc_loss


def free_memory(device: str) -> str:
    """Free and total memory of a GPU, in words."""
    if device == "cpu":
        return "main memory"
    free, total = torch.cuda.mem_get_info(device)
    return f"{free / 1e9:,.1f} GB free of {total / 1e9:,.1f} GB"


def matmul(device: str) -> str:
    """A matrix product of small whole numbers, which is exact in every precision."""
    a = torch.arange(64 * 64, device=device).remainder(5).float().view(64, 64)
    check_same(a @ a.T, (a.cpu().long() @ a.cpu().long().T).float())
    return "exact"


def ctc(device: str) -> str:
    """The gradient of the CTC loss in float32, compared with the processor's."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20, 3, 6, generator=generator)
    targets, lengths, sizes = torch.tensor([1, 2, 2, 3, 4, 5]), torch.tensor([20, 15, 9]), torch.tensor([3, 2, 1])

    def gradient(where: str) -> torch.Tensor:
        here = logits.to(where).requires_grad_()
        loss = ctc_loss(here.log_softmax(-1), targets.to(where), lengths.to(where), sizes.to(where), zero_infinity=True)
        loss.backward()  # type: ignore[no-untyped-call]
        assert here.grad is not None
        return here.grad

    check_same(gradient(device), gradient("cpu"))
    return "the gradient agrees with the processor's"


def gru(device: str) -> str:
    """A forward and a backward pass of a GRU, which needs cuDNN on a GPU."""
    torch.manual_seed(0)
    module, frames = torch.nn.GRU(8, 16, batch_first=True, bidirectional=True), torch.randn(4, 10, 8)

    def gradient(where: str) -> torch.Tensor:
        module.to(where).zero_grad()
        module(frames.to(where))[0].square().mean().backward()
        assert isinstance(module.weight_hh_l0.grad, torch.Tensor)
        return module.weight_hh_l0.grad.clone()

    check_same(gradient(device), gradient("cpu"))
    return "a step agrees with the processor's"


def check_same(there: torch.Tensor, here: torch.Tensor) -> None:
    """RuntimeError: the numbers differ by more than rounding, TF32 included."""
    error = float((there.cpu() - here).norm() / here.norm())
    if not error < 1e-2:
        raise RuntimeError(f"the result differs from the processor's by {100 * error:.3g} %")


TRIALS: dict[str, Callable[[str], str]] = {
    "free memory": free_memory,
    "matrix product": matmul,
    "CTC loss": ctc,
    "GRU": gru,
}


def main(device: str) -> None:
    """Run all trials. If one fails, its error is printed and the others still run."""
    for name, trial in TRIALS.items():
        try:
            worked, text = True, trial(device)
        except Exception as error:  # noqa: BLE001 - whatever the device raises
            worked, text = False, " ".join(str(error).split())[:200] or type(error).__name__
        print(json.dumps([name, worked, text]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
