"""NeMo's manifests: one JSON object on each line.

`{"audio_filepath": ..., "duration": ..., "text": ...}`, and `offset` for segments of files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedray.core.parallel import Parallel
from fedray.core.texts import opened, parsed
from fedray.data.corpora.assembly import WITHOUT_SPEAKERS, assemble, scalar
from fedray.data.corpora.formats.listed import Listed, below
from fedray.data.manifest import Manifest, place


@dataclass(frozen=True)
class Nemo(Listed):
    """Paths are absolute or relative to the manifest's folder, as in NeMo. Path and offset form the id of a line."""

    audio_root: str | None = None  # folder of the audio, relative to the root; null: the folder of the manifest
    speaker_key: str | None = "speaker"  # key of the speaker; null: unknown, each recording counts as a speaker
    text_key: str | None = "text"  # key of the transcript; null: no transcripts
    label_key: str | None = None  # key of the class: `command` or `label` in NeMo's manifests; null: no classes
    translation_key: str | None = None  # key of the translation; null: no translations
    id_key: str | None = None  # key of the utterance's id; null: its path and offset

    def named_by_path(self) -> bool:
        return self.id_key is None and self.audio_root is None

    def read_file(self, root: Path, path: Path, split: str, parallel: Parallel) -> dict[str, Manifest]:
        lines, items = _objects(path)

        def column(key: str, option: str = "", without: str = "") -> list[str]:
            for row, item in enumerate(items):
                if item.get(key) is None:
                    other = f", or set {option} in data.options to one of {', '.join(item)}" if option else ""
                    other += f", or to null if there is none. {without}" if without else ""
                    raise ValueError(f"{place(str(path), lines, row)}: the key {key!r} is missing: add it{other}")
            return [scalar(item[key], place(str(path), lines, row), key) for row, item in enumerate(items)]

        def optional(key: str | None, option: str, without: str = "") -> list[str] | None:
            return None if key is None else column(key, option, without)

        audio = column("audio_filepath")
        ids, offset = audio, None
        if any("offset" in item for item in items):
            offset = [item.get("offset") or 0.0 for item in items]
            ids = [f"{name}@{start}" for name, start in zip(audio, offset, strict=True)]
        columns = {
            "utterance": ids if self.id_key is None else column(self.id_key, "id_key"),
            "path": audio,
            "offset": offset,
            "seconds": column("duration") if any("duration" in item for item in items) else None,
            "speaker": optional(self.speaker_key, "speaker_key", WITHOUT_SPEAKERS),
            "text": self.texts(optional(self.text_key, "text_key")),
            "label": optional(self.label_key, "label_key"),
            "translation": optional(self.translation_key, "translation_key"),
        }
        folder = path.parent if self.audio_root is None else below(root, self.audio_root)
        return {split: assemble(path, lines, columns, folder, parallel)}


def _objects(path: Path) -> tuple[list[int], list[dict[str, Any]]]:
    lines, items = [], []
    with opened(path) as file:
        for line, text in enumerate(file, start=1):
            if not text.strip():
                continue
            item = parsed(text, path, line)
            if not isinstance(item, dict):
                form = '{"audio_filepath": ..., "duration": ..., "text": ...}'
                raise ValueError(f"{path}:{line}: the line must be an object, {form}")
            lines.append(line)
            items.append(item)
    return lines, items
