"""SpeechBrain's manifests.

csv files have columns `ID,duration,wav,spk_id,wrd` and paths like `$data_root/a.wav`; json files hold
`{"id": {"wav": "{data_root}/a.wav", ...}}`. Segments of recordings have columns `start` and `stop`, in samples of the
file, or `{"wav": {"file": ..., "start": ..., "stop": ...}}`, as SpeechBrain's `read_audio` takes it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedray.core.parallel import Parallel
from fedray.core.ranges import Ranged, one_of
from fedray.core.texts import parsed, read_text
from fedray.data.corpora.assembly import WITHOUT_SPEAKERS, Column, assemble, scalar, shapes
from fedray.data.corpora.formats.listed import Listed, below
from fedray.data.corpora.skipping import settled
from fedray.data.corpora.table import Table
from fedray.data.manifest import Manifest, place

VARIABLE = {".csv": re.compile(r"\$([\w.]+)"), ".json": re.compile(r"\{([\w.]+)\}")}

TOLERANCE = 0.1  # seconds by which a duration may differ from its segment or its file


@dataclass(frozen=True)
class SpeechBrain(Listed, Ranged):
    """Files that end in .csv or .json. Every variable in a path ($data_root, {data_folder}, ...) means `data_root`.

    SpeechBrain's LibriSpeech recipe writes `reader-chapter` as spk_id: set `speaker_separator: "-"` to make the reader
    the speaker.
    """

    data_root: str | None = None  # folder that replaces variables in paths; null: the root
    wav_column: str = "wav"  # column of the audio's path
    duration_column: str | None = "duration"  # seconds (often `length` in json); null: lengths are measured
    start_column: str = "start"  # column of a segment's start in its file; a file without it has whole recordings
    stop_column: str = "stop"  # column of a segment's end; a file without it has segments that last to the end
    segment_unit: str = one_of(("samples", "seconds"))  # of starts and ends: samples | seconds
    speaker_column: str | None = "spk_id"  # column of the speaker; null: unknown, each recording counts as a speaker
    speaker_separator: str | None = None  # the speaker is the part before it; null: the whole value
    text_column: str | None = "wrd"  # column of the transcript; null: no transcripts
    label_column: str | None = None  # column of the class; null: no classes
    translation_column: str | None = None  # column of the translation; null: no translations

    def read_file(self, root: Path, path: Path, split: str, parallel: Parallel) -> dict[str, Manifest]:
        if path.suffix not in VARIABLE:
            raise ValueError(f"{path}: SpeechBrain's manifests end in .csv or .json: for other tables use corpus: tsv")
        table = Table.read(path, skipinitialspace=True) if path.suffix == ".csv" else self._json(path)
        speakers = table.optional(self.speaker_column, "speaker_column", WITHOUT_SPEAKERS)
        if speakers is not None and self.speaker_separator is not None:
            speakers = [speaker.split(self.speaker_separator, 1)[0] for speaker in speakers]
        folder = below(root, self.data_root)
        variable = VARIABLE[path.suffix]
        paths = [variable.sub(lambda _: str(folder), wav) for wav in table.column(self.wav_column, "wav_column")]
        columns: dict[str, Column | None] = {
            "utterance": table.column("ID", None),
            "path": paths,
            "speaker": speakers,
            "seconds": table.optional(self.duration_column, "duration_column"),
            "text": self.texts(table.optional(self.text_column, "text_column")),
            "label": table.optional(self.label_column, "label_column"),
            "translation": table.optional(self.translation_column, "translation_column"),
        }
        if not {self.start_column, self.stop_column}.isdisjoint(table.columns):
            columns |= self._segments(table, [str(folder / path) for path in paths], columns["seconds"], parallel)
        return {split: assemble(path, table.lines, columns, folder, parallel)}

    def _segments(
        self, table: Table, paths: Sequence[str], durations: Column | None, parallel: Parallel
    ) -> dict[str, Column | None]:
        """Offsets and lengths in seconds. As in SpeechBrain, a segment without an end lasts to the end of the file."""
        headers, problems = shapes(paths, parallel)
        starts, stops = (table.columns.get(name, [""] * len(paths)) for name in (self.start_column, self.stop_column))
        offsets, lengths = [], []
        for row, (path, start, stop) in enumerate(zip(paths, starts, stops, strict=True)):
            where = place(str(table.path), table.lines, row)
            if path in problems:
                offsets.append(0.0)
                lengths.append(settled(f"{where}: {path}", problems[path], "Restore the file, or drop the row"))
                continue
            rate, whole = headers[path].sample_rate, headers[path].samples / headers[path].sample_rate
            offset, end = self._time(start, rate, where), self._time(stop, rate, where)
            length = (whole if end in (0.0, offset) else end) - offset
            if length <= 0:
                raise ValueError(
                    f"{where}: the segment ends before it starts ({start} to {stop or 'the end'}): correct the row"
                )
            if durations is not None and self.segment_unit == "samples":
                self._check_unit(durations[row], length, whole, where)
            offsets.append(offset)
            lengths.append(length)
        return {"offset": offsets, "seconds": lengths}

    def _time(self, text: str, sample_rate: int, where: str) -> float:
        """A start or end in seconds; an empty one is 0."""
        if not text:
            return 0.0
        samples = self.segment_unit == "samples"
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (value.is_integer() if samples else math.isfinite(value)):
            raise ValueError(
                f"{where}: the segment starts or ends at {text!r}, which is not a "
                f"{'whole number of samples' if samples else 'number of seconds'}: correct the row, or segment_unit in "
                "data.options"
            )
        return value / sample_rate if samples else value

    @staticmethod
    def _check_unit(duration: str | float, length: float, whole: float, where: str) -> None:
        """Raise ValueError if the duration is neither that of the segment nor, as in VoxCeleb's recipe, the file's."""
        try:
            stated = float(duration)
        except ValueError:
            return
        if min(abs(stated - length), abs(stated - whole)) > TOLERANCE:
            raise ValueError(
                f"{where}: from start to stop there are {length:.2f} s, but the duration is {stated:g} s: correct the "
                "row, or set segment_unit to seconds in data.options if start and stop are in seconds"
            )

    def _json(self, path: Path) -> Table:
        """Read the file as a table with a column for each key. Errors name ids in place of line numbers."""
        items = parsed(read_text(path), path)
        if not isinstance(items, dict) or not all(isinstance(item, dict) for item in items.values()):
            raise ValueError(f'{path}: the file must be one object, {{"id": {{"wav": ..., "duration": ...}}, ...}}')
        ids = list(items)
        items = {key: self._flat(item) for key, item in items.items()}
        columns = {"ID": ids}
        named = {value for option, value in vars(self).items() if option.endswith("_column")}
        for name in dict.fromkeys(key for item in items.values() for key in item):
            values = {key: item.get(name) for key, item in items.items()}
            if name in named or all(value is None or type(value) in (str, int, float) for value in values.values()):
                columns[name] = [
                    "" if value is None else scalar(value, f"{path}:{key}", name) for key, value in values.items()
                ]
        return Table(path, ids, columns)

    def _flat(self, item: dict[str, Any]) -> dict[str, Any]:
        """The item with `{"file": ..., "start": ..., "stop": ...}` as three columns."""
        wav = item.get(self.wav_column)
        if not isinstance(wav, dict) or not wav.keys() <= {"file", "start", "stop"} or "file" not in wav:
            return item
        named = {"file": self.wav_column, "start": self.start_column, "stop": self.stop_column}
        return item | {named[key]: value for key, value in wav.items()}
