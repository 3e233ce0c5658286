"""What a recording sounds like, in four numbers: loudness, harmonics over noise, permutation entropy, and a blind signal-to-noise ratio.

The low-level features of Gao et al. (ICASSP 2022, section 3.2), which tell more of microphone, distance and room than of the speaker. The
first three are means over frames of 25 ms (60 ms for the harmonics, which need some periods of a voice), 10 ms apart. The paper gives no
formulas: those here stand with each function, and compare corpora with each other rather than with the paper's figures.
"""

from __future__ import annotations

import functools
import math
import os
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from filelock import FileLock
from numpy.lib.stride_tricks import sliding_window_view
from scipy.fft import irfft, next_fast_len, rfft
from scipy.signal import lfilter
from torchaudio.transforms import MelSpectrogram

from fedray.core.cache import cache_root

Waveform = npt.NDArray[np.float32]  # [samples], -1..1

SAMPLE_RATE = 16_000
FRAME, PERIODS_FRAME, HOP = 400, 960, 160  # samples: 25, 60 and 10 ms
PITCH = (65.0, 500.0)  # Hz, lowest and highest voice
ORDER = 4  # samples of a permutation: 24 patterns
PREDICTION = 10  # order of linear prediction
BINS = 40
MEASURES = ("loudness", "log HNR", "permutation entropy", "blind SNR")
UNITS = {"loudness": "", "log HNR": "dB", "permutation entropy": "", "blind SNR": "dB"}


def measure(waveform: Waveform) -> tuple[float, float, float, float]:
    """All MEASURES of a waveform at 16 kHz; NaN where one does not exist (a blind SNR without voice, an HNR of digital silence).

    Raises ValueError for less than 60 ms.
    """
    if len(waveform) < PERIODS_FRAME:
        raise ValueError(f"{1000 * len(waveform) / SAMPLE_RATE:.0f} ms are too short to be measured: 60 are needed")
    return loudness(waveform), log_hnr(waveform), permutation_entropy(waveform), blind_snr(waveform)


def loudness(waveform: Waveform) -> float:
    """Mean of intensity^0.3 (Stevens' law; full scale is 1), intensity the mean square of a frame."""
    return float(np.mean(np.square(frames(waveform, FRAME), dtype=np.float64).mean(axis=1) ** 0.3))


def log_hnr(waveform: Waveform) -> float:
    """Mean of 10 log10(r / (1 - r)) in dB, within +-40: r is the autocorrelation's highest peak within the lags of a voice.

    The autocorrelation of the windowed frame is divided by that of the window (Boersma, 1993). Frames of zeros are left out.
    """
    cut = frames(waveform, PERIODS_FRAME).astype(np.float64)
    cut = cut - cut.mean(axis=1, keepdims=True)
    cut = cut[np.square(cut).sum(axis=1) > 0]
    if not len(cut):
        return math.nan
    window = np.hanning(PERIODS_FRAME)
    lags = slice(int(SAMPLE_RATE / PITCH[1]), int(SAMPLE_RATE / PITCH[0]) + 1)
    own, of_window = autocorrelation(cut * window), autocorrelation(window)
    r = (own[:, lags] / own[:, :1]) / (of_window[lags] / of_window[0])
    peak = np.clip(r.max(axis=1), 1e-4, 1 - 1e-4)
    return float(np.mean(10 * np.log10(peak / (1 - peak))))


def permutation_entropy(waveform: Waveform) -> float:
    """Mean entropy of the orders in which four neighbouring samples rise, over that of white noise: 0 a ramp or silence, 1 noise."""
    orders = np.argsort(sliding_window_view(waveform, ORDER), axis=1, kind="stable")
    codes = orders @ (ORDER ** np.arange(ORDER))
    _, patterns = np.unique(codes, return_inverse=True)
    cut = frames(patterns, FRAME - ORDER + 1)
    kinds = int(patterns.max()) + 1
    counts = np.bincount((cut + kinds * np.arange(len(cut))[:, None]).ravel(), minlength=kinds * len(cut)).reshape(len(cut), kinds)
    share = counts / counts.sum(axis=1, keepdims=True)
    entropy = -(share * np.log(share, out=np.zeros_like(share), where=share > 0)).sum(axis=1)
    return float(np.mean(entropy / math.log(math.factorial(ORDER))))


def blind_snr(waveform: Waveform) -> float:
    """Energy of the voiced chunks over that of what linear prediction of order 10 leaves of them, in dB; NaN without voice.

    Voice is where probabilistic YIN finds a pitch; the prediction is fitted to the whole recording.
    """
    librosa = compiled_librosa()
    chunks = np.repeat(_voiced(librosa, waveform), HOP * 2)[: len(waveform)]
    if not chunks.any():
        return math.nan
    signal = waveform.astype(np.float64)
    left = lfilter(librosa.lpc(signal, order=PREDICTION), [1.0], signal)
    chunks = np.pad(chunks, (0, len(signal) - len(chunks)))
    noise = float(np.square(left[chunks]).sum())
    return 10 * math.log10(float(np.square(signal[chunks]).sum()) / noise) if noise > 0 else math.nan


def _voiced(librosa: Any, waveform: Waveform) -> npt.NDArray[np.bool_]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pYIN warns of what it returns as unvoiced
        return librosa.pyin(waveform, fmin=PITCH[0], fmax=PITCH[1], sr=SAMPLE_RATE, frame_length=1024, hop_length=HOP * 2)[1]


@functools.cache
def compiled_librosa() -> Any:
    """librosa, which is in the extra `study` and takes seconds to import, with what numba compiles for it.

    Processes that fill numba's cache at once mix up their files, and from then on whoever reads them crashes (numba 0.68): one at a time
    makes them, in a folder of fedray's, or finds them made.
    """
    folder = cache_root() / "numba"
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("NUMBA_CACHE_DIR", str(folder))
    with FileLock(folder / ".lock"):
        import librosa

        second = np.sin(np.arange(SAMPLE_RATE) * (2 * np.pi * 200 / SAMPLE_RATE))
        _voiced(librosa, second.astype(np.float32))
        librosa.lpc(second, order=PREDICTION)
    return librosa


def mel_statistics(waveform: Waveform) -> npt.NDArray[np.float32]:
    """Mean and SD over time of 40 log-mels, [80]: a fingerprint of voice and channel where no speaker model is at hand."""
    mels = torch.log(_mels()(torch.from_numpy(waveform)) + 1e-6)
    statistics: npt.NDArray[np.float32] = torch.cat([mels.mean(dim=1), mels.std(dim=1)]).numpy()
    return statistics


def frames(signal: npt.NDArray[np.generic], size: int) -> npt.NDArray[np.generic]:
    """[samples] -> [frames, size], a view."""
    return sliding_window_view(signal, size)[::HOP]


def autocorrelation(signals: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Of the last axis, for the lags 0, 1, ..."""
    size = signals.shape[-1]
    length = next_fast_len(2 * size, real=True)
    return irfft(np.abs(rfft(signals, length)) ** 2, length)[..., :size]


@functools.cache
def _mels() -> MelSpectrogram:
    return MelSpectrogram(SAMPLE_RATE, n_fft=FRAME, hop_length=HOP, n_mels=BINS)
