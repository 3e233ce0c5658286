from __future__ import annotations

import math
import pickle

import pytest

from fedray.core.metrics import Metrics


def test_pooled_not_averaged() -> None:
    """A federated WER is sum(errors) / sum(words).

    3 of 10 words and 1 of 90 are 4 %; the mean of 30 % and 1.1 % would be 15.6 %.
    """
    pooled = Metrics(wer=(300, 10)) + Metrics(wer=(100, 90))
    assert pooled["wer"] == 400 / 100
    assert pooled.total("wer") == (400.0, 100.0)


def test_any_split_gives_the_same() -> None:
    parts = [Metrics(loss=(i * 1.5, i), **({"wer": (i, 2)} if i % 2 else {})) for i in range(1, 9)]
    straight, left, right = Metrics(), Metrics(), Metrics()
    for i, part in enumerate(parts):
        straight = straight + part
        left, right = (left + part, right) if i < 3 else (left, right + part)
    assert dict(left + right) == dict(straight) == {"loss": 1.5, "wer": (1 + 3 + 5 + 7) / 8}
    assert parts[0].total("loss") == (1.5, 1.0)  # adding leaves the parts as they were


def test_names_of_one_side_stay() -> None:
    merged = Metrics(a=(1, 2)) + Metrics(b=(3, 4))
    assert list(merged) == ["a", "b"] and len(merged) == 2 and merged["b"] == 0.75
    assert len(Metrics() + Metrics()) == 0
    with pytest.raises(KeyError):
        merged["c"]


def test_nothing_counted_is_not_a_number() -> None:
    assert math.isnan(Metrics(wer=(0, 0))["wer"])
    assert (Metrics(wer=(0, 0)) + Metrics(wer=(1, 4)))["wer"] == 0.25


def test_prefix_pickle_and_any_name() -> None:
    metrics = Metrics(wer=(1, 4)).prefixed("dev")
    assert dict(metrics) == {"dev/wer": 0.25}
    assert pickle.loads(pickle.dumps(metrics)).total("dev/wer") == (1.0, 4.0)
    assert Metrics.of({"self": (1, 1), "dev/wer": (2, 1)})["self"] == 1.0
    assert repr(metrics) == "Metrics(dev/wer=0.25)"


def test_a_metric_of_parts_is_the_plain_mean_of_what_each_part_pools() -> None:
    """Two classes have F1 (2 + 4) / (4 + 6) = 60 % and 2 / 8 = 25 %; a class that nobody has seen does not count."""
    one = Metrics.of({"macro_f1|no": (200, 4), "macro_f1|yes": (0, 3), "macro_f1|up": (0, 0), "loss": (1, 2)})
    other = Metrics.of({"macro_f1|no": (400, 6), "macro_f1|yes": (200, 5), "macro_f1|up": (0, 0)})
    pooled = (one + other).prefixed("dev")
    assert dict(pooled) == {"dev/macro_f1": pytest.approx((60 + 25) / 2), "dev/loss": 0.5} and len(pooled) == 2
    assert pooled.total("dev/macro_f1") == (85.0, 2)
    assert math.isnan(Metrics.of({"macro_f1|no": (0, 0)})["macro_f1"])
    with pytest.raises(KeyError):
        pooled["macro_f1"]


@pytest.mark.parametrize("wrong", [1.0, (1, 2, 3), {1, 2}])
def test_a_metric_that_is_no_pair_is_named(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"Metrics: drift must be a pair \(sum, count\), not .*, such as \(value, 1\)"):
        Metrics(drift=wrong)  # type: ignore[arg-type]
