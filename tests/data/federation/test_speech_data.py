"""From a corpus's splits to a federation: who gets which utterances, and that the parts do not overlap."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

from fedray.data.corruption import CorruptionSettings
from fedray.data.features.dataset import collate
from fedray.data.features.log_mel import LogMelSettings
from fedray.data.federation.labelled import LabelledSettings
from fedray.data.federation.partition import PartitionSettings
from fedray.data.federation.settings import DataSettings, ServerDataSettings
from fedray.data.federation.speech_data import SpeechData, divide
from fedray.data.manifest import Manifest
from tests import speech

FEATURES = LogMelSettings(sample_rate=speech.RATE, bins=20)


def build(splits: dict[str, Manifest], tmp_path: Path, settings: DataSettings) -> SpeechData:
    return speech.federation(splits, settings, tmp_path)


def test_server_and_clients_share_no_speaker(splits: dict[str, Manifest], tmp_path: Path) -> None:
    data = build(splits, tmp_path, DataSettings(server=ServerDataSettings(share=0.25)))
    server = data.server()
    assert server is not None and len(set(server.speakers)) == 2 and len(data.client_ids()) == 6
    assert not set(server.speakers) & set(data.client_ids())
    assert all(set(data.load(client).speakers) == {client} and data.cost(client) == 3 for client in data.client_ids())
    assert data.transcripts() == server.texts


def test_without_a_server_tokens_come_from_the_clients(splits: dict[str, Manifest], tmp_path: Path) -> None:
    data = build(splits, tmp_path, DataSettings())
    assert data.server() is None and len(data.transcripts()) == 24
    kept = build(splits, tmp_path, DataSettings(own_share=0.3))
    trained = [text for client in kept.client_ids() for text in kept.load(client).texts]
    assert sorted(kept.transcripts()) == sorted(text for text in trained if text is not None), (
        "not of what is kept back"
    )


def test_dev_and_test_can_be_cut_from_the_training_speakers(splits: dict[str, Manifest]) -> None:
    server, clients, scored = divide({"train": splits["train"]}, DataSettings(dev_share=0.25, test_share=0.25))
    parts = [set(manifest.column("speaker")) for manifest in (clients, scored["dev"], scored["test"])]
    assert server is None and [len(part) for part in parts] == [4, 2, 2]
    assert not (parts[0] & parts[1] or parts[0] & parts[2] or parts[1] & parts[2])
    with pytest.raises(ValueError, match="neither train nor clients"):
        divide({"dev": splits["dev"]}, DataSettings())


def test_shards_are_a_partition(splits: dict[str, Manifest], tmp_path: Path) -> None:
    data = build(splits, tmp_path, DataSettings())
    whole = data.evaluation("test").ids
    parts = [data.evaluation("test", index, 2).ids for index in range(2)]
    assert sorted(parts[0] + parts[1]) == sorted(whole) and not set(parts[0]) & set(parts[1])


def test_clients_that_are_labels_have_a_part_of_each_split(splits: dict[str, Manifest], tmp_path: Path) -> None:
    """A client that is a label has a part of each split. Tones have no labels: a text's first letter is the dialect."""
    labelled = {
        name: Manifest(manifest.table.set_column(6, "label", pc.utf8_slice_codeunits(manifest.table["text"], 0, 1)))
        for name, manifest in splits.items()
    }
    data = build(labelled, tmp_path, DataSettings(clients=PartitionSettings(by="label")))
    assert set(data.client_ids()) == set("abcd")
    for client in data.client_ids():
        mine = data.client_part(client, "test")
        assert mine is not None and set(mine.labels) <= {client}
    assert sum(len(data.client_part(client, "test") or ()) for client in data.client_ids()) == len(
        data.evaluation("test")
    )
    assert build(splits, tmp_path, DataSettings()).client_part("s00", "test") is None


def test_label_errors_hit_the_share_of_the_clients(splits: dict[str, Manifest], tmp_path: Path) -> None:
    settings = DataSettings(corruption=CorruptionSettings(label_errors=1.0, clients=0.5))
    clean, wrong = build(splits, tmp_path, DataSettings()), build(splits, tmp_path, settings)
    changed = [client for client in clean.client_ids() if clean.load(client).texts != wrong.load(client).texts]
    assert len(changed) == 4
    assert clean.evaluation("test").texts == wrong.evaluation("test").texts


def test_a_fingerprint_follows_its_part(splits: dict[str, Manifest], tmp_path: Path) -> None:
    settings = DataSettings(server=ServerDataSettings(share=0.25))
    base = build(splits, tmp_path, settings)
    grouped = build(
        splits, tmp_path, replace(settings, clients=PartitionSettings(by="k_speakers", speakers_per_client=3))
    )
    assert base.fingerprint("server") == grouped.fingerprint("server")
    assert base.fingerprint("clients") != grouped.fingerprint("clients")
    assert base.fingerprint() == build(splits, tmp_path, settings).fingerprint()


