"""SpeechBrain's manifests.

csv files have columns `ID,duration,wav,spk_id,wrd` and paths like `$data_root/a.wav`; json files hold
`{"id": {"wav": "{data_root}/a.wav", ...}}`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from fedray.core.parallel import Parallel
from fedray.core.texts import parsed, read_text
from fedray.data.corpora.assembly import WITHOUT_SPEAKERS, assemble, scalar
from fedray.data.corpora.formats.listed import Listed
from fedray.data.corpora.table import Table
from fedray.data.manifest import Manifest

VARIABLE = {".csv": re.compile(r"\$([\w.]+)"), ".json": re.compile(r"\{([\w.]+)\}")}


@dataclass(frozen=True)
class SpeechBrain(Listed):
    """Files that end in .csv or .json. Every variable in a path ($data_root, {data_folder}, ...) means `data_root`.

    SpeechBrain's LibriSpeech recipe writes `reader-chapter` as spk_id: set `speaker_separator: "-"` to make the reader
    the speaker.
    """

    data_root: str | None = None  # folder that replaces variables in paths; null: the root
    wav_column: str = "wav"  # column of the audio's path
    duration_column: str | None = "duration"  # seconds (often `length` in json); null: lengths are measured
    speaker_column: str | None = "spk_id"  # column of the speaker; null: unknown, each recording counts as a speaker
    speaker_separator: str | None = None  # the speaker is the part before it; null: the whole value
    text_column: str | None = "wrd"  # column of the transcript; null: no transcripts
    label_column: str | None = None  # column of the class; null: no classes
    translation_column: str | None = None  # column of the translation; null: no translations

    def read_file(self, root: Path, path: Path, split: str, parallel: Parallel) -> dict[str, Manifest]:
        if path.suffix not in VARIABLE:
            raise ValueError(f"{path}: SpeechBrain's manifests end in .csv or .json: for other tables use corpus: tsv")
        table = Table.read(path, skipinitialspace=True) if path.suffix == ".csv" else _json(path)
        speakers = table.optional(self.speaker_column, "speaker_column", WITHOUT_SPEAKERS)
        if speakers is not None and self.speaker_separator is not None:
            speakers = [speaker.split(self.speaker_separator, 1)[0] for speaker in speakers]
        folder = Path(root, self.data_root or "")
        variable = VARIABLE[path.suffix]
        columns = {
            "utterance": table.column("ID", None),
            "path": [variable.sub(lambda _: str(folder), wav) for wav in table.column(self.wav_column, "wav_column")],
            "speaker": speakers,
            "seconds": table.optional(self.duration_column, "duration_column"),
            "text": self.texts(table.optional(self.text_column, "text_column")),
            "label": table.optional(self.label_column, "label_column"),
            "translation": table.optional(self.translation_column, "translation_column"),
        }
        return {split: assemble(path, table.lines, columns, folder, parallel)}


def _json(path: Path) -> Table:
    """Read the file as a table with a column for each key. Errors name ids in place of line numbers."""
    items = parsed(read_text(path), path)
    if not isinstance(items, dict) or not all(isinstance(item, dict) for item in items.values()):
        raise ValueError(f'{path}: the file must be one object, {{"id": {{"wav": ..., "duration": ...}}, ...}}')
    ids = list(items)
    columns = {"ID": ids}
    for name in dict.fromkeys(key for item in items.values() for key in item):
        values = ((key, item.get(name)) for key, item in items.items())
        columns[name] = ["" if value is None else scalar(value, f"{path}:{key}", name) for key, value in values]
    return Table(path, ids, columns)
