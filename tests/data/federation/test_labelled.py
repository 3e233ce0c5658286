"""Which utterances are labelled: the number is right, larger shares hold smaller ones, names and the seed decide."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fedray.data.federation.labelled import LabelledSettings, kept_rows, labelled_rows, shared_rows
from fedray.data.manifest import Manifest

SIZES = {"ann": 10, "bob": 5, "cid": 4, "dan": 1}  # utterances of each client


def corpus(order: np.ndarray | None = None) -> tuple[Manifest, dict[str, np.ndarray]]:
    """Return a corpus with one row more than the clients have, and the clients' rows."""
    names = [f"{client}-{take}" for client, size in SIZES.items() for take in range(size)] + ["nobody-0"]
    columns = {"utterance": names, "path": [f"/{name}.wav" for name in names], "seconds": [1.0] * len(names)}
    manifest = Manifest.from_columns(columns | {"speaker": [name.split("-")[0] for name in names]}, "corpus")
    manifest = manifest if order is None else manifest.take(order)
    speakers = np.array(manifest.column("speaker"))
    return manifest, {client: np.flatnonzero(speakers == client) for client in SIZES}


def labelled(order: np.ndarray | None = None, seed: int = 0, **shares: float) -> set[str]:
    manifest, clients = corpus(order)
    mask = labelled_rows(manifest, clients, LabelledSettings(**shares), seed)
    assert mask is not None and mask.shape == (len(manifest),)
    return set(np.array(manifest.column("utterance"))[mask])


def counts(names: set[str]) -> list[int]:
    return [sum(name.startswith(client) for name in names) for client in SIZES]


def test_a_share_of_each_clients_utterances() -> None:
    assert labelled_rows(*corpus(), LabelledSettings(), 0) is None, "nothing is said"
    assert counts(labelled(utterances=0.4)) == [round(0.4 * size) for size in SIZES.values()]
    assert counts(labelled(utterances=1.0)) == list(SIZES.values())


def test_a_share_of_the_clients_is_labelled_whole() -> None:
    found = counts(labelled(clients=0.5))
    assert (
        all(count in (0, size) for count, size in zip(found, SIZES.values(), strict=True))
        and sum(count > 0 for count in found) == 2
    )
    both = labelled(clients=0.5, utterances=0.4)
    assert both == labelled(clients=0.5) | labelled(utterances=0.4)
    assert not any(name.startswith("nobody") for name in labelled(clients=1.0))


@pytest.mark.parametrize("share", ["clients", "utterances"])
def test_a_larger_share_labels_all_that_a_smaller_one_did(share: str) -> None:
    nested = [labelled(**{share: value}) for value in (0.25, 0.5, 0.75, 1.0)]
    assert all(smaller < larger for smaller, larger in zip(nested, nested[1:], strict=False))


def test_the_draw_follows_names_and_the_seed() -> None:
    order = np.random.default_rng(0).permutation(sum(SIZES.values()) + 1)
    for share in ("clients", "utterances"):
        assert labelled(order, **{share: 0.5}) == labelled(**{share: 0.5})
        assert len({frozenset(labelled(seed=seed, **{share: 0.5})) for seed in range(10)}) > 3


def test_a_share_is_from_0_to_1() -> None:
    with pytest.raises(ValueError, match=r"clients must be at least 0 and at most 1, not 1.5"):
        LabelledSettings(clients=1.5)
    with pytest.raises(ValueError, match=r"at_least must be at least 0, not -1"):
        LabelledSettings(at_least=-1)
    with pytest.raises(ValueError, match=r"data.labelled.unlabelled: no setting says .* set data.labelled.share or"):
        LabelledSettings(unlabelled=0.5)


def test_each_client_keeps_so_many_at_least() -> None:
    assert counts(labelled(utterances=0.1)) == [1, 0, 0, 0]
    found = labelled(utterances=0.1, at_least=2)
    assert counts(found) == [2, 2, 2, 1], "a client of one utterance has no more"
    assert labelled(utterances=0.1) < found
    assert counts(labelled(at_least=1)) == [1, 1, 1, 1] and labelled(utterances=1.0, at_least=3) == labelled(
        utterances=1.0
    )


