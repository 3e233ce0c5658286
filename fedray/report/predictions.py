"""predictions.tsv: reference, hypothesis and errors of every utterance, for the seed model and for the best model."""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from fedray.data.text.translation_scores import TOKENISATIONS, bleu_counts
from fedray.report.bootstrap import Counts
from fedray.runs.folder import RunFolder

NAME = "predictions.tsv"
NEEDED = ("model", "split", "utterance", "speaker", "reference", "hypothesis")
TABLE = csv.ParseOptions(delimiter="\t", quote_char=False)
MODELS = ("seed", "best")
LONGEST = 50_000  # bytes of a text, about an hour of speech: an alignment takes the product of two lengths


@dataclass(frozen=True)
class Predictions:
    """One row per model (seed | best), split and utterance.

    Columns: model, split, utterance, speaker, reference, hypothesis, errors. Recognition adds label and words, and
    for a second search hypothesis_lm and errors_lm (or _lexicon). Translation has label, source, and instead of errors
    the BLEU of each sentence: bleu, and for beam search hypothesis_beam and bleu_beam.
    """

    table: pa.Table
    tokens: str = ""  # sacreBLEU's tokenisation of translations; "": unknown, so BLEU has no counts

    @classmethod
    def read(cls, folder: RunFolder, signature: str = "") -> Predictions:
        """Read predictions.tsv; `signature`: that of sacreBLEU's BLEU, from results.json.

        Raises ValueError if the file is damaged, FileNotFoundError if the run is not finished.
        """
        shown, data = folder.storage.shown(NAME), folder.storage.read(NAME)
        remedy = "the file was truncated or changed; remove results.json and `fedray resume` the run to write it again"
        if not data.endswith(b"\n"):
            raise ValueError(f"{shown}: the last row is incomplete: {remedy}")
        try:
            names = data[: data.index(b"\n")].decode().split("\t")
            types = {name: column_type(name) for name in names}
            convert = csv.ConvertOptions(column_types=types, strings_can_be_null=False)
            table = csv.read_csv(io.BytesIO(data), parse_options=TABLE, convert_options=convert)
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise ValueError(f"{shown}: {str(error).splitlines()[0]}: {remedy}") from error
        scored = "bleu" if "bleu" in table.column_names else "errors"
        if missing := [name for name in (*NEEDED, scored) if name not in table.column_names]:
            raise ValueError(f"{shown}: has no column {', '.join(missing)}: {remedy}")
        if not table.num_rows:
            raise ValueError(f"{shown}: lists no utterances: {remedy}")
        texts = [table[name] for name in table.column_names if name == "reference" or name.startswith("hypothesis")]
        if any((pc.max(pc.binary_length(column)).as_py() or 0) > LONGEST for column in texts):
            raise ValueError(f"{shown}: a text has more than {LONGEST:,} bytes, which no utterance has: {remedy}")
        found = cls(table, tokenisation(signature))
        if any(table[name].null_count for name in ("words", scored) if name in table.column_names):
            raise ValueError(f"{shown}: a row has no {'score' if scored == 'bleu' else 'words or errors'}: {remedy}")
        utterances = [
            [set(found.rows(model, split)["utterance"].to_pylist()) for model in MODELS] for split in found.splits
        ]
        if any(seed != best for seed, best in utterances):
            raise ValueError(f"{shown}: the seed model and the best one have not scored the same utterances: {remedy}")
        return found

    @property
    def kind(self) -> str:
        """What was scored: recognition | translation | classification."""
        if "bleu" in self.table.column_names:
            return "translation"
        return "recognition" if self.recognition else "classification"

    @property
    def recognition(self) -> bool:
        """Whether errors count words; in classification each utterance has one class, and its error is 0 or 1."""
        return "words" in self.table.column_names

    @property
    def categories(self) -> str | None:
        """The column of the groups (`data.groups`), else of the labels; None: there is neither."""
        return next((name for name in ("group", "label") if name in self.table.column_names), None)

    def of_group(self, name: str) -> Predictions:
        """The rows of a group."""
        return Predictions(self.table.filter(pc.equal(self.table["group"], name)), self.tokens)

    @property
    def splits(self) -> list[str]:
        return list(pc.unique(self.table["split"]).to_pylist())

    @property
    def metrics(self) -> dict[str, str]:
        """Metric -> column of its errors: wer (or accuracy) -> errors, wer_lm -> errors_lm; bleu -> hypothesis."""
        if self.kind == "translation":
            names = [name for name in self.table.column_names if name.startswith("hypothesis")] if self.tokens else []
            return {name.replace("hypothesis", "bleu", 1): name for name in names}
        name = "wer" if self.recognition else "accuracy"
        return {
            column.replace("errors", name, 1): column
            for column in self.table.column_names
            if column.startswith("errors")
        }

    def rows(self, model: str, split: str = "test") -> pa.Table:
        """The rows of a model (seed | best) on a split."""
        return self._parts.get((model, split), self.table.slice(0, 0))

    def counts(self, model: str, metric: str, unit: str = "speaker") -> Counts | None:
        """Unit -> (words, errors), (items, correct answers) or the counts of BLEU; None if the table lacks the metric.

        `metric` is a key of results.json: test/wer, test/wer_lm, dev/accuracy; `unit` is a column of the table.
        """
        split, _, name = metric.rpartition("/")
        column = self.metrics.get(name)
        if column is None or not len(rows := self.rows(model, split)) or rows[column].null_count:
            return None
        if self.kind == "translation":
            return self._of_translations(rows, unit, column)
        units = rows[unit].combine_chunks().dictionary_encode()
        lengths, errors = self.lengths(rows), rows[column].to_numpy()
        found = np.zeros((len(units.dictionary), 2), dtype=np.int64)
        np.add.at(
            found,
            units.indices.to_numpy(),
            np.stack([lengths, errors if self.recognition else lengths - errors], axis=1),
        )
        return dict(zip(units.dictionary.to_pylist(), map(tuple, found.tolist()), strict=True))

    def _of_translations(self, rows: pa.Table, unit: str, column: str) -> Counts:
        texts: dict[str, tuple[list[str], list[str]]] = {}
        for name, *pair in zip(*(rows[each].to_pylist() for each in (unit, "reference", column)), strict=True):
            for known, text in zip(texts.setdefault(name, ([], [])), pair, strict=True):
                known.append(text)
        return {name: bleu_counts(*pair, self.tokens) for name, pair in texts.items()}

    def lengths(self, rows: pa.Table) -> np.ndarray:
        """int64 [rows]: words of each reference; ones for classification."""
        return rows["words"].to_numpy() if self.recognition else np.ones(len(rows), dtype=np.int64)

    @functools.cached_property
    def _parts(self) -> Mapping[tuple[str, str], pa.Table]:
        models, splits = self.table["model"], self.table["split"]
        return {
            (model, split): self.table.filter(pc.and_(pc.equal(models, model), pc.equal(splits, split)))
            for model in MODELS
            for split in self.splits
        }


def tokenisation(signature: str) -> str:
    """The tokenisation in a signature of sacreBLEU; "" if there is none, or it needs further packages."""
    found = re.search(r"\btok:([\w-]+)", signature)
    return found[1] if found and found[1] in TOKENISATIONS else ""


def column_type(name: str) -> pa.DataType:
    """The type of a column by its name."""
    if name == "words" or name.startswith("errors"):
        return pa.int64()
    return pa.float64() if name.startswith("bleu") else pa.string()
