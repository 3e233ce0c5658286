"""SpeechBrain's manifests: csv (`ID,duration,wav,spk_id,wrd`, `$data_root/...`) and json (`{"id": {"wav": "{data_root}/...", ...}}`)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from fedray.core.parallel import Parallel
from fedray.data.corpora.tsv import Listed, Table, assemble
from fedray.data.manifest import Manifest

VARIABLE = {".csv": re.compile(r"\$([\w.]+)"), ".json": re.compile(r"\{([\w.]+)\}")}


@dataclass(frozen=True)
class SpeechBrain(Listed):
    """Files ending in .csv or .json. In paths every variable (`$data_root`, `{data_root}`, `$data_folder`, ...) means `data_root`.

    SpeechBrain's LibriSpeech recipe writes `reader-chapter` as spk_id: `speaker_separator: "-"` makes the reader the speaker.
    """

    data_root: str | None = None  # null: the root
    wav_column: str = "wav"
    duration_column: str | None = "duration"  # in seconds (often `length` in json); null: measured
    speaker_column: str = "spk_id"
    speaker_separator: str | None = None
    text_column: str | None = "wrd"
    label_column: str | None = None
    translation_column: str | None = None

    def read_file(self, root: Path, path: Path, split: str, parallel: Parallel) -> dict[str, Manifest]:
        if path.suffix not in VARIABLE:
            raise ValueError(f"{path}: SpeechBrain's manifests end in .csv or .json; for other tables use corpus: tsv")
        table = Table.read(path, skipinitialspace=True) if path.suffix == ".csv" else _json(path)
        speakers = table.column(self.speaker_column, "speaker_column")
        if self.speaker_separator is not None:
            speakers = [speaker.split(self.speaker_separator, 1)[0] for speaker in speakers]
        folder = Path(root, self.data_root or "")
        variable = VARIABLE[path.suffix]
        columns = {
            "utterance": table.column("ID", "the column of ids"),
            "path": [variable.sub(lambda _: str(folder), wav) for wav in table.column(self.wav_column, "wav_column")],
            "speaker": speakers,
            "seconds": table.column(self.duration_column, "duration_column"),
            "text": self.texts(table.column(self.text_column, "text_column")),
            "label": table.column(self.label_column, "label_column"),
            "translation": table.column(self.translation_column, "translation_column"),
        }
        return {split: assemble(path, table.lines, columns, folder, parallel)}


def _json(path: Path) -> Table:
    """The file as a table of all keys; the ids take the place of line numbers in errors."""
    try:
        items = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as problem:
        raise ValueError(f"{path}:{problem.lineno}: not JSON: {problem.msg}") from problem
    if not isinstance(items, dict) or not all(isinstance(item, dict) for item in items.values()):
        raise ValueError(f'{path}: must hold one object, {{"id": {{"wav": ..., "duration": ...}}, ...}}')
    ids = list(items)
    columns = {"ID": ids}
    for name in dict.fromkeys(key for item in items.values() for key in item):
        columns[name] = [_text(item.get(name)) for item in items.values()]
    return Table(path, ids, columns)


def _text(value: object) -> str:
    return "" if value is None else str(value)
