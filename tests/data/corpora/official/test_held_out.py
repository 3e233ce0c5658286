"""Development and test sets that are cut from training data."""

from __future__ import annotations

import numpy as np
import pytest

from fedray.data.corpora.official.held_out import cut
from fedray.data.manifest import Manifest


@pytest.mark.parametrize("whole", ["utterance", "speaker"])
def test_ids_and_the_seed_decide_not_the_order_of_the_rows(whole: str) -> None:
    rows = [
        {"utterance": f"u{row}", "path": "/a.wav", "seconds": 1.0, "speaker": f"s{row % 20}", "label": "ab"[row % 2]}
        for row in range(60)
    ]
    data = Manifest.from_rows(rows, "test")
    shuffled = data.take(np.random.default_rng(0).permutation(len(data)))
    expected, found = (cut(one, 6, 0, whole) for one in (data, shuffled))
    for split in ("train", "dev", "test"):
        assert sorted(found[split].column("utterance")) == sorted(expected[split].column("utterance"))
