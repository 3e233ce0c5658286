"""The counts of BLEU and chrF, added over sentences, give sacreBLEU's corpus scores, whatever the sentences hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from fedray.core.metrics import Metrics
from fedray.core.ngram_scores import bleu_of
from fedray.data.text.translation_scores import bleu_counts, translation_scores

TEXTS = st.text("ab .人天", max_size=8)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6), st.sampled_from(["13a", "zh"]))
def test_sentences_add_up_to_the_corpus(pairs: list[tuple[str, str]], tokens: str) -> None:
    references, hypotheses = [reference for reference, _ in pairs], [hypothesis for _, hypothesis in pairs]
    pooled = sum((translation_scores([one], [other], tokens) for one, other in pairs), Metrics())
    if any(reference.split() for reference in references):
        expected = sacrebleu.corpus_bleu(hypotheses, [references], force=True, tokenize=tokens)
        assert pooled["bleu"] == expected.score
        counts = np.array([bleu_counts(references, hypotheses, tokens)] * 2)
        assert bleu_of(counts) == pytest.approx([expected.score] * 2, abs=1e-9)
        assert pooled["chrf"] == sacrebleu.corpus_chrf(hypotheses, [references]).score
    else:
        assert math.isnan(pooled["bleu"]) and math.isnan(pooled["chrf"])