def test_clients_know_what_is_labelled(splits: dict[str, Manifest], tmp_path: Path) -> None:
    settings = DataSettings(server=ServerDataSettings(share=0.25))
    silent, half = (
        build(splits, tmp_path, replace(settings, labelled=LabelledSettings(utterances=share)))
        for share in (0.0, 1 / 3)
    )
    assert all(silent.load(client).labelled is None for client in silent.client_ids())
    assert all(half.load(client).labelled.sum() == 1 for client in half.client_ids()), "of 3"
    assert half.server().labelled is None and half.evaluation("test").labelled is None
    assert half.fingerprint("server") == silent.fingerprint("server")
    other = build(splits, tmp_path, replace(settings, labelled=LabelledSettings(utterances=2 / 3)))
    assert len({data.fingerprint("clients") for data in (silent, half, other)}) == 3
    alone = build(splits, tmp_path, DataSettings(labelled=LabelledSettings(utterances=1 / 3)))
    assert len(alone.transcripts()) == len(alone.client_ids()), "unlabelled ones teach no tokens"
    assert silent.fingerprint() == build(splits, tmp_path, settings).fingerprint()


def test_pooled_data_are_everybodys_once(splits: dict[str, Manifest], tmp_path: Path) -> None:
    settings = DataSettings(server=ServerDataSettings(share=0.25), corruption=CorruptionSettings(snr_db=20.0))
    base = build(splits, tmp_path, settings)
    apart = [base.server(), *(base.load(client) for client in base.client_ids())]
    frames = {name: data.features[row] for data in apart for name, row in zip(data.ids, data.rows, strict=True)}
    texts = {name: text for data in apart for name, text in zip(data.ids, data.texts, strict=True)}
    stores = sorted(tmp_path.glob("features-*"))
    data = build(splits, tmp_path, replace(settings, clients=PartitionSettings(by="pooled")))
    assert sorted(tmp_path.glob("features-*")) == stores, "no feature was computed again"
    assert list(data.client_ids()) == ["all"] and data.cost("all") == len(frames)
    pool = data.load("all")
    assert len(set(pool.ids)) == len(pool) and set(pool.ids) == set(frames)
    assert dict(zip(pool.ids, pool.texts, strict=True)) == texts
    for name, row, length in zip(pool.ids, pool.rows, pool.lengths, strict=True):
        np.testing.assert_array_equal(pool.features[row], frames[name])
        assert length == len(frames[name])
    assert {name for name, known in zip(pool.ids, pool.labelled, strict=True) if known} == set(base.server().ids)
    assert data.server().ids == base.server().ids and data.fingerprint("server") == base.fingerprint("server")
    assert data.fingerprint("clients") != base.fingerprint("clients") and data.transcripts() == base.transcripts()
    arrived = pickle.loads(pickle.dumps(data)).load("all")
    some = np.array([0, len(pool) - 1])
    assert arrived.features.name == pool.features.name
    np.testing.assert_array_equal(collate(arrived, some).features, collate(pool, some).features)


def test_the_server_alone_as_a_client(splits: dict[str, Manifest], tmp_path: Path) -> None:
    settings = DataSettings(server=ServerDataSettings(share=0.25), clients=PartitionSettings(by="server"))
    data = build(splits, tmp_path, settings)
    assert list(data.client_ids()) == ["all"]
    mine, of_server = data.load("all"), data.server()
    assert mine.ids == of_server.ids and mine.texts == of_server.texts and data.cost("all") == len(of_server)
    with pytest.raises(ValueError, match="data.clients.by=server .* it has none: set data.server"):
        build(splits, tmp_path, DataSettings(clients=PartitionSettings(by="server")))


def test_of_pooled_data_the_clients_share_may_be_labelled(splits: dict[str, Manifest], tmp_path: Path) -> None:
    settings = DataSettings(
        server=ServerDataSettings(share=0.25),
        clients=PartitionSettings(by="pooled"),
        labelled=LabelledSettings(utterances=0.5),
    )
    data = build(splits, tmp_path, settings)
    server = set(data.server().ids)
    pool = data.load("all")
    assert all(known for name, known in zip(pool.ids, pool.labelled, strict=True) if name in server)
    assert pool.labelled.sum() == len(server) + (len(pool) - len(server)) / 2
    alone = build(splits, tmp_path, DataSettings(clients=PartitionSettings(by="pooled")))
    assert alone.server() is None and len(alone.load("all")) == len(pool) and alone.load("all").labelled is None


def test_shares_of_clients_mean_nothing_where_all_are_one() -> None:
    pooled = PartitionSettings(by="pooled")
    with pytest.raises(
        ValueError, match=r"data.corruption.clients chooses a share of the clients, and data.clients.by=pooled"
    ):
        DataSettings(clients=pooled, corruption=CorruptionSettings(snr_db=10.0, clients=0.5))
    with pytest.raises(ValueError, match=r"set data.labelled.utterances instead"):
        DataSettings(clients=pooled, labelled=LabelledSettings(clients=0.5))


