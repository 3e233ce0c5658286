"""Four acoustic measures of a recording: loudness, harmonics-to-noise ratio, permutation entropy and blind SNR.

These are the low-level features of Gao et al. (ICASSP 2022, section 3.2). They describe the microphone, distance and
room more than the speaker. The first three are means over frames, 10 ms apart. Frames last 25 ms, but 60 ms for the
harmonics-to-noise ratio, which needs several periods of a voice. The paper gives no formulas. Those here are in the
docstrings: they compare corpora with each other, not with the paper's figures.
"""

from __future__ import annotations

import functools
import math
import os
import warnings
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from filelock import FileLock
from numpy.lib.stride_tricks import sliding_window_view
from scipy.fft import irfft, next_fast_len, rfft
from scipy.signal import lfilter
from torchaudio.transforms import MelSpectrogram

from fedray.storage.cache import own_root

Waveform = npt.NDArray[np.float32]  # [samples], -1..1
Number = TypeVar("Number", bound=np.generic)

SAMPLE_RATE = 16_000
FRAME, PERIODS_FRAME, HOP = 400, 960, 160  # samples: 25, 60 and 10 ms
PITCH = (65.0, 500.0)  # Hz, the lowest and the highest pitch of a voice
ORDER = 4  # samples in a permutation: 24 patterns
PREDICTION = 10  # order of linear prediction
BINS = 40
MEASURES = ("loudness", "log HNR", "permutation entropy", "blind SNR")
UNITS = {"loudness": "", "log HNR": "dB", "permutation entropy": "", "blind SNR": "dB"}


def measure(waveform: Waveform) -> tuple[float, float, float, float]:
    """All MEASURES of a waveform at 16 kHz.

    A measure is NaN where it is undefined: the blind SNR without voice, the HNR of digital silence. Raises ValueError
    for less than 60 ms.
    """
    if len(waveform) < PERIODS_FRAME:
        raise ValueError(f"{1000 * len(waveform) / SAMPLE_RATE:.0f} ms is too short to be measured: 60 ms is needed")
    return loudness(waveform), log_hnr(waveform), permutation_entropy(waveform), blind_snr(waveform)


def loudness(waveform: Waveform) -> float:
    """Mean over frames of intensity^0.3 (Stevens' law; full scale is 1).

    The intensity is the mean square of a frame.
    """
    return float(np.mean(np.square(frames(waveform, FRAME), dtype=np.float64).mean(axis=1) ** 0.3))


def log_hnr(waveform: Waveform) -> float:
    """Mean over frames of 10 log10(r / (1 - r)) in dB, within +-40.

    r is the highest autocorrelation at the lags of PITCH. The autocorrelation of the windowed frame is divided by
    that of the window (Boersma, 1993). Frames of zeros are skipped.
    """
    cut = frames(waveform, PERIODS_FRAME).astype(np.float64)
    cut = cut - cut.mean(axis=1, keepdims=True)
    cut = cut[np.square(cut).sum(axis=1) > 0]
    if not len(cut):
        return math.nan
    window = np.hanning(PERIODS_FRAME)
    lags = slice(int(SAMPLE_RATE / PITCH[1]), int(SAMPLE_RATE / PITCH[0]) + 1)
    of_frames, of_window = autocorrelation(cut * window), autocorrelation(window)
    r = (of_frames[:, lags] / of_frames[:, :1]) / (of_window[lags] / of_window[0])
    peak = np.clip(r.max(axis=1), 1e-4, 1 - 1e-4)
    return float(np.mean(10 * np.log10(peak / (1 - peak))))


