"""Cut development and test sets from training data, equally large for each label."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow.compute as pc

from fedray.core.seeds import numpy_generator
from fedray.data.manifest import Manifest


def cut(data: Manifest, count: int, seed: int, whole: str = "utterance") -> dict[str, Manifest]:
    """Make the splits train, dev and test: dev and test have `count` random utterances of each label.

    `whole` is the column whose values stay together. With "speaker", dev and test draw whole speakers until they have
    `count` utterances or more. The draw depends on ids and the seed, not on the order of the rows. Raises ValueError
    for utterances without a label, and for labels with too few utterances for `count`.
    """
    labels = pc.dictionary_encode(data.table["label"].combine_chunks())
    assert not labels.null_count, "the reader gives each utterance a label"
    units = pc.dictionary_encode(data.table[whole].combine_chunks())
    rank = np.argsort(pc.sort_indices(units.dictionary).to_numpy())[units.indices.to_numpy()]  # of each row's unit
    codes = labels.indices.to_numpy()
    place = np.zeros(len(data), np.int8)  # 0: train, 1: dev, 2: test
    for code, label in enumerate(labels.dictionary.to_pylist()):
        rows = np.flatnonzero(codes == code)
        names, unit, sizes = np.unique(rank[rows], return_inverse=True, return_counts=True)
        order = numpy_generator(seed, "held out", label).permutation(len(names))
        before = np.cumsum(sizes[order]) - sizes[order]  # utterances in the units drawn earlier
        split = np.zeros(len(names), np.int8)
        dev = before < count
        taken = int(sizes[order][dev].sum())
        split[order[dev]] = 1
        split[order[~dev & (before < taken + count)]] = 2
        if not (split == 0).any():
            raise ValueError(
                f"data.options.held_out: {label!r} has {len(rows):,} utterances, too few to hold out {count:,} for dev "
                "and as many for test, and to keep some for training: lower it, or leave the label out"
            )
        place[rows] = split[unit]
    return {split: data.take(np.flatnonzero(place == number)) for number, split in enumerate(("train", "dev", "test"))}


def without_repeated(splits: Mapping[str, Manifest]) -> tuple[dict[str, Manifest], list[str]]:
    """Drop utterances of train whose text is also in dev or test. Also returns the ids of those utterances."""
    scored = Manifest.concat([splits["dev"], splits["test"]]).table["text"].combine_chunks()
    repeated = pc.is_in(splits["train"].table["text"], value_set=scored).to_numpy()
    train, again = (splits["train"].take(np.flatnonzero(repeated == taken)) for taken in (False, True))
    return {**splits, "train": train}, again.column("utterance")