def test_what_all_are_trained_on_is_what_the_clients_kept(splits: dict[str, Manifest], tmp_path: Path) -> None:
    settings = DataSettings(server=ServerDataSettings(share=0.25), clients=PartitionSettings(max_utterances=2))
    data = build(splits, tmp_path, settings)
    server, clients = data.training()
    assert server is data.server()
    assert sorted(clients.ids) == sorted(sum((data.load(client).ids for client in data.client_ids()), []))
    assert len(clients) == 2 * len(data.client_ids())


def test_a_population_travels_as_a_few_arrays(splits: dict[str, Manifest], tmp_path: Path) -> None:
    """100,000 clients of two utterances pickle as rows, offsets and names: 16, 8 and about 20 bytes a client."""
    small = build(splits, tmp_path, DataSettings())
    everyone, population = small._clients, 100_000
    members = np.random.default_rng(0).integers(0, len(everyone), (population, 2))
    data = SpeechData(everyone, {f"client-{i:06d}": rows for i, rows in enumerate(members)}, {}, None)
    assert (
        data.load("client-000007").rows.tolist() == everyone.rows[members[7]].tolist()
        and data.cost("client-000007") == 2
    )
    data.transcripts()  # what was read here is not pickled
    before = len(pickle.dumps(small))
    packed = pickle.dumps(data)
    assert len(packed) < before + population * (2 * 8 + 8 + 20)
    arrived = pickle.loads(packed)
    assert arrived.client_ids() == data.client_ids() and arrived.cost("client-099999") == 2
    assert arrived.load("client-099999").ids == data.load("client-099999").ids
    assert arrived.fingerprint("clients") == data.fingerprint("clients")


def test_nobody_has_nothing(splits: dict[str, Manifest], tmp_path: Path) -> None:
    everyone = build(splits, tmp_path, DataSettings())._clients
    assert list(SpeechData(everyone, {}, {}, None).client_ids()) == []
    idle = SpeechData(everyone, {"idle": np.array([], np.int64), "busy": np.array([3])}, {}, None)
    assert (
        idle.cost("idle") == 0
        and len(idle.load("idle")) == 0
        and idle.load("busy").ids == everyone.take(np.array([3])).ids
    )


def test_tokens_and_language_models_may_learn_from_a_file(splits: dict[str, Manifest], tmp_path: Path) -> None:
    file = tmp_path / "sentences.txt"
    file.write_text("one two\n\n three \n", encoding="utf-8")
    data = build(splits, tmp_path, DataSettings(text=str(file), server=ServerDataSettings(share=0.25)))
    assert data.transcripts() == ["one two", "three"] and data.transcripts("label") != data.transcripts()
    without = build(splits, tmp_path, DataSettings(server=ServerDataSettings(share=0.25)))
    before = data.fingerprint("server")
    assert before != without.fingerprint("server"), "seed models of other tokens are others"
    file.write_text("three\n", encoding="utf-8")
    assert data.fingerprint("server") != before
    file.write_text("\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"sentences.txt: holds no sentence: write one on each line"):
        data.transcripts()


def test_pooled_data_drop_what_the_clients_drop(splits: dict[str, Manifest], tmp_path: Path) -> None:
    labelled = LabelledSettings(utterances=0.34, unlabelled=0.0)
    given = DataSettings(clients=PartitionSettings(by="pooled"), labelled=labelled)
    alone = build(splits, tmp_path, given)
    data = build(splits, tmp_path, replace(given, server=ServerDataSettings(share=0.25)))
    server = data.server()
    (client,) = data.client_ids()
    assert server is not None and alone.cost(client) == 8 and data.cost(client) == len(server) + 6
    pooled = data.load(client)
    assert pooled.labelled is not None and pooled.labelled.all() and set(server.ids) < set(pooled.ids)


@pytest.mark.parametrize(
    ("changes", "section"),
    [
        ({"own_share": 0.3}, "own_share"),
        ({"labelled": LabelledSettings(utterances=0.5)}, "labelled"),
        ({"corruption": CorruptionSettings(label_errors=0.1)}, "corruption"),
    ],
)
def test_the_servers_speech_has_no_settings_of_the_clients(changes: dict[str, Any], section: str) -> None:
    with pytest.raises(ValueError, match=rf"data.{section} applies to the clients' speech, but data.clients.by=server"):
        DataSettings(clients=PartitionSettings(by="server"), server=ServerDataSettings(share=0.25), **changes)


def test_a_division_that_cannot_be_names_its_setting(splits: dict[str, Manifest]) -> None:
    with pytest.raises(ValueError, match=r"data.server.largest chooses .* set data.server.share, hours or utterances"):
        ServerDataSettings(largest=True)
    lonely = splits["train"].take(np.flatnonzero(np.array(splits["train"].column("speaker")) == "s00"))
    with pytest.raises(ValueError, match="data.dev_share: a division by speakers needs two speakers or more"):
        divide({"train": lonely}, DataSettings(dev_share=0.5))
    for beside, words in (("server", "leave out server and set data.server"), ("clients", "leave out train")):
        with pytest.raises(ValueError, match=rf"the corpus has the splits train and {beside}: .*{words}"):
            divide({name: lonely for name in ("train", beside, "test")}, DataSettings())