def permutation_entropy(waveform: Waveform) -> float:
    """Mean over frames of the entropy of the rank orders of four neighbouring samples, divided by that of white noise.

    0 for a ramp or silence, 1 for white noise.
    """
    orders = np.argsort(sliding_window_view(waveform, ORDER), axis=1, kind="stable")
    codes = orders @ (ORDER ** np.arange(ORDER))
    _, patterns = np.unique(codes, return_inverse=True)
    cut = frames(patterns, FRAME - ORDER + 1)
    kinds = int(patterns.max()) + 1
    cells = (cut + kinds * np.arange(len(cut))[:, None]).ravel()
    counts = np.bincount(cells, minlength=kinds * len(cut)).reshape(len(cut), kinds)
    share = counts / counts.sum(axis=1, keepdims=True)
    entropy = -(share * np.log(share, out=np.zeros_like(share), where=share > 0)).sum(axis=1)
    return float(np.mean(entropy / math.log(math.factorial(ORDER))))


def blind_snr(waveform: Waveform) -> float:
    """Ratio of the energy of the voiced chunks to that of their residual, in dB; NaN without voice.

    The residual is the error of a linear prediction of order 10, fitted to the whole recording. A chunk is voiced if
    probabilistic YIN finds a pitch in it.
    """
    librosa = compiled_librosa()
    voiced = np.repeat(_voiced(librosa, waveform), HOP * 2)[: len(waveform)]
    if not voiced.any():
        return math.nan
    signal = waveform.astype(np.float64)
    residual = lfilter(librosa.lpc(signal, order=PREDICTION), [1.0], signal)
    voiced = np.pad(voiced, (0, len(signal) - len(voiced)))
    noise = float(np.square(residual[voiced]).sum())
    return 10 * math.log10(float(np.square(signal[voiced]).sum()) / noise) if noise > 0 else math.nan


def _voiced(librosa: ModuleType, waveform: Waveform) -> npt.NDArray[np.bool_]:
    """Whether each chunk of 20 ms has a pitch, bool [chunks]."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pYIN warns if it finds no pitch
        voiced: npt.NDArray[np.bool_] = librosa.pyin(
            waveform, fmin=PITCH[0], fmax=PITCH[1], sr=SAMPLE_RATE, frame_length=1024, hop_length=HOP * 2
        )[1]
    return voiced


@functools.cache
def compiled_librosa() -> ModuleType:
    """Import librosa (from the extra `study`), and have numba compile the functions used here.

    This takes seconds. Processes that fill numba's cache at the same time damage its files, and every later reader
    crashes (numba 0.68). A lock lets one process at a time compile, into $NUMBA_CACHE_DIR or a folder in fedray's
    cache.
    """
    folder = Path(os.environ.setdefault("NUMBA_CACHE_DIR", str(own_root() / "numba")))
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        import librosa

        second = np.sin(np.arange(SAMPLE_RATE) * (2 * np.pi * 200 / SAMPLE_RATE))
        _voiced(librosa, second.astype(np.float32))
        librosa.lpc(second, order=PREDICTION)
    return librosa


def mel_statistics(waveform: Waveform) -> npt.NDArray[np.float32]:
    """Mean and SD over time of 40 log-mels, float32 [80]: an embedding of voice and channel without a speaker model."""
    mels: torch.Tensor = torch.log(_mels()(torch.from_numpy(waveform)) + 1e-6)
    statistics: npt.NDArray[np.float32] = torch.cat([mels.mean(dim=1), mels.std(dim=1)]).numpy()
    return statistics


def frames(signal: npt.NDArray[Number], size: int) -> npt.NDArray[Number]:
    """Cut a signal [samples] into overlapping frames [frames, size], a view."""
    return sliding_window_view(signal, size)[::HOP]


def autocorrelation(signals: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The autocorrelation along the last axis, for the lags 0, 1, ..."""
    size = signals.shape[-1]
    length = next_fast_len(2 * size, real=True)
    found: npt.NDArray[np.float64] = irfft(np.abs(rfft(signals, length)) ** 2, length)
    return found[..., :size]


@functools.cache
def _mels() -> MelSpectrogram:
    return MelSpectrogram(SAMPLE_RATE, n_fft=FRAME, hop_length=HOP, n_mels=BINS)
