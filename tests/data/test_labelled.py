"""Which utterances are labelled: how many, that larger shares hold smaller ones, and that only names count."""

from __future__ import annotations

import numpy as np
import pytest

from fedray.data.labelled import LabelledSettings, labelled_rows
from fedray.data.manifest import Manifest

SIZES = {"ann": 10, "bob": 5, "cid": 4, "dan": 1}  # utterances of a client


def corpus(order: np.ndarray | None = None) -> tuple[Manifest, dict[str, np.ndarray]]:
    """A row more than the clients have, and the clients' rows."""
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
    assert all(count in (0, size) for count, size in zip(found, SIZES.values(), strict=True)) and sum(count > 0 for count in found) == 2
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
    with pytest.raises(ValueError, match=r"data.labelled.clients: 1.5 is a share"):
        LabelledSettings(clients=1.5)
