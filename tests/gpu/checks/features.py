"""Features, masks and windows on the device. fedray computes features on the processor; a GPU could do it too."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from fedray.core.seeds import seed_all
from fedray.data.features.augment import SpecAugment, SpecAugmentSettings
from fedray.data.features.dataset import Batch
from fedray.data.features.log_mel import FLOOR, LogMelSettings, _mel_transform
from fedray.data.features.whisper_mel import _transform
from fedray.training.windows import all_windows, random_window
from tests.gpu.record import Item, Missed, Values, Where
from tests.gpu.workloads import milliseconds

TITLE = "Features, masks, windows"
ABOUT = (
    "Log-mels of two seconds of noise by torchaudio's transform on both devices (fails above 1e-3 in the logarithm), "
    "and SpecAugment and windows on the device: the same seed gives the same masks, about the same share is masked."
)
OPENS_DEVICE = True
SECONDS = 60


def items(where: Where) -> Iterator[Item]:
    for bins, rate in ((40, 16000), (80, 16000), (40, 8000)):
        yield f"log-mel, {bins} bins, {rate} Hz", lambda bins=bins, rate=rate: _log_mel(bins, rate, where)
    yield "whisper's mels", lambda: _mels(_transform(80), 16000, 1e-10, where)
    yield "SpecAugment", lambda: _augment(where)
    yield "windows", lambda: _windows(where)


def _log_mel(bins: int, rate: int, where: Where) -> Values:
    return _mels(_mel_transform(LogMelSettings(bins=bins, sample_rate=rate)), rate, FLOOR, where)


def _mels(transform: torch.nn.Module, rate: int, floor: float, where: Where) -> Values:
    wave = 0.1 * torch.randn(2 * rate, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        here = transform(wave).clamp(min=floor).log()
        there, moved = transform.to(where.device), wave.to(where.device)
        error = float((there(moved).clamp(min=floor).log().cpu() - here).abs().max())
        taken = milliseconds(lambda: there(moved), where, 0.02 if where.tiny else 0.5)
        transform.to("cpu")
        values = {"largest error": error, "ms": taken, "ms on the processor": milliseconds(
            lambda: transform(wave), Where("cpu", where.tiny), 0.02 if where.tiny else 0.5
        )}  # fmt: skip
    if not error < 1e-3:
        raise Missed(f"the logarithms differ by {error:.1e}", values)
    return values


def _augment(where: Where) -> Values:
    augment = SpecAugment(SpecAugmentSettings())
    batch = Batch(torch.ones(64, 300, 40), torch.full((64,), 300), np.arange(64))

    def masked(device: str) -> torch.Tensor:
        seed_all(1)
        return augment(batch.to(device)).features.cpu()

    there, again, here = masked(where.device), masked(where.device), masked("cpu")
    shares = [float((part == 0).float().mean()) for part in (there, here)]
    values: Values = {"masked": shares[0], "masked on the processor": shares[1], "same masks": str(there.equal(again))}
    if not there.equal(again) or abs(shares[0] - shares[1]) > 0.05:
        raise Missed("the masks differ between two runs, or their share from the processor's", values)
    return values


def _windows(where: Where) -> Values:
    batch = Batch(torch.randn(8, 120, 40), torch.arange(50, 130, 10), np.arange(8)).to(where.device)
    random, (whole, clips) = random_window(batch, 98), all_windows(batch, 98)
    return {"random": str(tuple(random.features.shape)), "all": str(tuple(whole.features.shape)), "clips": len(clips)}
