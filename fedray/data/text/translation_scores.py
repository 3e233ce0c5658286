"""Counts from which `fedray.core.ngram_scores` derives BLEU and chrF of translations; sacreBLEU's signatures."""

from __future__ import annotations

from collections.abc import Sequence

from fedray.core.metrics import Metrics
from fedray.core.ngram_scores import BLEU_ORDERS, BLEU_PARTS, CHRF_ORDERS

# sacreBLEU's tokenisations that need no further packages and no download.
TOKENISATIONS = ("13a", "intl", "zh", "char", "none")


def translation_scores(references: Sequence[str], hypotheses: Sequence[str], tokens: str, suffix: str = "") -> Metrics:
    """`bleu` and `chrf` of these translations, as metrics that add. `tokens`: sacreBLEU's tokenisation.

    `suffix` is appended to both names. Both are NaN without translations.
    """
    of_references, of_hypotheses, *found = bleu_counts(references, hypotheses, tokens)
    pairs = zip(BLEU_ORDERS, found[:4], found[4:], strict=True)
    counts: dict[str, tuple[float, float]] = {
        f"bleu{suffix}|{order}": (matches, total) for order, matches, total in pairs
    }
    counts[f"bleu{suffix}|length"] = (of_hypotheses, of_references)
    return Metrics.of(counts | _chrf_counts(references, hypotheses, f"chrf{suffix}"))


def sentence_bleu(references: Sequence[str], hypotheses: Sequence[str], tokens: str) -> list[float]:
    """BLEU of each sentence alone, up to the highest order that it has (eff:yes), for sorting sentences."""
    from sacrebleu.metrics.bleu import BLEU

    scorer = BLEU(tokenize=tokens, effective_order=True)
    pairs = zip(references, hypotheses, strict=True)
    return [float(scorer.sentence_score(hypothesis, [reference]).score) for reference, hypothesis in pairs]


def signatures(tokens: str) -> dict[str, str]:
    """sacreBLEU's signature of each score."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    scorers = {"bleu": BLEU(tokenize=tokens), "chrf": CHRF()}
    for scorer in scorers.values():
        scorer.num_refs = 1  # a signature contains it, and sacreBLEU learns it from data
    return {name: str(scorer.get_signature()) for name, scorer in scorers.items()}


def bleu_counts(references: Sequence[str], hypotheses: Sequence[str], tokens: str) -> tuple[int, ...]:
    """The counts that BLEU is computed from, in the order of `ngram_scores.BLEU_PARTS`."""
    from sacrebleu.metrics.bleu import BLEU

    if not references:
        return (0,) * BLEU_PARTS
    found = BLEU(tokenize=tokens, force=True).corpus_score(list(hypotheses), [list(references)])
    return (found.ref_len, found.sys_len, *found.counts, *found.totals)


def _chrf_counts(references: Sequence[str], hypotheses: Sequence[str], name: str) -> dict[str, tuple[float, float]]:
    from sacrebleu.metrics.chrf import CHRF

    rows = CHRF()._extract_corpus_statistics(list(hypotheses), [list(references)]) if references else []
    sums = [sum(column) for column in zip(*rows, strict=True)] or [0] * (3 * len(CHRF_ORDERS))
    counts: dict[str, tuple[float, float]] = {}
    for order in CHRF_ORDERS:
        of_hypotheses, of_references, matches = sums[3 * order - 3 : 3 * order]
        counts |= {f"{name}|{order}": (matches, of_hypotheses), f"{name}|of {order}": (matches, of_references)}
    return counts
