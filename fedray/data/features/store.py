"""Features of a manifest, computed once and kept as one memory map, which all processes of a machine share.

A store is a folder: `frames.f16` or, for 16-bit integers, `frames.i16` (the frames of all utterances, one after the
other), `offsets.npy` (the first frame of each utterance) and `store.json` (bins, type of number, broken utterances).
Frames of 40 bins every 10 ms take 8 kB for each second of audio.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from fedray.core import environment
from fedray.core.parallel import Parallel
from fedray.core.settings import kind_of
from fedray.core.texts import parsed, read_text
from fedray.data.corruption import CorruptionSettings, Tone, add_white_noise, noisy_rows
from fedray.data.features import audio
from fedray.data.features.kinds import FEATURES
from fedray.data.features.packed import file_of
from fedray.data.features.settings import SCALES, FeatureSettings
from fedray.data.manifest import Manifest, Mask, Rows
from fedray.storage.cache import available, cached, check, entry_name, key

Frames = npt.NDArray[Any]  # [frames, bins], float16 or int16

# Part of the cache's key: increase it whenever a kind of features, audio.py, recording.py, streams/ or corruption.py
# would compute other numbers.
VERSION = 2
FILES = {"float16": "frames.f16", "int16": "frames.i16"}
SHARD = 64  # utterances in a work item, the same on every machine
LEAST_DEVIATION = 1e-5  # added to a speaker's: that of FedAudio


class FeatureStore:
    """The features of a manifest's rows.

    A pickle holds the folder and the name in the cache; files are opened on first use. A machine without the folder
    fetches it from the shared cache. Raises ValueError if the shared cache does not have it either.
    """

    def __init__(self, folder: Path, name: str | None = None) -> None:
        self.folder = Path(folder)
        self._name = name if name is not None else entry_name(self.folder)

    def __reduce__(self) -> tuple[type[FeatureStore], tuple[Path, str | None]]:
        return FeatureStore, (self.folder, self._name)

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, row: int) -> Frames:
        """[frames, bins] as they are stored, a read-only view of the file."""
        return self._data[self._offsets[row] : self._offsets[row + 1]]

    @property
    def name(self) -> str:
        """The part of the cache entry's name that depends on audio and settings only, the same on any machine."""
        return self.folder.name.partition(".")[0]

    @property
    def bins(self) -> int:
        return self._description.bins

    @property
    def stored(self) -> str:
        """The type of number: float16 or int16. int16 stands for -1 to 1 (`SCALES`)."""
        return self._description.stored

    @property
    def broken(self) -> dict[str, str]:
        """Utterance id -> what is wrong with its audio. These rows have 0 frames; the caller drops and counts them."""
        return self._description.broken

    @functools.cached_property
    def frames(self) -> Rows:
        """Frames of each row, int64 [rows]."""
        return np.diff(self._offsets)

    @functools.cached_property
    def _local(self) -> Path:
        return available(self.folder, self._name)

    @functools.cached_property
    def _offsets(self) -> Rows:
        path = self._local / "offsets.npy"
        try:
            offsets: Rows = np.load(path, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(
                f"{path}: is truncated, or not an array of numbers ({error}). This is a cache: remove {path.parent}"
            ) from error
        frames, needed = self._local / FILES[self.stored], 2 * int(offsets[-1]) * self.bins
        if (size := frames.stat().st_size) < needed:
            raise ValueError(
                f"{frames}: is truncated, {size:,} of {needed:,} bytes are left. This is a cache: remove {path.parent}"
            )
        return offsets

    @functools.cached_property
    def _description(self) -> _Description:
        path = self._local / "store.json"
        try:
            return _Description(**parsed(read_text(path), path))
        except (ValueError, TypeError) as error:  # the second: another shape
            raise ValueError(f"{path}: is damaged. This is a cache: remove {path.parent}") from error

    @functools.cached_property
    def _data(self) -> Frames:
        shape = (int(self._offsets[-1]), self.bins)
        if shape[0] == 0:
            return np.zeros(shape, self.stored)  # an empty file cannot be mapped
        mapped = np.memmap(self._local / FILES[self.stored], dtype=self.stored, mode="r", shape=shape)
        return np.asarray(mapped)  # the same pages: slices of a plain array are cheaper than slices of a memmap


@dataclass(frozen=True)
class _Description:
    """The contents of store.json."""

    bins: int
    broken: dict[str, str]
    stored: str = "float16"


def build_features(
    manifest: Manifest,
    settings: FeatureSettings,
    cache: Path,
    parallel: Parallel,
    corruption: CorruptionSettings | None = None,
    seed: int = 0,
    clients: Mapping[str, Rows] | None = None,
    skip_broken: bool = False,
    tone: Tone | None = None,
) -> FeatureStore:
    """Load the features of every row of `manifest` from the cache, or compute them with `parallel`.

    The bits are the same for any number of workers; an entry of the cache serves machines with the same libraries and
    type of processor. `corruption` adds white noise to the rows of the clients that it selects (`clients`: client id ->
    rows; None: each speaker is a client). `tone`: what is added to all rows. A ValueError lists all broken audio; with
    `skip_broken`, `FeatureStore.broken` lists it instead.
    """
    noisy = noisy_rows(manifest, corruption, seed, clients)
    if noisy.any() and not settings.reads_audio:
        kind = kind_of(settings, FEATURES)
        raise ValueError(f"data.corruption adds noise to audio, which features.kind={kind} does not read: remove it")
    snr_db = corruption.snr_db if corruption and noisy.any() else None
    described = {
        "version": VERSION,
        "manifest": _fingerprint(_heard(manifest, settings.by_speaker)),
        "settings": {"kind": kind_of(settings, FEATURES), **asdict(cast(Any, settings))},
        "noise": None
        if snr_db is None
        else {"snr_db": snr_db, "seed": int(seed), "rows": np.flatnonzero(noisy).tolist()},
    }
    if snr_db is not None and settings.by_speaker:
        described["scaled"] = "noisy and clean speech apart"
    if (more := settings.depends(manifest)) is not None:
        described["depends"] = more
    if tone is not None:
        described["tone"] = asdict(tone)

    def build(folder: Path) -> None:
        items = [(manifest.take(rows), noisy[rows]) for rows in _row_blocks(len(manifest))]
        compute = functools.partial(compute_shard, settings=settings, snr_db=snr_db, seed=seed, tone=tone)
        frames: list[Rows] = []
        broken: dict[str, str] = {}
        with (folder / FILES[settings.stored]).open("wb") as file:
            for part_frames, features, part_broken in parallel(compute, items, "features"):
                frames.append(part_frames)
                file.write(features.tobytes())
                broken |= part_broken
        if broken and not skip_broken:
            raise _broken_error(broken, manifest)
        offsets = np.concatenate([[0], *frames]).cumsum(dtype=np.int64)
        if settings.by_speaker:
            # Noisy and clean speech of a speaker are scaled apart: what is held out stays as it is without noise.
            voices = list(zip(manifest.column("speaker"), noisy.tolist(), strict=True))
            scale_by_speaker(folder / FILES[settings.stored], offsets, voices, settings.bins)
        np.save(folder / "offsets.npy", offsets)
        about = {"bins": settings.bins, "broken": broken}
        about |= {"stored": settings.stored} if settings.stored != "float16" else {}
        (folder / "store.json").write_text(json.dumps(about, indent=1), encoding="utf-8")

    machine = key({"versions": environment.versions(environment.AUDIO), "processor": environment.processor()})
    store = FeatureStore(cached(Path(cache) / f"features-{key(described)}.{machine[:8]}", build))
    check(store.folder)  # a changed bit of a feature would change all later bits
    if store.broken and not skip_broken:  # a run with skip_broken built the store
        raise _broken_error(store.broken, manifest)
    return store


def compute_shard(
    item: tuple[Manifest, Mask],
    settings: FeatureSettings,
    snr_db: float | None,
    seed: int,
    tone: Tone | None = None,
) -> tuple[Rows, Frames, dict[str, str]]:
    """Compute the features of a few rows. `item`: the rows, and which of them get noise, bool [rows].

    Returns frames of each row int64 [rows], features [all frames, bins] as they are stored, and utterance id -> what is
    wrong with its audio.
    """
    manifest, noisy = item
    torch.set_num_threads(1)  # more threads give other bits, and are slower
    parts: list[Frames] = []
    broken: dict[str, str] = {}
    for utterance, noise in zip(manifest, noisy.tolist(), strict=True):
        change = None
        if noise and snr_db is not None:
            change = functools.partial(add_white_noise, snr_db=snr_db, seed=seed, utterance=utterance.utterance)
        if tone is not None:
            change = functools.partial(tone.added, sample_rate=settings.sample_rate)
        try:
            parts.append(as_stored(settings.of(utterance, change), settings.stored))
            if not np.isfinite(parts[-1]).all():
                parts.pop()
                reason = f"has features above {np.finfo(np.float16).max:,.0f}, the most that is stored: take logarithms"
                raise audio.AudioError(utterance.path, f"{reason}, or scale them")
        except audio.AudioError as error:
            broken[utterance.utterance] = error.reason
            parts.append(np.zeros((0, settings.bins), settings.stored))
    return np.array([len(part) for part in parts], np.int64), np.concatenate(parts), broken


def scale_by_speaker(path: Path, offsets: Rows, voices: Sequence[Hashable], bins: int) -> None:
    """Scale the frames in a file, float16 [offsets[-1], bins], to mean 0 and variance 1 in each bin of each voice.

    `voices`: the speaker of each row, and what else is scaled apart.
    """
    if not offsets[-1]:
        return  # an empty file cannot be mapped
    data = np.memmap(path, np.float16, "r+", shape=(int(offsets[-1]), bins))
    rows_of: dict[Hashable, list[int]] = {}
    for row, voice in enumerate(voices):
        rows_of.setdefault(voice, []).append(row)
    for rows in rows_of.values():
        where = np.concatenate([np.arange(offsets[row], offsets[row + 1]) for row in rows])
        values = data[where].astype(np.float64)
        if len(values):
            data[where] = (values - values.mean(0)) / (values.std(0) + LEAST_DEVIATION)
    data.flush()


def as_stored(features: torch.Tensor, stored: str) -> Frames:
    """Features [frames, bins] in the type of number of a store."""
    if stored == "float16":
        return features.half().numpy()
    numbers: Frames = (features / SCALES[stored]).round().to(torch.int16).numpy()
    return numbers


def _heard(manifest: Manifest, by_speaker: bool) -> Manifest:
    """The rows without what features do not depend on, so that other texts and wrong labels share a store."""
    table = manifest.table
    for name in ("text", "label", "translation", *([] if by_speaker else ["speaker"])):
        same = pa.array([""] * len(table), table.schema.field(name).type)
        table = table.set_column(table.column_names.index(name), table.schema.field(name), same)
    return Manifest(table)


def _fingerprint(manifest: Manifest) -> str:
    """The fingerprint of the rows whose files exist, with these rows. `build_features` reports missing files."""
    try:
        return manifest.fingerprint()
    except FileNotFoundError:
        there = {path: os.path.exists(file_of(path)) for path in set(manifest.column("path"))}
    rows = np.flatnonzero([there[path] for path in manifest.column("path")])
    return f"{manifest.take(rows).fingerprint()} of {len(manifest)} rows: {key({'rows': rows.tolist()})}"


def _row_blocks(count: int) -> list[Rows]:
    return [np.arange(start, min(start + SHARD, count)) for start in range(0, count, SHARD)]


def _broken_error(broken: Mapping[str, str], manifest: Manifest) -> ValueError:
    paths = dict(zip(manifest.column("utterance"), manifest.column("path"), strict=True))
    lines = [f"  {name}: {paths[name]}: {reason}" for name, reason in list(broken.items())[:5]]
    if len(broken) > 5:
        lines.append(f"  ... and {len(broken) - 5} more")
    return ValueError(
        f"the audio of {len(broken)} of {len(manifest)} utterances cannot be used:\n"
        + "\n".join(lines)
        + "\nRepair or fetch these files, or set `data.skip_broken: true` to leave these utterances out "
        + "(they are counted and named)."
    )
