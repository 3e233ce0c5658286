"""Tables with a header and one row for each utterance: tab-separated, or with any other delimiter."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from fedray.core.parallel import Parallel
from fedray.data.corpora.assembly import WITHOUT_SPEAKERS, assemble, by_id
from fedray.data.corpora.formats.listed import SPLITS, USUAL_SPLITS, Listed, below
from fedray.data.corpora.table import Table
from fedray.data.manifest import Manifest


@dataclass(frozen=True)
class Tsv(Listed):
    """A table with a header and one row for each utterance.

    Quotation marks are part of the text, unless the table is written as CSV writes them: a line then says so.
    """

    delimiter: str = "\t"  # between two columns: a tab by default, "," for a comma
    path_column: str = "path"  # absolute paths, or paths relative to `audio_root`
    speaker_column: str | None = "speaker"  # column of the speaker; null: unknown, each recording counts as a speaker
    text_column: str | None = None  # column of the transcript; null: no transcripts
    label_column: str | None = None  # column of the class; null: no classes
    translation_column: str | None = None  # column of the translation; null: no translations
    # column of the utterance's id; null: the path as in the table, and its offset if paths repeat
    id_column: str | None = None
    seconds_column: str | None = "seconds"  # column of the length in seconds; null: lengths are measured
    offset_column: str | None = None  # column of the start in the audio file, in seconds; null: 0
    split_column: str | None = None  # column of the split, which overrides the list that names the file
    split_names: dict[str, str] = field(default_factory=dict)  # e.g. {held: dev}; the usual names are known
    audio_root: str | None = None  # folder of the audio, relative to the root; null: the folder of the table

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or self.delimiter in "\r\n":
            raise ValueError(
                f"delimiter must be one character other than a line end, such as ',' or a tab, not {self.delimiter!r}"
            )
        for name, split in self.split_names.items():
            if split not in SPLITS and not re.fullmatch("test-.+", split):
                raise ValueError(f"split_names: {name}: {split!r} is none of {', '.join(SPLITS)} or test-NAME")

    def named_by_path(self) -> bool:
        return self.id_column is None and self.audio_root is None

    def read_file(self, root: Path, path: Path, split: str, parallel: Parallel) -> dict[str, Manifest]:
        table = Table.read(path, self.delimiter, quoted=False)
        ids = self._ids(table)
        columns = {
            "path": table.column(self.path_column, "path_column"),
            "speaker": table.optional(self.speaker_column, "speaker_column", WITHOUT_SPEAKERS),
            "text": self.texts(table.optional(self.text_column, "text_column")),
            "label": table.optional(self.label_column, "label_column"),
            "translation": table.optional(self.translation_column, "translation_column"),
            "utterance": ids,
            "seconds": table.optional(self.seconds_column, "seconds_column"),
            "offset": table.optional(self.offset_column, "offset_column"),
        }
        folder = path.parent if self.audio_root is None else below(root, self.audio_root)
        manifest = assemble(path, table.lines, columns, folder, parallel)
        names = table.optional(self.split_column, "split_column")
        if names is None:
            return {split: manifest}
        rows: dict[str, list[int]] = {}
        known = {name: name for name in SPLITS} | USUAL_SPLITS | self.split_names
        first = by_id(ids, list(zip(table.lines, names, strict=True)))
        for row, utterance in enumerate(manifest.column("utterance")):
            line, name = first[utterance]
            if name not in known:
                where = f"{path}:{line}"
                raise ValueError(
                    f"{where}: the split {name!r} is not known: add it to split_names, e.g. {{{name}: train}} (or "
                    "server, clients, dev, test)"
                )
            rows.setdefault(known[name], []).append(row)
        return {name: manifest.take(indices) for name, indices in rows.items()}

    def _ids(self, table: Table) -> list[str]:
        ids = table.column(self.id_column or self.path_column, "id_column" if self.id_column else "path_column")
        if self.id_column is not None or self.offset_column is None or len(set(ids)) == len(ids):
            return ids
        return [f"{path}@{start}" for path, start in zip(ids, table.column(self.offset_column, None), strict=True)]
