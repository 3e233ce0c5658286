"""Log-mel features of a manifest, computed once and kept as one float16 memory map, which all processes of a machine share.

A store is a folder: `frames.f16` (all frames of all utterances, one after the other), `offsets.npy` (where each utterance starts)
and `store.json` (bins, broken utterances). A frame of 40 bins every 10 ms is 8 kB a second of audio.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchaudio.transforms import MelSpectrogram

from fedray.core.cache import available, cached, entry_name, key
from fedray.core.parallel import Parallel
from fedray.data import audio
from fedray.data.corruption import CorruptionSettings, add_white_noise, noisy_rows
from fedray.data.manifest import Manifest

VERSION = 1  # part of the cache's key: count up whenever the numbers that come out of this file, audio.py or corruption.py change
SHARD = 64  # utterances a work item; never from the hardware
FLOOR = 1e-8  # about the power that the rounding to 16 bits leaves in a mel bin; digital silence is no quieter
NORMALISATIONS = ("mean", "mean_variance", "none")
KINDS = ("logmel", "whisper")
WHISPER = {"sample_rate": 16000, "window_ms": 25.0, "hop_ms": 10.0, "normalise": "none"}


@dataclass(frozen=True)
class FeatureSettings:
    kind: str = "logmel"  # logmel | whisper: what Whisper was trained on, of another scale and in a range of its own
    bins: int = 40
    sample_rate: int = 16000  # Hz; audio of another rate is resampled
    window_ms: float = 25.0
    hop_ms: float = 10.0
    normalise: str = "mean"  # per utterance and bin: mean | mean_variance | none

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"features.kind: {self.kind!r} is not known; choose one of {', '.join(KINDS)}")
        other = [f"{name}={value}" for name, value in WHISPER.items() if getattr(self, name) != value]
        if self.kind == "whisper" and other:
            raise ValueError(f"features.kind whisper is one way to hear: set {', '.join(other)}")
        if self.normalise not in NORMALISATIONS:
            raise ValueError(f"features.normalise: {self.normalise!r} is not known; choose one of {', '.join(NORMALISATIONS)}")
        for name in ("bins", "sample_rate", "window_ms", "hop_ms"):
            if getattr(self, name) <= 0:
                raise ValueError(f"features.{name}: {getattr(self, name)} must be above 0")

    @property
    def window(self) -> int:
        """Samples."""
        return round(self.sample_rate * self.window_ms / 1000)

    @property
    def hop(self) -> int:
        """Samples."""
        return max(1, round(self.sample_rate * self.hop_ms / 1000))

    def frames(self, seconds: float) -> int:
        """How many frames so many seconds of audio have."""
        if self.kind == "whisper":
            return whisper_frames(round(seconds * self.sample_rate))
        return max(1, 1 + (round(seconds * self.sample_rate) - self.window) // self.hop)


class FeatureStore:
    """The features of a manifest's rows. Pickles as its path and its name in the cache; files are opened at the first use.

    On a machine whose cache lacks them they are fetched from the shared cache; ValueError where that has none either.
    """

    def __init__(self, folder: Path, name: str | None = None) -> None:
        self.folder = Path(folder)
        self._name = name if name is not None else entry_name(self.folder)

    def __reduce__(self) -> tuple[type[FeatureStore], tuple[Path, str | None]]:
        return FeatureStore, (self.folder, self._name)

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, row: int) -> np.ndarray:
        """float16 [frames, bins], a read-only view of the file."""
        return self._data[self._offsets[row] : self._offsets[row + 1]]

    @property
    def name(self) -> str:
        """Of the entry in the cache: it follows from the audio and the settings."""
        return self.folder.name

    @property
    def bins(self) -> int:
        return self._description["bins"]

    @property
    def broken(self) -> dict[str, str]:
        """Utterance -> what is wrong with its audio. Such rows have 0 frames; who takes the store drops and counts them."""
        return self._description["broken"]

    @functools.cached_property
    def frames(self) -> np.ndarray:
        """int64 [rows]."""
        return np.diff(self._offsets)

    @functools.cached_property
    def _here(self) -> Path:
        return available(self.folder, self._name)

    @functools.cached_property
    def _offsets(self) -> np.ndarray:
        path = self._here / "offsets.npy"
        try:
            return np.load(path, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(f"{path}: is cut short, or not plain numbers ({error}); it is a cache: remove {path.parent}") from error

    @functools.cached_property
    def _description(self) -> dict[str, Any]:
        return json.loads((self._here / "store.json").read_text(encoding="utf-8"))

    @functools.cached_property
    def _data(self) -> np.ndarray:
        shape = (int(self._offsets[-1]), self.bins)
        if shape[0] == 0:
            return np.zeros(shape, np.float16)  # an empty file cannot be mapped
        mapped = np.memmap(self._here / "frames.f16", dtype=np.float16, mode="r", shape=shape)
        return np.asarray(mapped)  # same pages; slices of a plain array are cheaper than slices of a memmap


def build_features(
    manifest: Manifest,
    settings: FeatureSettings,
    cache: Path,
    parallel: Parallel,
    corruption: CorruptionSettings | None = None,
    seed: int = 0,
    clients: Mapping[str, np.ndarray] | None = None,
    skip_broken: bool = False,
) -> FeatureStore:
    """The features of every row of `manifest`, from the cache or computed through `parallel`; the same bits for any number of workers.

    `corruption` adds its white noise to the rows of the clients it hits (`clients`: client id -> rows; None: each speaker is a client).
    Raises one ValueError that collects all broken audio; with `skip_broken` it stands in `FeatureStore.broken` instead.
    """
    noisy = noisy_rows(manifest, corruption, seed, clients)
    snr_db = corruption.snr_db if corruption and noisy.any() else None
    described = {
        "version": VERSION,
        "manifest": _fingerprint(manifest),
        "settings": asdict(settings),
        # Label errors leave the audio alone, so they share the store of the clean labels.
        "noise": None if snr_db is None else {"snr_db": snr_db, "seed": int(seed), "rows": np.flatnonzero(noisy).tolist()},
    }

    def build(folder: Path) -> None:
        items = [(manifest.take(rows), noisy[rows]) for rows in _row_blocks(len(manifest))]
        compute = functools.partial(compute_shard, settings=settings, snr_db=snr_db, seed=seed)
        frames: list[np.ndarray] = []
        broken: dict[str, str] = {}
        with (folder / "frames.f16").open("wb") as file:
            for part_frames, features, part_broken in parallel(compute, items, "features"):
                frames.append(part_frames)
                file.write(features.tobytes())
                broken |= part_broken
        if broken and not skip_broken:
            raise _broken_error(broken, manifest)
        np.save(folder / "offsets.npy", np.concatenate([[0], *frames]).cumsum(dtype=np.int64))
        (folder / "store.json").write_text(json.dumps({"bins": settings.bins, "broken": broken}, indent=1), encoding="utf-8")

    store = FeatureStore(cached(Path(cache) / f"features-{key(described)}", build))
    if store.broken and not skip_broken:  # it was built for a run that skips them
        raise _broken_error(store.broken, manifest)
    return store


def compute_shard(
    item: tuple[Manifest, np.ndarray], settings: FeatureSettings, snr_db: float | None, seed: int
) -> tuple[np.ndarray, np.ndarray, dict[str, str]]:
    """A few rows and which of them get noise -> frames int64 [rows], features float16 [all frames, bins], what is wrong with the broken."""
    manifest, noisy = item
    torch.set_num_threads(1)  # other bits with more, and slower
    parts: list[np.ndarray] = []
    broken: dict[str, str] = {}
    for utterance, hit in zip(manifest, noisy.tolist(), strict=True):
        try:
            waveform = audio.read(utterance.path, settings.sample_rate, utterance.offset, utterance.seconds)
        except audio.AudioError as error:
            broken[utterance.utterance] = error.reason
            parts.append(np.zeros((0, settings.bins), np.float16))
            continue
        if hit and snr_db is not None:
            waveform = add_white_noise(waveform, snr_db, seed, utterance.utterance)
        heard = whisper_mels(waveform, settings.bins) if settings.kind == "whisper" else log_mels(waveform, settings)
        parts.append(heard.half().numpy())
    return np.array([len(part) for part in parts], np.int64), np.concatenate(parts), broken


@torch.inference_mode()
def log_mels(waveform: torch.Tensor, settings: FeatureSettings) -> torch.Tensor:
    """float32 [samples] at `settings.sample_rate` -> natural log of mel powers, normalised, float32 [1 + (samples - window) // hop, bins].

    What is shorter than one window is padded with zeros to one.
    """
    if len(waveform) < settings.window:
        waveform = torch.nn.functional.pad(waveform, (0, settings.window - len(waveform)))
    features = _mel_transform(settings)(waveform).clamp_(min=FLOOR).log_().T
    if settings.normalise != "none":
        features = features - features.mean(dim=0)
    if settings.normalise == "mean_variance":
        # Digital silence has no variance, and stays 0.
        features = features / features.square().mean(dim=0).sqrt().clamp(min=1e-3)
    return features


@torch.inference_mode()
def whisper_mels(waveform: torch.Tensor, bins: int) -> torch.Tensor:
    """float32 [samples] at 16 kHz -> Whisper's features [frames, bins]: log10 of mel powers, cut 8 below the loudest, plus 4, over 4.

    The first frames of what transformers' WhisperFeatureExtractor gives, which goes on with silence to 30 s.
    """
    padded = torch.nn.functional.pad(waveform, (0, 400))  # silence follows, not the mirrored end
    mels = _whisper_transform(bins)(padded).clamp_(min=1e-10).log10_().T[: whisper_frames(len(waveform))]
    return (mels.clamp(min=float(mels.max()) - 8) + 4) / 4


def whisper_frames(samples: int) -> int:
    """Those that hear any of them: frames are centred at every 160th sample, and 400 wide."""
    return max(1, -(-(samples + 200) // 160))


@functools.lru_cache(maxsize=2)
def _whisper_transform(bins: int) -> MelSpectrogram:
    return MelSpectrogram(16000, n_fft=400, hop_length=160, n_mels=bins, norm="slaney", mel_scale="slaney")


@functools.lru_cache(maxsize=8)
def _mel_transform(settings: FeatureSettings) -> MelSpectrogram:
    size = fft_size(settings)
    # torch centres the window in the FFT: so much padding that the first window starts at the first sample.
    padding = (size - settings.window) // 2
    return MelSpectrogram(
        settings.sample_rate,
        n_fft=size,
        win_length=settings.window,
        hop_length=settings.hop,
        pad=padding,
        n_mels=settings.bins,
        center=False,
    )


def fft_size(settings: FeatureSettings) -> int:
    """The smallest power of two that holds the window and resolves the lowest, narrowest mel filter, which else would stay empty."""
    highest = 2595 * math.log10(1 + settings.sample_rate / 2 / 700)  # mel (HTK), as in torchaudio
    width = 700 * (10 ** (2 * highest / (settings.bins + 1) / 2595) - 1)  # Hz
    size = 1 << (settings.window - 1).bit_length()
    while settings.sample_rate / size >= width:
        size *= 2
    return size


def _fingerprint(manifest: Manifest) -> str:
    """Of the rows whose files are there, and which are: missing files are broken audio, to be collected with the rest."""
    try:
        return manifest.fingerprint()
    except FileNotFoundError:
        there = {path: os.path.exists(path) for path in set(manifest.column("path"))}
    rows = np.flatnonzero([there[path] for path in manifest.column("path")])
    return f"{manifest.take(rows).fingerprint()} of {len(manifest)} rows: {key({'rows': rows.tolist()})}"


def _row_blocks(count: int) -> list[np.ndarray]:
    return [np.arange(start, min(start + SHARD, count)) for start in range(0, count, SHARD)]


def _broken_error(broken: Mapping[str, str], manifest: Manifest) -> ValueError:
    paths = dict(zip(manifest.column("utterance"), manifest.column("path"), strict=True))
    lines = [f"  {name}: {paths[name]}: {reason}" for name, reason in list(broken.items())[:5]]
    if len(broken) > 5:
        lines.append(f"  ... and {len(broken) - 5} more")
    return ValueError(
        f"the audio of {len(broken)} of {len(manifest)} utterances cannot be used:\n"
        + "\n".join(lines)
        + "\nRepair or fetch these files, or set `data.skip_broken: true` to leave these utterances out (they are counted and named)."
    )
