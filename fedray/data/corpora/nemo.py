"""NeMo's manifests: one JSON object a line, `{"audio_filepath": ..., "duration": ..., "text": ...}`, `offset` where files are cut."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from fedray.core.parallel import Parallel
from fedray.data.corpora.tsv import Listed, assemble
from fedray.data.manifest import Manifest, place


@dataclass(frozen=True)
class Nemo(Listed):
    """Paths are absolute or relative to the folder of the manifest, as NeMo has it. Lines carry no ids: the path (and offset) is one."""

    audio_root: str | None = None  # relative to the root; null: the folder of the manifest
    speaker_key: str = "speaker"  # NeMo's own manifests often have none: it must be added
    text_key: str | None = "text"
    label_key: str | None = None  # `command` or `label` in NeMo's classification manifests
    translation_key: str | None = None
    id_key: str | None = None

    def read_file(self, root: Path, path: Path, split: str, parallel: Parallel) -> dict[str, Manifest]:
        lines, items = _objects(path)
        has_offset = any("offset" in item for item in items)

        def column(key: str | None, option: str | None) -> list[str] | None:
            if key is None:
                return None
            for row, item in enumerate(items):
                if item.get(key) is None:
                    remedy = f": complete it, or set {option} in data.options to one of {', '.join(item)}" if option else ""
                    raise ValueError(f"{place(str(path), lines, row)}: has no {key!r}{remedy}")
            return [str(item[key]) for item in items]

        audio = column("audio_filepath", None)
        offset = [item.get("offset") or 0.0 for item in items] if has_offset else None
        named = [f"{name}@{start}" for name, start in zip(audio, offset, strict=True)] if offset is not None else audio
        columns = {
            "utterance": named if self.id_key is None else column(self.id_key, "id_key"),
            "path": audio,
            "offset": offset,
            "seconds": column("duration", None) if any("duration" in item for item in items) else None,
            "speaker": column(self.speaker_key, "speaker_key"),
            "text": self.texts(column(self.text_key, "text_key")),
            "label": column(self.label_key, "label_key"),
            "translation": column(self.translation_key, "translation_key"),
        }
        folder = path.parent if self.audio_root is None else root / self.audio_root
        return {split: assemble(path, lines, columns, folder, parallel)}


def _objects(path: Path) -> tuple[list[int], list[dict]]:
    lines, items = [], []
    with path.open(encoding="utf-8") as file:
        for line, text in enumerate(file, start=1):
            if not text.strip():
                continue
            try:
                item = json.loads(text)
            except json.JSONDecodeError as problem:
                raise ValueError(f"{path}:{line}: not JSON: {problem.msg}") from problem
            if not isinstance(item, dict):
                raise ValueError(f'{path}:{line}: must be an object, {{"audio_filepath": ..., "duration": ..., "text": ...}}')
            lines.append(line)
            items.append(item)
    return lines, items
