"""BLEU and chrF of pooled counts, by sacreBLEU's own formulas.

The counts are integers that add, so any division of the sentences gives the score of all of them, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

Parts = Mapping[str, tuple[float, float]]  # part of a metric -> its pooled pair

BLEU_ORDERS = range(1, 5)  # of n-grams of tokens
CHRF_ORDERS = range(1, 7)  # of n-grams of characters


def bleu(parts: Parts) -> float:
    """BLEU, 0 to 100, with smooth:exp; NaN without references.

    `parts`: "1" to "4": (matches, n-grams of the hypotheses), "length": (tokens of the hypotheses, of the references).
    """
    from sacrebleu.metrics.bleu import BLEU  # here: only translation needs it

    length, of_references = map(int, parts["length"])
    if not of_references:
        return math.nan
    matches, totals = zip(*(map(int, parts[str(order)]) for order in BLEU_ORDERS), strict=True)
    found = BLEU.compute_bleu(list(matches), list(totals), length, of_references, smooth_method="exp")
    return float(found.score)


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