def words(order: np.ndarray | None = None) -> tuple[Manifest, dict[str, np.ndarray]]:
    """Return 30 yes, 12 no, 2 stop and 7 rows without a label, and the one client that has them all."""
    kinds = ["yes"] * 30 + ["no"] * 12 + ["stop"] * 2 + [None] * 7
    columns = {
        "utterance": [f"u{i:02d}" for i in range(51)],
        "path": ["/x"] * 51,
        "seconds": [1.0] * 51,
        "speaker": ["s"] * 51,
    }
    manifest = Manifest.from_columns(columns | {"label": kinds}, "corpus")
    return (manifest if order is None else manifest.take(order)), {"s": np.arange(51)}


def test_a_share_of_all_keeps_the_proportions_of_the_labels() -> None:
    manifest, clients = words()
    mask = shared_rows(manifest, LabelledSettings(share=0.1), 0)
    assert mask is not None and Counter(np.array(manifest.column("label"))[mask]) == {
        "yes": 3,
        "no": 1,
        "stop": 1,
        None: 1,
    }
    assert (labelled_rows(manifest, clients, LabelledSettings(share=0.1), 0) == mask).all(), "whoever has it"
    assert shared_rows(manifest, LabelledSettings(utterances=0.1), 0) is None
    larger = shared_rows(manifest, LabelledSettings(share=0.5), 0)
    assert larger is not None and (larger >= mask).all()
    order = np.random.default_rng(0).permutation(51)
    again = shared_rows(words(order)[0], LabelledSettings(share=0.1), 0)
    assert again is not None and set(order[again]) == set(np.flatnonzero(mask))
    only = {"s": np.arange(10)}
    assert labelled_rows(manifest, only, LabelledSettings(share=0.1), 0)[10:].sum() == 0  # type: ignore[index]


def test_of_the_unlabelled_a_share_is_kept() -> None:
    manifest, clients = corpus()
    everything = LabelledSettings(utterances=0.2)
    mask = labelled_rows(manifest, clients, everything, 0)
    assert mask is not None and kept_rows(manifest, clients, mask, everything, 0) == clients
    half = kept_rows(manifest, clients, mask, LabelledSettings(utterances=0.2, unlabelled=0.5), 0)
    # Of 10, 5, 4 and 1 utterances 2, 1, 1 and 0 are labelled; kept are 4 of 8, 2 of 4, 2 of 3 (from 1.5), 0 of 1.
    assert {client: len(rows) for client, rows in half.items()} == {"ann": 6, "bob": 3, "cid": 3}
    assert all(set(np.flatnonzero(mask)) & set(clients[client]) <= set(rows) for client, rows in half.items())
    assert all((np.diff(rows) > 0).all() for rows in half.values())
    more = kept_rows(manifest, clients, mask, LabelledSettings(utterances=0.2, unlabelled=0.8), 0)
    assert all(set(rows) <= set(more[client]) for client, rows in half.items())


def test_clients_and_labels_have_draws_of_their_own() -> None:
    names = [f"{client}-{take}" for client in "abcdefgh" for take in range(8)]
    columns = {"utterance": names, "path": ["/x"] * 64, "seconds": [1.0] * 64, "speaker": ["s"] * 64}
    manifest = Manifest.from_columns(columns | {"label": [name[0] for name in names]}, "corpus")
    clients = {name: np.arange(64)[start::8] for start, name in enumerate("abcdefgh")}
    of_clients = labelled_rows(manifest, clients, LabelledSettings(utterances=0.4), 0)
    of_labels = shared_rows(manifest, LabelledSettings(share=0.4), 0)
    assert of_clients is not None and of_labels is not None
    assert len({tuple(of_clients[rows]) for rows in clients.values()}) > 4
    assert len({tuple(drawn) for drawn in of_labels.reshape(8, 8)}) > 4
