"""Write a federation as Lhotse's manifests: recordings and supervisions, with the client in `custom`."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from fedray.core.parallel import Parallel
from fedray.data.features import audio
from fedray.data.features.packed import packed_bytes
from fedray.data.manifest import Manifest, Rows, Utterance
from fedray.storage.files import write_atomically

SHARD = 500  # recordings in a work item


def write_lhotse(
    parts: Mapping[str, Manifest], clients: Mapping[str, Rows], folder: Path, parallel: Parallel
) -> dict[str, int]:
    """Write recordings_PART.jsonl.gz and supervisions_PART.jsonl.gz to `folder`; return the utterances in each part.

    `parts`: "server", "clients", "dev", "test", ... -> its utterances; `clients`: client -> rows of the part "clients";
    its other rows are left out. Audio inside tables is copied to FOLDER/audio/; other audio stays where it is.
    Raises AudioError for audio that cannot be read.
    """
    folder = folder.absolute()
    (folder / "audio").mkdir(parents=True, exist_ok=True)
    counts = {}
    for part, manifest in parts.items():
        owners: list[str | None] = [None] * len(manifest)
        if part == "clients":
            owners = [client for client, rows in clients.items() for _ in rows]
            manifest = manifest.take(np.concatenate(list(clients.values())))
        utterances = list(manifest)
        first = {
            row.path: row.utterance for row in reversed(utterances)
        }  # a recording is named after its first utterance
        named = sorted((name, path) for path, name in first.items())
        shards = [named[start : start + SHARD] for start in range(0, len(named), SHARD)]
        copy = partial(_recordings, folder=folder / "audio" / part)
        found = {item["id"]: item for items in parallel(copy, shards, f"Recordings of {part}") for item in items}
        anonymous = manifest.anonymous
        supervisions = [
            _supervision(row, found[first[row.path]], owner, anonymous)
            for row, owner in zip(utterances, owners, strict=True)
        ]
        _write(folder / f"recordings_{part}.jsonl.gz", found.values())
        _write(folder / f"supervisions_{part}.jsonl.gz", supervisions)
        counts[part] = len(supervisions)
    if not any((folder / "audio").iterdir()):
        (folder / "audio").rmdir()
    return counts


def _recordings(items: Iterable[tuple[str, str]], folder: Path) -> list[dict[str, Any]]:
    """Describe recordings, given as (id, path). Audio inside tables is copied to `folder`."""
    found = []
    for name, path in items:
        shape = audio.shape(path)
        if (content := packed_bytes(path)) is not None:
            folder.mkdir(parents=True, exist_ok=True)
            path = str(folder / f"{quote(name, safe='')}.{shape.suffix}")
            write_atomically(Path(path), partial(_put, content))
        found.append(
            {
                "id": name,
                "sources": [{"type": "file", "channels": list(range(shape.channels)), "source": path}],
                "sampling_rate": shape.sample_rate,
                "num_samples": shape.samples,
                "duration": shape.samples / shape.sample_rate,
                "channel_ids": list(range(shape.channels)),
            }
        )
    return found


def _supervision(row: Utterance, recording: Mapping[str, Any], client: str | None, anonymous: bool) -> dict[str, Any]:
    channels = recording["channel_ids"]
    custom = {"client": client, "label": row.label, "translation": row.translation}
    fields = {
        "id": row.utterance,
        "recording_id": recording["id"],
        "start": row.offset,
        "duration": min(row.seconds, recording["duration"] - row.offset),  # manifests round seconds
        "channel": channels if len(channels) > 1 else channels[0],
        "text": row.text,
        "speaker": None if anonymous else row.speaker,
        "custom": {name: value for name, value in custom.items() if value is not None} or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _write(path: Path, items: Iterable[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items)
    # Without a timestamp, the same corpus gives the same bytes.
    write_atomically(path, partial(_put, gzip.compress(text.encode(), mtime=0)))


def _put(content: bytes, path: Path) -> None:
    path.write_bytes(content)
