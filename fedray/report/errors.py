"""The errors of a run by speaker, length, label and word, and its worst utterances word by word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import mean

import jiwer
import numpy as np
import pyarrow as pa

from fedray.report.bootstrap import by_unit
from fedray.report.predictions import Predictions
from fedray.report.recorded import Run

LABELS = 12  # a label with more values is not a category
# Bins of references by number of words: (at least, at most).
LENGTHS = ((1, 1), (2, 3), (4, 5), (6, 8), (9, 12), (13, 20), (21, None))
EDITS = {"equal": "same", "substitute": "substituted", "delete": "deleted", "insert": "inserted"}


@dataclass(frozen=True)
class Rates:
    """The WER or accuracy, in percent, or BLEU, of the seed model and of the best round on a part of the test set."""

    name: str
    utterances: int
    length: int  # words, or items
    seed: float
    best: float


@dataclass(frozen=True)
class Edit:
    """A word of the reference aligned with one of the hypothesis; `kind`: same | substituted | deleted | inserted."""

    kind: str
    reference: str
    hypothesis: str


@dataclass(frozen=True)
class Utterance:
    """A scored utterance; `edits` align the best round's hypothesis with the reference, `before` the seed model's."""

    id: str
    speaker: str
    label: str
    errors: int
    length: int
    reference: str
    edits: Sequence[Edit]
    before: Sequence[Edit]
    source: str = ""  # for translation: the transcript
    bleu: float | None = None  # for translation


@dataclass(frozen=True)
class Errors:
    """The errors of one run on one split with greedy search. Words are listed by count, the most frequent first."""

    split: str
    kind: str  # recognition | translation | classification
    speakers: Sequence[Rates] = ()  # worst first
    lengths: Sequence[Rates] = ()
    labels: Sequence[Rates] = ()  # for classification: the classes
    substituted: Sequence[tuple[str, str, int]] = ()
    deleted: Sequence[tuple[str, int]] = ()
    inserted: Sequence[tuple[str, int]] = ()
    worst: Sequence[Utterance] = field(default_factory=list)

    @property
    def recognition(self) -> bool:
        return self.kind == "recognition"


def analyse(predictions: Predictions, split: str, most: int = 10, worst: int = 12) -> Errors | None:
    """List `most` words of each kind of error and the `worst` worst utterances; None if the split was not scored."""
    seed, best = predictions.rows("seed", split), predictions.rows("best", split)
    if not len(best) or "errors" not in best.column_names:
        return None
    names = best["speaker"].to_pylist()
    by_speaker = rates(predictions, seed, best, names)
    labels = best["label" if predictions.recognition and "label" in best.column_names else "reference"].to_pylist()
    categories = {label for label in labels if label}
    few = len(categories) > 1 and (len(categories) <= LABELS or not predictions.recognition)
    by_label = rates(predictions, seed, best, labels) if few else []
    if not predictions.recognition:
        confusions = Counter(zip(best["reference"].to_pylist(), best["hypothesis"].to_pylist(), strict=True))
        pairs = [(said, heard, count) for (said, heard), count in confusions.most_common() if said != heard]
        lowest = _worst(predictions, seed, best, worst)
        return Errors(split, predictions.kind, by_speaker, (), by_label, pairs[:most], worst=lowest)
    by_length = rates(predictions, seed, best, [_length(words) for words in best["words"].to_pylist()])
    order = [_words(*pair) for pair in LENGTHS]
    by_length.sort(key=lambda part: order.index(part.name) if part.name in order else -1)
    substituted: Counter[tuple[str, str]] = Counter()
    deleted: Counter[str] = Counter()
    inserted: Counter[str] = Counter()
    for edits in align(best["reference"].to_pylist(), best["hypothesis"].to_pylist()):
        for edit in edits:
            if edit.kind == "substituted":
                substituted[edit.reference, edit.hypothesis] += 1
            elif edit.kind == "deleted":
                deleted[edit.reference] += 1
            elif edit.kind == "inserted":
                inserted[edit.hypothesis] += 1
    return Errors(
        split,
        predictions.kind,
        by_speaker,
        by_length,
        by_label,
        [(*words, count) for words, count in substituted.most_common(most)],
        deleted.most_common(most),
        inserted.most_common(most),
        _worst(predictions, seed, best, worst),
    )


def rates(predictions: Predictions, seed: pa.Table, best: pa.Table, names: Sequence[str]) -> list[Rates]:
    """Rates per name, the worst first; utterance i belongs to `names[i]`, or to none if that is empty."""
    lengths = predictions.lengths(best)
    aligned = dict(zip(seed["utterance"].to_pylist(), seed["errors"].to_pylist(), strict=True))
    before = np.array([aligned[utterance] for utterance in best["utterance"].to_pylist()])
    after = best["errors"].to_numpy()
    found = []
    parts, index = np.unique(np.array(names, dtype=object).astype(str), return_inverse=True)
    sums = [np.bincount(index, weights, len(parts)) for weights in (lengths, before, after)]
    counts = np.bincount(index, minlength=len(parts))
    columns = [column.tolist() for column in (parts, counts, *sums)]
    for name, utterances, length, one, other in zip(*columns, strict=True):
        if name and length:
            values = [100 * wrong / length for wrong in (one, other)]
            if not predictions.recognition:
                values = [100 - value for value in values]
            found.append(Rates(name, utterances, int(length), *values))
    return sorted(found, key=lambda part: (-part.best if predictions.recognition else part.best, part.name))


def of_labels(runs: Iterable[Run], metric: str, model: str, most: float = LABELS) -> dict[str, float]:
    """Group or label -> its score, the mean over runs; empty if no run has any, or there are more than `most`."""
    found: dict[str, list[float]] = {}
    for run in runs:
        unit = None if run.predictions is None else run.predictions.categories
        if run.predictions is not None and unit is not None:
            for label, counts in (run.predictions.counts(model, metric, unit) or {}).items():
                found.setdefault(label, []).extend(by_unit({label: counts}).tolist())
    scores = {label: mean(values) for label, values in sorted(found.items()) if label and values}
    return scores if 1 < len(scores) <= most else {}


def align(references: Sequence[str], hypotheses: Sequence[str]) -> list[list[Edit]]:
    """The edits of each pair, one word each, by jiwer's alignment."""
    if not references:
        return []
    output = jiwer.process_words(list(references), list(hypotheses))
    return [
        list(_edits(said, heard, chunks))
        for said, heard, chunks in zip(output.references, output.hypotheses, output.alignments, strict=True)
    ]


