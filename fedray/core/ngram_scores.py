"""BLEU and chrF from pooled counts, by sacreBLEU's own formulas.

The counts are integers that add up, so any division of the sentences gives the same pooled score, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

Parts = Mapping[str, tuple[float, float]]  # part of a metric -> its pooled pair

BLEU_ORDERS = range(1, 5)  # n of the n-grams of tokens
BLEU_PARTS = 10  # tokens of the references, of the hypotheses, matches by order, n-grams of the hypotheses by order
CHRF_ORDERS = range(1, 7)  # n of the n-grams of characters


def bleu(parts: Parts) -> float:
    """BLEU, 0 to 100, with smooth:exp; NaN without references.

    `parts`: "1" to "4": (matches, n-grams of the hypotheses), "length": (tokens of the hypotheses, of the references).
    """
    from sacrebleu.metrics.bleu import BLEU  # imported here: only translation needs it

    length, of_references = map(int, parts["length"])
    if not of_references:
        return math.nan
    matches, totals = zip(*(map(int, parts[str(order)]) for order in BLEU_ORDERS), strict=True)
    found = BLEU.compute_bleu(list(matches), list(totals), length, of_references, smooth_method="exp")
    return float(found.score)


def bleu_of(counts: np.ndarray) -> np.ndarray:
    """BLEU of many counts [..., BLEU_PARTS] at once, float [...]; 0 where nothing matches.

    Equal to `bleu` up to rounding (tests/properties/test_translation_scores.py).
    """
    of_references, of_hypotheses = counts[..., 0], counts[..., 1]
    matches, totals = counts[..., 2:6], counts[..., 6:]
    # For the k-th order without matches, smooth:exp counts 1 / 2^k matches.
    halvings = np.cumsum((matches == 0) & (totals > 0), axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        precisions = np.where(matches > 0, matches, 0.5**halvings) / totals
        brevity = np.exp(np.minimum(0.0, 1 - of_references / of_hypotheses))
        found = 100 * brevity * np.exp(np.log(precisions).mean(-1))
    return np.where((matches[..., 0] > 0) & (totals > 0).all(-1), found, 0.0)


def chrf(parts: Parts) -> float:
    """chrF2, 0 to 100; NaN without references.

    `parts`, for n from 1 to 6: "n": (matches, n-grams of the hypotheses), "of n": (matches, n-grams of the references).
    """
    from sacrebleu.metrics.chrf import CHRF

    counts: list[int] = []
    for order in CHRF_ORDERS:
        matches, of_hypotheses = map(int, parts[str(order)])
        counts += [of_hypotheses, int(parts[f"of {order}"][1]), matches]
    return float(CHRF()._compute_f_score(counts)) if counts[1] else math.nan
