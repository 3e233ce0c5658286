"""Lhotse's manifests: recordings with supervisions, or cuts, as JSON lines. The package lhotse is not needed."""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedray.core.parallel import Parallel
from fedray.core.ranges import is_number
from fedray.core.texts import opened, parsed
from fedray.data.corpora.assembly import WITHOUT_SPEAKERS, assemble, scalar
from fedray.data.corpora.formats.listed import SPLITS, USUAL_SPLITS, Listed, below
from fedray.data.manifest import Manifest

SUFFIX = re.compile(r"\.jsonl(\.gz)?$")
Item = Mapping[str, Any]


@dataclass(frozen=True)
class Lhotse(Listed):
    """train, dev and test name files of cuts, or of supervisions.

    The recordings of supervisions are in the same folder, in a file with `recordings` in place of `supervisions` in its
    name. By default, supervisions_train.jsonl.gz, cuts_dev.jsonl.gz, ... are read. An utterance is a supervision, or a
    cut without supervisions. Keys are fields of a supervision, or of its `custom`.
    """

    audio_root: str | None = None  # folder of relative paths, relative to the root; null: the root
    speaker_key: str | None = "speaker"  # field of the speaker; null: unknown, each recording counts as a speaker
    text_key: str | None = "text"  # field of the transcript; null: no transcripts
    label_key: str | None = None  # field of the class, e.g. language; null: no classes
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
        folder = below(root, self.audio_root)
        return {split: assemble(path, lines, columns, folder, parallel)}

    def _rows(self, where: str, item: Item, recordings: Mapping[str, tuple[str, Item]]) -> list[dict[str, str | float]]:
        """Return the columns of each utterance on a line."""
        if "recording_id" in item:
            if (name := str(item["recording_id"])) not in recordings:
                raise ValueError(f"{where}: {name!r} is not among the recordings: add it, or drop the line")
            start, supervisions = 0.0, [item]
            place, recording = recordings[name]
        elif item.get("type", "MonoCut") in ("MonoCut", "MultiCut") and isinstance(item.get("recording"), dict):
            start, place, recording = _seconds(where, item, "start"), where, item["recording"]
            supervisions = _objects(where, item, "supervisions") or [{**item, "start": 0.0}]
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
                "offset": round(start + _seconds(where, supervision, "start"), 9),
                "seconds": _seconds(where, supervision, "duration"),
            }
            for name in ("speaker", "text", "label", "translation"):
                if (key := getattr(self, f"{name}_key")) is not None:
                    row[name] = _field(where, supervision, key, f"{name}_key")
            rows.append(row)
        return rows


def _field(where: str, supervision: Item, key: str, option: str = "") -> str:
    value = supervision.get(key)
    if value is None and isinstance(custom := supervision.get("custom"), dict):
        value = custom.get(key)
    if value is None:
        remedy = f", or set {option} in data.options to another key, or to null if there is none" if option else ""
        without = f". {WITHOUT_SPEAKERS}" if option == "speaker_key" else ""
        raise ValueError(f"{where}: the supervision has no {key!r}: add it{remedy}{without}")
    return scalar(value, where, key)


def _seconds(where: str, item: Item, key: str) -> float:
    value = item.get(key, 0.0)
    if not is_number(value):
        raise ValueError(f"{where}: {key} must be a number of seconds, not {value!r}: correct it")
    return float(value) if abs(value) < 1e300 else math.inf  # `assemble` refuses infinity


def _objects(where: str, item: Item, key: str) -> list[Item]:
    values = item.get(key) or []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise ValueError(f"{where}: {key} must be a list of objects, not {values!r}: correct it")
    return values


def _source(where: str, recording: Item, channel: object) -> str:
    """The path of the recording's file. Raises ValueError for audio that is not a plain file."""
    sources = _objects(where, recording, "sources") or [{}]
    kinds = {str(source.get("type")) for source in sources}
    if kinds != {"file"} or len(sources) != 1:
        raise ValueError(
            f"{where}: the recording has {len(sources)} sources of type {', '.join(map(str, kinds))}: fedray reads one "
            "source of type file. Save the audio with save_audios of lhotse"
        )
    if recording.get("transforms"):
        raise ValueError(f"{where}: the recording has transforms, which fedray does not apply: save the audio first")
    channels = sources[0].get("channels") or [0]
    if not isinstance(channels, list):
        raise ValueError(f"{where}: channels must be a list of numbers, not {channels!r}: correct it")
    if len(channels) > 1 and channel is not None and channel != channels:
        raise ValueError(
            f"{where}: the recording has {len(channels)} channels, which fedray would average: save channel {channel} "
            "as a file of its own"
        )
    return scalar(sources[0].get("source"), where, "source")


def _items(path: Path) -> dict[int, Item]:
    """Line -> its JSON object."""
    if not SUFFIX.search(path.name):
        raise ValueError(f"{path}: Lhotse's manifests end in .jsonl or .jsonl.gz: convert the file with `lhotse copy`")
    items: dict[int, Item] = {}
    line = 0
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else opened(path) as file:
            for line, text in enumerate(file, start=1):
                if text.strip():
                    items[line] = parsed(text, path, line)
                    if not isinstance(items[line], dict):
                        raise ValueError(f"{path}:{line}: the line must be a JSON object: correct it")
    except UnicodeDecodeError as problem:
        raise ValueError(f"{path}:{line + 1}: is not UTF-8 text ({problem.reason}): convert it") from problem
    except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
        raise ValueError(f"{path} is cut short or damaged after line {line} ({problem}): copy it again") from problem
    return items
