"""predictions.tsv: every scored utterance of the seed model and of the best one, as counts and as texts."""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from fedray.engine.folder import RunFolder
from fedray.report.bootstrap import Counts

NAME = "predictions.tsv"
NEEDED = ("model", "split", "utterance", "speaker", "reference", "hypothesis", "errors")
TABLE = csv.ParseOptions(delimiter="\t", quote_char=False)
MODELS = ("seed", "best")


@dataclass(frozen=True)
class Predictions:
    """Columns model (seed | best), split, utterance, speaker, reference, hypothesis, errors; of recognition also label, words, and of a
    second search hypothesis_lm, errors_lm (or _lexicon)."""

    table: pa.Table

    @classmethod
    def read(cls, folder: RunFolder) -> Predictions:
        """ValueError: the file is damaged. FileNotFoundError: the run is not finished."""
        shown, data = folder.storage.shown(NAME), folder.storage.read(NAME)
        remedy = "it was cut short or changed; remove results.json and `fedray resume` the run to have it written anew"
        if not data.endswith(b"\n"):
            raise ValueError(f"{shown}: the last row is incomplete: {remedy}")
        try:
            names = data[: data.index(b"\n")].decode().split("\t")
            types = {name: pa.int64() if name == "words" or name.startswith("errors") else pa.string() for name in names}
            convert = csv.ConvertOptions(column_types=types, strings_can_be_null=False)
            table = csv.read_csv(io.BytesIO(data), parse_options=TABLE, convert_options=convert)
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise ValueError(f"{shown}: {str(error).splitlines()[0]}: {remedy}") from error
        if missing := [name for name in NEEDED if name not in table.column_names]:
            raise ValueError(f"{shown}: has no column {', '.join(missing)}: {remedy}")
        found = cls(table)
        if any(table[name].null_count for name in ("words", "errors") if name in table.column_names):
            raise ValueError(f"{shown}: a row has no words or errors: {remedy}")
        utterances = [[set(found.rows(model, split)["utterance"].to_pylist()) for model in MODELS] for split in found.splits]
        if any(seed != best for seed, best in utterances):
            raise ValueError(f"{shown}: the seed model and the best one have not scored the same utterances: {remedy}")
        return found

    @property
    def recognition(self) -> bool:
        """Whether words are counted; else each utterance has one class, and an error is 0 or 1."""
        return "words" in self.table.column_names

    @property
    def splits(self) -> list[str]:
        return pc.unique(self.table["split"]).to_pylist()

    @property
    def metrics(self) -> dict[str, str]:
        """Metric -> the column of its errors: wer (or accuracy) -> errors, wer_lm -> errors_lm."""
        name = "wer" if self.recognition else "accuracy"
        return {column.replace("errors", name, 1): column for column in self.table.column_names if column.startswith("errors")}

    def rows(self, model: str, split: str = "test") -> pa.Table:
        """The rows of a model (seed | best) on a split."""
        return self._parts.get((model, split), self.table.slice(0, 0))

    def counts(self, model: str, metric: str, unit: str = "speaker") -> Counts | None:
        """Speaker (or what another column names) -> words and errors, or items and correct answers; None: it is no metric of this table.

        `metric` is a key of results.json: test/wer, test/wer_lm, dev/accuracy.
        """
        split, _, name = metric.rpartition("/")
        column = self.metrics.get(name)
        if column is None or not len(rows := self.rows(model, split)) or rows[column].null_count:
            return None
        units = rows[unit].combine_chunks().dictionary_encode()
        lengths, errors = self.lengths(rows), rows[column].to_numpy()
        found = np.zeros((len(units.dictionary), 2), dtype=np.int64)
        np.add.at(found, units.indices.to_numpy(), np.stack([lengths, errors if self.recognition else lengths - errors], axis=1))
        return dict(zip(units.dictionary.to_pylist(), map(tuple, found.tolist()), strict=True))

    def lengths(self, rows: pa.Table) -> np.ndarray:
        """int64 [rows]: words of the references, or ones."""
        return rows["words"].to_numpy() if self.recognition else np.ones(len(rows), dtype=np.int64)

    @functools.cached_property
    def _parts(self) -> Mapping[tuple[str, str], pa.Table]:
        keys = [(model, split) for model in MODELS for split in self.splits]
        return {
            (model, split): self.table.filter(pc.and_(pc.equal(self.table["model"], model), pc.equal(self.table["split"], split)))
            for model, split in keys
        }
