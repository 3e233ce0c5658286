"""Lhotse's manifests: read without the package, written, and checked by the package where it is installed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fedray import cli
from fedray.core.parallel import serial
from fedray.data.corpora.formats.lhotse_writer import write_lhotse
from fedray.data.features import audio
from tests import small_corpus
from tests.data.corpora.test_huggingface import OPTIONS, parquet, table
from tests.small_corpus import without_ray  # noqa: F401 (a fixture)
from tests.trees import read, tone

SUPERVISION = {"id": "u1", "recording_id": "r", "start": 0.25, "duration": 0.5, "channel": 0, "text": "Go"}
SUPERVISION |= {"speaker": "ann", "language": "en", "custom": {"client": "c1"}}


def recording(path: str = "a.wav", **fields: Any) -> dict[str, Any]:
    source = {"type": "file", "channels": [0], "source": path}
    return {"id": "r", "sources": [source], "sampling_rate": 16000, "num_samples": 16000, "duration": 1.0} | fields


def lines(path: Path, *items: dict[str, Any]) -> Path:
    path.write_bytes(gzip.compress("".join(json.dumps(item) + "\n" for item in items).encode()))
    return path


def test_recordings_and_supervisions(tmp_path: Path) -> None:
    tone(tmp_path / "clips" / "a.wav", 1)
    lines(tmp_path / "x_recordings_train.jsonl.gz", recording())
    lines(tmp_path / "x_supervisions_train.jsonl.gz", SUPERVISION, SUPERVISION | {"id": "u2", "start": 0, "text": "No"})
    train = read("lhotse", tmp_path, audio_root="clips", label_key="language", lower_case=True)["train"]
    assert train.column("utterance") == ["u1", "u2"] and train.column("text") == ["go", "no"]
    assert train.array("offset").tolist() == [0.25, 0] and train.array("seconds").tolist() == [0.5, 0.5]
    assert train.column("path") == [str(tmp_path / "clips" / "a.wav")] * 2 and train.column("label") == ["en"] * 2
    named = {"train": ["x_supervisions_train.jsonl.gz"], "audio_root": "clips"}
    assert read("lhotse", tmp_path, **named, speaker_key="client")["train"].column("speaker") == ["c1"] * 2
    assert read("lhotse", tmp_path, **named, speaker_key=None)["train"].anonymous


def test_cuts(tmp_path: Path) -> None:
    tone(tmp_path / "a.wav", 1)
    cut = {"id": "c", "start": 0.25, "duration": 0.75, "channel": 0, "recording": recording(), "type": "MonoCut"}
    lines(tmp_path / "cuts_dev.jsonl.gz", cut | {"supervisions": [SUPERVISION]})
    dev = read("lhotse", tmp_path)["dev"]
    assert dev[0].utterance == "u1" and (dev[0].offset, dev[0].seconds) == (0.5, 0.5)
    lines(tmp_path / "cuts_dev.jsonl.gz", cut | {"supervisions": []})
    dev = read("lhotse", tmp_path, speaker_key=None, text_key=None)["dev"]
    assert dev[0].utterance == "c" and (dev[0].offset, dev[0].seconds) == (0.25, 0.75)


CUT = {"id": "c", "start": 0, "duration": 1, "channel": 0, "recording": recording(), "type": "MonoCut"}
SOURCE = {"type": "file", "channels": [0, 1], "source": "a.wav"}


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (CUT, r"cuts_train\.jsonl\.gz:1: the supervision has no 'speaker': .* to null .* \{by: iid, count: N\}"),
        (CUT | {"type": "MixedCut"}, r"jsonl\.gz:1: MixedCut is neither a supervision nor a cut of one recording"),
        (SUPERVISION, r"its recordings are missing: put them beside it"),
        (recording(), r"lists recordings: name the file of supervisions or of cuts"),
        (
            CUT | {"recording": recording(sources=[{"type": "command", "source": "sox"}])},
            r"1 sources of type command: fedray reads one source of type file",
        ),
        (
            CUT | {"recording": recording(transforms=[{"name": "Speed"}])},
            r"has transforms, which fedray does not apply",
        ),
        (CUT | {"recording": recording(sources=[SOURCE])}, r"has 2 channels, .* save channel 0 as a file of its own"),
        (CUT | {"supervisions": [SUPERVISION | {"duration": 0}]}, r"jsonl\.gz:1: seconds must be a number above 0"),
    ],
)
def test_errors_name_file_and_line(item: dict[str, Any], words: str, tmp_path: Path) -> None:
    tone(tmp_path / "a.wav", 1)
    lines(tmp_path / "cuts_train.jsonl.gz", item)
    with pytest.raises(ValueError, match=words):
        read("lhotse", tmp_path)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no supervisions_train\.jsonl\.gz or cuts_train\.jsonl\.gz"):
        read("lhotse", tmp_path)
    path = lines(tmp_path / "supervisions_train.jsonl.gz", *[SUPERVISION] * 50)
    lines(tmp_path / "recordings_train.jsonl.gz", recording(id="other"))
    with pytest.raises(ValueError, match=r"supervisions_train\.jsonl\.gz:1: 'r' is not among the recordings"):
        read("lhotse", tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"supervisions_train\.jsonl\.gz is cut short or damaged"):
        read("lhotse", tmp_path)
    path.write_bytes(gzip.compress(b"{}\n{"))
    with pytest.raises(ValueError, match=r"supervisions_train\.jsonl\.gz:2: is not JSON"):
        read("lhotse", tmp_path)
    lines(path)
    with pytest.raises(ValueError, match=r"supervisions_train\.jsonl\.gz is empty"):
        read("lhotse", tmp_path)
    path.rename(tmp_path / "supervisions_mine.jsonl.gz")
    with pytest.raises(ValueError, match=r"the split 'mine' is not known"):
        read("lhotse", tmp_path)


@pytest.mark.usefixtures("without_ray")
def test_a_written_federation_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clients = [(f"a{i}", "ann", f"one {i}") for i in range(3)] + [("b0", "bob", "two")]
    folder = small_corpus.write(tmp_path, clients=clients, dev=[("d0", "dan", "été")], other=[("o0", "eve", "x")])
    config = small_corpus.config(folder, "clients", "dev")
    config["data"]["options"]["test"] = ["dev.tsv", "other.tsv"]
    config["data"]["options"]["dev"] = []
    config["data"]["clients"] = {"max_utterances": 2}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    out = tmp_path / "lhotse"
    assert cli.main(["data", str(tmp_path / "config.yaml"), "--lhotse", str(out)]) == 0
    assert "supervisions_clients.jsonl.gz: 3 utterances" in capsys.readouterr().out
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert cli.main(["data", str(tmp_path / "config.yaml"), "--lhotse", str(out)]) == 0
    assert before == {path.name: path.read_bytes() for path in out.iterdir()}
    splits = read("lhotse", out)
    assert {name: len(manifest) for name, manifest in splits.items()} == {"clients": 3, "test": 1, "test-other": 1}
    assert splits["clients"].column("speaker") == ["ann", "ann", "bob"] and splits["test"].column("text") == ["été"]
    mine = read("lhotse", out, clients=["supervisions_clients.jsonl.gz"], speaker_key="client")["clients"]
    assert mine.column("speaker") == ["ann", "ann", "bob"]


def test_what_is_written_satisfies_lhotse(tmp_path: Path) -> None:
    lhotse = pytest.importorskip("lhotse", reason="the package lhotse is not installed (it is in the extra dev)")
    parquet(tmp_path / "train.parquet", table(6))
    parts = {"clients": read("huggingface", tmp_path, **OPTIONS)["train"]}
    write_lhotse(parts, {"c1": np.arange(4), "c2": np.arange(4, 6)}, tmp_path / "out", serial)
    recordings = lhotse.load_manifest(tmp_path / "out" / "recordings_clients.jsonl.gz")
    supervisions = lhotse.load_manifest(tmp_path / "out" / "supervisions_clients.jsonl.gz")
    lhotse.validate_recordings_and_supervisions(recordings, supervisions, read_data=True)
    cuts = lhotse.CutSet.from_manifests(recordings=recordings, supervisions=supervisions).to_eager()
    assert [cut.supervisions[0].custom["client"] for cut in cuts] == ["c1"] * 4 + ["c2"] * 2
    assert [cut.supervisions[0].custom["label"] for cut in cuts] == ["no", "yes"] * 3
    for cut, row in zip(cuts, parts["clients"], strict=True):
        assert cut.supervisions[0].text == row.text and cut.supervisions[0].speaker == row.speaker
        np.testing.assert_allclose(cut.load_audio()[0], audio.read(row.path, 16000).numpy(), atol=1e-4)
    cuts.to_file(tmp_path / "cuts_train.jsonl.gz")
    again = read("lhotse", tmp_path, label_key="label")["train"]
    for name in ("utterance", "speaker", "text", "label", "seconds"):
        assert again.column(name) == parts["clients"].column(name)