def _edits(said: Sequence[str], heard: Sequence[str], chunks: Iterable[jiwer.AlignmentChunk]) -> Iterable[Edit]:
    for chunk in chunks:
        reference = said[chunk.ref_start_idx : chunk.ref_end_idx]
        hypothesis = heard[chunk.hyp_start_idx : chunk.hyp_end_idx]
        for position in range(max(len(reference), len(hypothesis))):
            yield Edit(
                EDITS[chunk.type],
                reference[position] if position < len(reference) else "",
                hypothesis[position] if position < len(hypothesis) else "",
            )


def _worst(predictions: Predictions, seed: pa.Table, best: pa.Table, most: int) -> list[Utterance]:
    """The utterances with the most errors; ties: the shorter first, then by name."""
    lengths, errors = predictions.lengths(best), best["errors"].to_numpy()
    ids = best["utterance"].to_pylist()
    order = sorted(np.flatnonzero(errors).tolist(), key=lambda row: (-errors[row], lengths[row], ids[row]))[:most]
    rows = best.take(pa.array(order, pa.int64())).to_pylist()
    before = dict(zip(seed["utterance"].to_pylist(), seed["hypothesis"].to_pylist(), strict=True))
    references = [row["reference"] for row in rows]
    edits = align(references, [row["hypothesis"] for row in rows])
    earlier = align(references, [before[row["utterance"]] for row in rows])
    return [
        Utterance(
            row["utterance"],
            row["speaker"],
            row.get("label") or "",
            row["errors"],
            int(length),
            row["reference"],
            after,
            first,
        )
        for length, row, after, first in zip(lengths[order], rows, edits, earlier, strict=True)
    ]


def _length(words: int) -> str:
    return next(
        (_words(least, most) for least, most in LENGTHS if least <= words and (most is None or words <= most)), ""
    )


def _words(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} words or more"
    return f"{least}–{most} words" if most > least else f"{least} word"
