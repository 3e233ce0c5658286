"""Lhotse's manifests: recordings with supervisions, or cuts, as JSON lines. The package lhotse is not needed."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedray.core.parallel import Parallel
from fedray.data.corpora.assembly import WITHOUT_SPEAKERS, assemble
from fedray.data.corpora.formats.listed import SPLITS, USUAL_SPLITS, Listed
from fedray.data.manifest import Manifest

SUFFIX = re.compile(r"\.jsonl(\.gz)?$")
Item = Mapping[str, Any]


@dataclass(frozen=True)
class Lhotse(Listed):
    """train, dev and test name files of cuts, or of supervisions.

    The recordings of supervisions lie beside them, in a file with `recordings` in its name instead. Without names, the
    files supervisions_train.jsonl.gz, cuts_dev.jsonl.gz, ... are read. An utterance is a supervision, or a cut that has
    none. Keys are fields of a supervision, or of its `custom`.
    """

    audio_root: str | None = None  # where relative paths start, relative to the root; null: the root
    speaker_key: str | None = "speaker"  # null: unknown; each recording is a speaker of its own
    text_key: str | None = "text"  # field of the transcript; null: no transcripts
    label_key: str | None = None  # e.g. language
    translation_key: str | None = None  # field of the translation; null: no translations

    def found(self, root: Path) -> dict[str, list[str]]:
        lists: dict[str, list[str]] = {}
        for path in sorted(root.glob("*.jsonl*"), key=lambda path: self.stem(path.name)):  # test before test-other
            if match := re.fullmatch(r"(?:.+_)?(?:cuts|supervisions)_([^_]+)", SUFFIX.sub("", path.name)):
                split = "test" if match[1].startswith("test-") else USUAL_SPLITS.get(match[1], match[1])
                if split not in SPLITS:
                    raise ValueError(f"{path}: the split {match[1]!r} is not known: set train, dev and test")
                lists.setdefault(split, []).append(path.name)
        if not lists:
            raise ValueError(
                f"{root} holds no supervisions_train.jsonl.gz or cuts_train.jsonl.gz: set train, dev and test in "
                "data.options to lists of such files"
            )
        return lists

    def stem(self, name: str) -> str:
        return re.sub(r"^(?:.+_)?(?:cuts|supervisions)_", "", SUFFIX.sub("", Path(name).name))

    def read_file(self, root: Path, path: Path, split: str, parallel: Parallel) -> dict[str, Manifest]:
        items = _items(path)
        if any("sources" in item for item in items.values()):
            raise ValueError(f"{path} lists recordings: name the file of supervisions or of cuts")
        recordings = {}
        if any("recording_id" in item for item in items.values()):
            other = path.with_name(path.name.replace("supervisions", "recordings"))
            if other == path or not other.is_file():
                raise ValueError(
                    f"{path}: its recordings are missing: put them beside it, in a file with `recordings` in its name "
                    "in place of `supervisions`"
                )
            recordings = {str(item.get("id")): (f"{other}:{line}", item) for line, item in _items(other).items()}
        lines: list[int] = []
        rows: list[dict[str, str | float]] = []
        for line, item in items.items():
            for row in self._rows(f"{path}:{line}", item, recordings):
                lines.append(line)
                rows.append(row)
        if not rows:
            raise ValueError(f"{path} is empty: name another file in data.options")
        columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
        columns["text"] = self.texts(columns.get("text"))
        folder = root / (self.audio_root or "")
        return {split: assemble(path, lines, columns, folder, parallel)}

    def _rows(self, where: str, item: Item, recordings: Mapping[str, tuple[str, Item]]) -> list[dict[str, str | float]]:
        """The columns of the utterances of a line."""
        if "recording_id" in item:
            if item["recording_id"] not in recordings:
                raise ValueError(
                    f"{where}: {item['recording_id']!r} is not among the recordings: add it, or drop the line"
                )
            start, supervisions = 0.0, [item]
            place, recording = recordings[item["recording_id"]]
        elif item.get("type", "MonoCut") in ("MonoCut", "MultiCut") and isinstance(item.get("recording"), dict):
            start, place, recording = item.get("start", 0.0), where, item["recording"]
            supervisions = item.get("supervisions") or [{**item, "start": 0.0}]
        else:
            raise ValueError(
                f"{where}: {item.get('type', 'the line')} is neither a supervision nor a cut of one recording: fedray "
                "reads no mixed or padded cuts, and no cuts of features alone"
            )
        rows = []
        for supervision in supervisions:
            row: dict[str, str | float] = {
                "utterance": _field(where, supervision, "id"),
                "path": _source(place, recording, supervision.get("channel")),
                "offset": round(start + supervision.get("start", 0.0), 9),
                "seconds": supervision.get("duration", 0.0),
            }
            for name in ("speaker", "text", "label", "translation"):
                if (key := getattr(self, f"{name}_key")) is not None:
                    row[name] = _field(where, supervision, key, f"{name}_key")
            rows.append(row)
        return rows


def _field(where: str, supervision: Item, key: str, option: str = "") -> str:
    value = supervision.get(key)
    if value is None:
        value = (supervision.get("custom") or {}).get(key)
    if value is None:
        remedy = f", or set {option} in data.options to another key, or to null if there is none" if option else ""
        without = f". {WITHOUT_SPEAKERS}" if option == "speaker_key" else ""
        raise ValueError(f"{where}: the supervision has no {key!r}: add it{remedy}{without}")
    return str(value)


def _source(where: str, recording: Item, channel: object) -> str:
    """The path of the recording's file. Raises ValueError for audio that is no plain file."""
    sources = recording.get("sources") or [{}]
    kinds = {source.get("type") for source in sources}
    if kinds != {"file"} or len(sources) != 1:
        raise ValueError(
            f"{where}: the recording has {len(sources)} sources of type {', '.join(map(str, kinds))}: fedray reads one "
            "source of type file. Save the audio with save_audios of lhotse"
        )
    if recording.get("transforms"):
        raise ValueError(f"{where}: the recording has transforms, which fedray does not apply: save the audio first")
    channels = sources[0].get("channels") or [0]
    if len(channels) > 1 and channel is not None and channel != channels:
        raise ValueError(
            f"{where}: the recording has {len(channels)} channels, which fedray would average: save channel {channel} "
            "as a file of its own"
        )
    return str(sources[0].get("source"))


def _items(path: Path) -> dict[int, Item]:
    """Line -> its JSON object."""
    if not SUFFIX.search(path.name):
        raise ValueError(f"{path}: Lhotse's manifests end in .jsonl or .jsonl.gz: convert the file with `lhotse copy`")
    items: dict[int, Item] = {}
    line = 0
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for line, text in enumerate(file, start=1):
                if text.strip():
                    items[line] = json.loads(text)
                    if not isinstance(items[line], dict):
                        raise ValueError(f"{path}:{line}: the line must be a JSON object: correct it")
    except json.JSONDecodeError as problem:
        raise ValueError(f"{path}:{line}: not JSON ({problem.msg}): correct the line") from problem
    except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
        raise ValueError(f"{path} is cut short or damaged after line {line} ({problem}): copy it again") from problem
    return items
