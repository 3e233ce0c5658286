from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from fedray.data.features.dataset import POOL, Utterances, batches, codes, collate, shard
from fedray.data.features.store import FeatureStore
from fedray.data.manifest import Manifest

BINS = 3


def utterances_of(folder: Path, lengths: list[int]) -> Utterances:
    """Make utterances: utterance i has `lengths[i]` frames, all of the value i + 1; its text is `text i`."""
    folder.mkdir(parents=True, exist_ok=True)
    frames = np.concatenate([np.full((length, BINS), row + 1, np.float16) for row, length in enumerate(lengths)])
    frames.tofile(folder / "frames.f16")
    np.save(folder / "offsets.npy", np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    (folder / "store.json").write_text(f'{{"bins": {BINS}, "broken": {{}}}}')
    rows = [
        {
            "utterance": f"u{i}",
            "path": f"/{i}.wav",
            "seconds": n / 100,
            "speaker": f"s{i % 2}",
            "text": f"text {i}",
            "label": "yes",
        }
        for i, n in enumerate(lengths)
    ]
    return Utterances(Manifest.from_rows(rows, source="test"), FeatureStore(folder), np.arange(len(lengths)))


def positions(found) -> list[list[int]]:
    return [batch.positions.tolist() for batch in found]


def test_columns_follow_the_rows(tmp_path: Path) -> None:
    everything = utterances_of(tmp_path, [5, 3, 4])
    part = everything.take(np.array([2, 0]))
    assert (part.ids, part.texts, part.speakers, part.labels) == (
        ["u2", "u0"],
        ["text 2", "text 0"],
        ["s0", "s0"],
        ["yes", "yes"],
    )
    assert (
        part.lengths.tolist() == [4, 5] and part.seconds.tolist() == [0.04, 0.05] and part.translations == [None, None]
    )
    assert part.take(np.array([1])).ids == ["u0"]  # positions within the part


def test_values_and_their_codes(tmp_path: Path) -> None:
    everything = utterances_of(tmp_path, [5, 3, 4])
    part = everything.take(np.array([2, 0]))
    assert part.distinct("text") == ["text 0", "text 2"] and part.distinct("translation") == []
    assert part.column("speaker") == ["s0", "s0"]
    assert codes(everything.manifest, "text", ["text 2", "text 0"]).tolist() == [1, -1, 0]
    assert codes(everything.manifest, "translation", ["oui"]).tolist() == [-1, -1, -1], "null is none of them"


def test_what_is_labelled_follows_the_rows(tmp_path: Path) -> None:
    everything = utterances_of(tmp_path, [5, 3, 4])
    assert everything.labelled is None and everything.take(np.array([2])).labelled is None
    assert everything.unlabelled.tolist() == [0, 1, 2], "nothing is said"
    everything = Utterances(everything.manifest, everything.features, everything.rows, np.array([True, False, False]))
    part = pickle.loads(pickle.dumps(everything)).take(np.array([2, 0, 1]))
    assert part.labelled.tolist() == [False, True, False] and part.unlabelled.tolist() == [0, 2]


def test_a_pickle_holds_no_columns_that_were_read(tmp_path: Path) -> None:
    everything = utterances_of(tmp_path, [3] * 1000)
    before = len(pickle.dumps(everything))
    assert everything.ids and everything.texts and len(everything.seconds) == 1000
    packed = pickle.dumps(everything)
    assert len(packed) == before
    assert pickle.loads(packed).take(np.array([7])).ids == ["u7"]


def test_collate_pads_with_zeros(tmp_path: Path) -> None:
    batch = collate(utterances_of(tmp_path, [2, 4, 3]), np.array([2, 0]))
    assert batch.features.dtype == torch.float32 and batch.features.shape == (2, 3, BINS)
    assert batch.features[:, :, 0].tolist() == [[3, 3, 3], [1, 1, 0]]
    assert batch.lengths.tolist() == [3, 2] and batch.lengths.dtype == torch.int64 and len(batch) == 2
    moved = batch.to("cpu")
    assert torch.equal(moved.features, batch.features) and moved.positions is batch.positions


def test_evaluation_is_sorted_by_length_ties_by_position(tmp_path: Path) -> None:
    everything = utterances_of(tmp_path, [5, 2, 5, 1, 2])
    assert positions(batches(everything, 2, None)) == [[3, 1], [4, 0], [2]]


@pytest.mark.parametrize("size", [1, 6, 7, 1000])
def test_training_visits_everyone_once(tmp_path: Path, size: int) -> None:
    lengths = np.random.default_rng(0).integers(1, 300, 100)
    everything = utterances_of(tmp_path, lengths.tolist())
    found = list(batches(everything, size, np.random.default_rng(1)))
    assert sorted(sum(positions(found), [])) == list(range(100))
    full, rest = divmod(100, size)
    assert sorted(len(batch) for batch in found) == sorted([size] * full + [rest] * (rest > 0))
    for batch in found:  # every position has its own frames
        assert batch.features[:, 0, 0].tolist() == (batch.positions + 1).tolist()
        assert batch.lengths.tolist() == lengths[batch.positions].tolist()


def test_training_order_follows_the_generator(tmp_path: Path) -> None:
    everything = utterances_of(tmp_path, np.random.default_rng(0).integers(1, 300, 60).tolist())
    first, again, other = (positions(batches(everything, 6, np.random.default_rng(seed))) for seed in (1, 1, 2))
    assert first == again != other


def test_training_batches_are_tight(tmp_path: Path) -> None:
    lengths = np.random.default_rng(0).integers(100, 400, POOL * 8)
    everything = utterances_of(tmp_path, lengths.tolist())

    def padded(found) -> int:
        return sum(batch.features.shape[0] * batch.features.shape[1] for batch in found)

    bucketed = padded(batches(everything, 8, np.random.default_rng(0)))
    order = np.random.default_rng(0).permutation(len(lengths))
    plain = padded(collate(everything, order[start : start + 8]) for start in range(0, len(order), 8))
    assert bucketed < 1.1 * lengths.sum() < plain


def test_the_incomplete_batch_is_not_always_the_longest(tmp_path: Path) -> None:
    everything = utterances_of(tmp_path, list(range(1, 21)))
    firsts = set()
    for seed in range(10):
        (small,) = [batch for batch in batches(everything, 16, np.random.default_rng(seed)) if len(batch) == 4]
        firsts.add(small.positions.min())
    assert len(firsts) > 1


def test_no_utterances_no_batches(tmp_path: Path) -> None:
    nobody = utterances_of(tmp_path, [3]).take(np.array([], dtype=np.int64))
    assert len(nobody) == 0 and nobody.texts == []
    assert list(batches(nobody, 4, None)) == [] and list(batches(nobody, 4, np.random.default_rng(0))) == []


def test_shards_are_dealt_from_the_order_by_length(tmp_path: Path) -> None:
    everything = utterances_of(tmp_path, [5, 2, 5, 1, 2])  # by length: 3 1 4 0 2
    parts = [shard(everything, index, 2) for index in range(2)]
    assert [part.ids for part in parts] == [["u3", "u4", "u2"], ["u1", "u0"]]
    assert [len(shard(everything, index, 7)) for index in range(7)] == [1, 1, 1, 1, 1, 0, 0]


def test_broken_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="broken"):
        utterances_of(tmp_path, [3, 0])
