"""BLEU and chrF summed over any division of the sentences equal sacreBLEU's over all of them, bit for bit."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
import sacrebleu

from fedray.core.metrics import Metrics
from fedray.data.text.translation_scores import TOKENISATIONS, sentence_bleu, signatures, translation_scores

SENTENCE = "The cat sat, on a mat. \"Don't go!\" he said at 3.5 o'clock; well-known (and old) & new"
ENGLISH = SENTENCE.split()
CHINESE = ["今天", "天气", "很好", "，", "我们", "去", "公园", "。", "他说", "3.5", "GPU", "吧", "！"]


def corpus(words: Sequence[str], joint: str, count: int = 160) -> tuple[list[str], list[str]]:
    """Return references, one of them empty, and hypotheses with errors, two of them empty."""
    drawn = random.Random(1)
    references = [[drawn.choice(words) for _ in range(drawn.randint(1, 14))] for _ in range(count)] + [[]]
    hypotheses = [[drawn.choice(words) if drawn.random() < 0.3 else word for word in each] for each in references]
    hypotheses[3], hypotheses[7] = [], hypotheses[7][::-1]
    return [joint.join(each) for each in references], [joint.join(each) for each in hypotheses]


@pytest.mark.parametrize(
    ("words", "joint", "tokens"), [(ENGLISH, " ", "13a"), (ENGLISH, " ", "intl"), (CHINESE, "", "zh")]
)
@pytest.mark.parametrize("shards", [1, 3, 8])
def test_shards_and_clients_add_up_to_the_corpus(words: Sequence[str], joint: str, tokens: str, shards: int) -> None:
    references, hypotheses = corpus(words, joint)
    pooled = Metrics()
    for shard in range(shards):
        part = translation_scores(references[shard::shards], hypotheses[shard::shards], tokens, "_beam")
        pooled += part.prefixed("dev")
    expected = sacrebleu.corpus_bleu(hypotheses, [references], tokenize=tokens)
    assert 0 < expected.score < 100
    assert pooled["dev/bleu_beam"] == expected.score
    assert pooled["dev/chrf_beam"] == sacrebleu.corpus_chrf(hypotheses, [references]).score
    assert sorted(pooled) == ["dev/bleu_beam", "dev/chrf_beam"], "counts are no scores of their own"


def test_nothing_has_no_score() -> None:
    nothing = translation_scores([], [], "13a")
    assert math.isnan(nothing["bleu"]) and math.isnan(nothing["chrf"])
    one = translation_scores(["a b c d"], ["a b c d"], "13a")
    assert (nothing + one)["bleu"] == one["bleu"] == pytest.approx(100)
    assert one.total("bleu") == (one["bleu"], 1.0)


@pytest.mark.parametrize("tokens", TOKENISATIONS)
def test_the_signature_is_that_of_the_scorer(tokens: str) -> None:
    scorer = sacrebleu.metrics.BLEU(tokenize=tokens)
    scorer.corpus_score(["a"], [["a"]])
    assert signatures(tokens)["bleu"] == str(scorer.get_signature())
    assert f"tok:{tokens}|smooth:exp" in signatures(tokens)["bleu"]
    assert signatures(tokens)["chrf"].startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")


def test_a_sentence_alone() -> None:
    exact, near, far = sentence_bleu(["人人天地"] * 3, ["人人天地", "人人天人", "和"], "zh")
    assert exact == pytest.approx(100) and exact > near > far
