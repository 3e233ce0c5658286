"""The translations of a run: BLEU by speaker and label, and the worst ones with their sources and references."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from fedray.core.metrics import Metrics
from fedray.data.text.translation_scores import translation_scores
from fedray.report.errors import LABELS, Edit, Errors, Rates, Utterance
from fedray.report.predictions import Predictions


def analyse(predictions: Predictions, split: str, worst: int = 12) -> Errors | None:
    """The BLEU by speaker and label, and the `worst` worst translations; None if the split was not scored.

    BLEU by speaker and label needs a known tokenisation.
    """
    seed, best = predictions.rows("seed", split), predictions.rows("best", split)
    if not len(best):
        return None
    tokens = predictions.tokens
    speakers, labels = best["speaker"].to_pylist(), best["label"].to_pylist() if "label" in best.column_names else []
    few = 1 < len({label for label in labels if label}) <= LABELS
    return Errors(
        split,
        predictions.kind,
        rates(seed, best, speakers, tokens) if tokens else (),
        labels=rates(seed, best, labels, tokens) if tokens and few else (),
        worst=_worst(seed, best, worst),
    )


def rates(seed: pa.Table, best: pa.Table, names: Sequence[str], tokens: str) -> list[Rates]:
    """BLEU per name, the worst first; utterance i of `best` belongs to `names[i]`, or to none if that is empty."""
    before = dict(zip(seed["utterance"].to_pylist(), seed["hypothesis"].to_pylist(), strict=True))
    earlier = [before[utterance] for utterance in best["utterance"].to_pylist()]
    references, hypotheses = best["reference"].to_pylist(), best["hypothesis"].to_pylist()
    rows_of: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        rows_of.setdefault(name, []).append(row)

    def bleu(rows: Sequence[int], texts: Sequence[str]) -> Metrics:
        return translation_scores([references[row] for row in rows], [texts[row] for row in rows], tokens)

    scored = [(name, rows, bleu(rows, earlier), bleu(rows, hypotheses)) for name, rows in rows_of.items() if name]
    found = [Rates(name, len(rows), len(rows), one["bleu"], other["bleu"]) for name, rows, one, other in scored]
    return sorted(found, key=lambda part: (part.best, part.name))


def _worst(seed: pa.Table, best: pa.Table, most: int) -> list[Utterance]:
    """The translations with the lowest BLEU; ties: the shorter first, then by name."""
    before = dict(zip(seed["utterance"].to_pylist(), seed["hypothesis"].to_pylist(), strict=True))
    scores, ids = best["bleu"].to_numpy(), best["utterance"].to_pylist()
    lengths = [len(text) for text in best["reference"].to_pylist()]
    order = sorted(np.flatnonzero(scores < 100).tolist(), key=lambda row: (scores[row], lengths[row], ids[row]))[:most]
    return [
        Utterance(
            row["utterance"],
            row["speaker"],
            row.get("label") or "",
            0,
            0,
            row["reference"],
            _whole(row["hypothesis"]),
            _whole(before[row["utterance"]]),
            row.get("source") or "",
            row["bleu"],
        )
        for row in best.take(pa.array(order, pa.int64())).to_pylist()
    ]


def _whole(text: str) -> list[Edit]:
    """A translation without alignment, which says little if its words are in another order than the reference's."""
    return [Edit("same", text, text)]
