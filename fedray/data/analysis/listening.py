"""Decode a sample of a corpus' utterances: their true lengths, their levels, and a hash of their samples."""

from __future__ import annotations

import functools
import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedray.core.parallel import Parallel
from fedray.core.seeds import numpy_generator
from fedray.data.features import audio
from fedray.data.features.packed import PACKED
from fedray.data.manifest import Manifest, Rows

HEARD = 800  # utterances that are decoded, the same number of each format as far as it has them
SUSPECTS = 400  # further utterances, whose text and length occur in several parts too
TO_THE_END = 100  # files of each format that are decoded to their end
LONGEST = 120.0  # seconds; longer files are not decoded to their end, longer utterances not further
SHARD = 50  # utterances in a work item
FULL = 0.999  # of full scale: samples from here on are clipped
FILES = 100_000  # files whose contents are compared
PIECE = 4096  # bytes of a file that are hashed first


@dataclass(frozen=True)
class Wanted:
    """An utterance to decode. `whole`: its file is decoded to the end, too."""

    row: int
    path: str
    offset: float
    seconds: float
    whole: bool


@dataclass(frozen=True)
class Heard:
    """What decoding an utterance tells. `row`: its row in the manifest of all parts."""

    row: int
    problem: str | None = None  # why it cannot be used
    header: float | None = None  # seconds of the file, if it was decoded to its end and its header states any
    decoded: float | None = None  # seconds of the file; None: it was not decoded to its end
    shape: audio.Shape | None = None  # of the file, by its header
    peak: float = 0.0  # of full scale
    power: float = 0.0  # mean square
    clipped: int = 0  # samples at full scale
    content: str = ""  # a hash of the samples at the file's own rate


def format_of(path: str) -> str:
    """The ending of a file's name in lower case, or that of the table that holds the audio."""
    found = PACKED.fullmatch(path)
    return (Path(path).suffix if found is None else Path(found["file"]).suffix).lower().lstrip(".") or "no ending"


def chosen(manifest: Manifest, part_of: Rows, seed: int) -> list[Wanted]:
    """Draw the utterances to decode. `part_of`: the number of each row's part, int64 [rows]."""
    generator = numpy_generator(seed, "audit")
    order = generator.permutation(len(manifest))
    paths = manifest.table["path"].take(pa.array(order[: 50 * HEARD])).to_pylist()
    by_format = defaultdict[str, list[int]](list)
    for row, path in zip(order.tolist(), paths, strict=False):
        by_format[format_of(path)].append(row)
    most = -(-HEARD // max(1, len(by_format)))
    rows = {row: place < TO_THE_END for mine in by_format.values() for place, row in enumerate(mine[:most])}
    for row in suspects(manifest, part_of)[:SUSPECTS].tolist():
        rows.setdefault(row, False)
    whole = [rows[row] for row in sorted(rows)]
    drawn = manifest.take(sorted(rows))
    return [
        Wanted(row, one.path, one.offset, one.seconds, all_of_it)
        for row, one, all_of_it in zip(sorted(rows), drawn, whole, strict=True)
    ]


def suspects(manifest: Manifest, part_of: Rows) -> Rows:
    """The rows whose length and text (else label) occur in several parts, those with the rarest pairs first."""
    table = manifest.table
    text = pc.coalesce(table["text"], table["label"], pa.scalar("", pa.large_string())).combine_chunks()
    codes = pc.dictionary_encode(text).indices.to_numpy().astype(np.int64)
    lengths = np.rint(100 * manifest.array("seconds")).astype(np.int64)
    _, keys = np.unique(np.stack([codes, lengths]), axis=1, return_inverse=True)
    keys = keys.reshape(-1)
    counts = np.bincount(keys)
    first = np.full(len(counts), -1)
    first[keys[::-1]] = part_of[::-1]  # the part of the first row of each pair
    several = np.zeros(len(counts), bool)
    several[keys[part_of != first[keys]]] = True
    found = np.flatnonzero(several[keys])
    return found[np.argsort(counts[keys[found]], kind="stable")]


def listen(wanted: Sequence[Wanted], sample_rate: int, parallel: Parallel) -> list[Heard]:
    """Decode the utterances in parallel. `sample_rate`: Hz of the features."""
    shards = [wanted[start : start + SHARD] for start in range(0, len(wanted), SHARD)]
    return [
        one
        for shard in parallel(functools.partial(hear, sample_rate=sample_rate), shards, "listening")
        for one in shard
    ]


def hear(wanted: Sequence[Wanted], sample_rate: int) -> list[Heard]:
    """Decode utterances one after the other."""
    found = []
    for one in wanted:
        try:
            found.append(_hear(one, sample_rate))
        except audio.AudioError as error:
            found.append(Heard(one.row, str(error)))
    return found


def _hear(one: Wanted, sample_rate: int) -> Heard:
    shape = audio.check(one.path, one.offset + one.seconds, sample_rate)
    lengths = audio.measure(one.path) if one.whole and shape.samples <= LONGEST * shape.sample_rate else None
    wave = audio.read(one.path, shape.sample_rate, one.offset, min(one.seconds, LONGEST)).numpy()
    levels = np.abs(wave)
    return Heard(
        one.row,
        None if lengths is None else lengths.problem,
        None if lengths is None else lengths.header,
        None if lengths is None else lengths.decoded,
        shape,
        float(levels.max()),
        float(np.square(wave, dtype=np.float64).mean()),
        int((levels >= FULL).sum()),
        hashlib.blake2b(np.rint(wave * 2**15).astype("<i4").tobytes(), digest_size=16).hexdigest(),
    )


def equal_files(paths: Iterable[str]) -> dict[str, str]:
    """Path -> a name for the contents of its file, for files whose contents another file has too.

    Audio inside tables is left out, and so are files that are not there.
    """
    sizes = ((path, _size(path)) for path in paths if PACKED.fullmatch(path) is None)
    found = _shared({path: str(size) for path, size in sizes if size is not None})
    for digest in (_middle, _whole):
        found = _shared({path: f"{name} {digest(path)}" for path, name in found.items()})
    return found


def _shared(names: Mapping[str, str]) -> dict[str, str]:
    """The paths whose name another path has too."""
    counts = Counter(names.values())
    return {path: name for path, name in names.items() if counts[name] > 1}


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:  # `inspection.broken_audio` names it
        return None


def _middle(path: str) -> str:
    with open(path, "rb") as file:
        file.seek(max(0, (os.fstat(file.fileno()).st_size - PIECE) // 2))
        return hashlib.blake2b(file.read(PIECE), digest_size=16).hexdigest()


def _whole(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
