"""Checkpoints by a name on Hugging Face's hub, from a cache that a test lays out: no hub is reached."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fedray import experiment
from fedray.experiment.description import checkpoint, differences
from fedray.models.checkpoint import fetch, hashes, is_on_hub, located
from fedray.models.encoder_states import EncoderSettings, checkpoint_of
from fedray.storage.cache import file_hash

transformers = pytest.importorskip("transformers")
from huggingface_hub import constants  # noqa: E402 - it comes with transformers

from tests.encoders import write_encoder, write_vocabulary  # noqa: E402

NAME, COMMIT = "some/wav2vec2", "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of Hugging Face with one model, and a hub that cannot be reached; returns the model's folder."""
    home = tmp_path / "hub"
    model = home / "models--some--wav2vec2"
    folder = model / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    write_vocabulary(write_encoder(folder, "wav2vec2", "ctc"))
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    names = sorted(path.name for path in folder.iterdir())
    (model / "trees").mkdir()
    tree = {name: {"size": 1, "blob_id": "0", "lfs_sha256": None, "lfs_size": None, "xet_hash": None} for name in names}
    (model / "trees" / f"{COMMIT}.json").write_text(json.dumps(tree), encoding="utf-8")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return folder


def config_of(folder: str, **model: object) -> dict[str, object]:
    return {
        "model": {"kind": "encoder", "folder": folder, **model},
        "algorithm": {"kind": "fedavg"},
        "cohort": {"size": 1},
    }


def test_a_name_is_found_in_the_cache_and_its_commit_is_kept(hub: Path) -> None:
    assert is_on_hub(NAME) and not is_on_hub(str(hub)) and not is_on_hub("wav2vec2")
    assert fetch(NAME, None) == COMMIT == fetch(NAME, "main") == fetch(NAME, COMMIT)
    assert located(NAME).samefile(hub) and located(NAME, COMMIT).samefile(hub)
    loaded, source = experiment.load(config_of(NAME))
    assert loaded.task.settings.tokens == "pretrained", "derived from the files in the cache"
    settings = experiment.check(loaded, source).model.settings
    assert (settings.folder, settings.revision) == (NAME, COMMIT), "the same on every machine"
    assert checkpoint_of(settings).folder.samefile(hub)


def test_a_run_records_revision_and_hashes(hub: Path) -> None:
    settings = EncoderSettings(NAME, COMMIT)
    found = checkpoint(settings)["checkpoint"]
    assert found["revision"] == COMMIT
    assert found["files"]["model.safetensors"] == file_hash(hub / "model.safetensors")
    assert set(found["files"]) == {path.name for path in hub.iterdir()}
    assert hashes(EncoderSettings()) == {} and checkpoint(object()) == {}
    described = {"settings": {}, "data": "", "imports": {}, "files": {}, "checkpoint": found}
    (hub / "config.json").write_text("{}", encoding="utf-8")
    now = described | checkpoint(settings)
    assert differences(described, now) == ["the checkpoint of model.folder has changed"]


def test_what_is_neither_a_folder_nor_in_reach_is_one_sentence(hub: Path) -> None:
    with pytest.raises(ValueError) as caught:
        experiment.load(config_of("some/other"))
    told = str(caught.value)
    assert "there is no folder" in told and "some/other, the hub cannot be reached" in told and "\n" not in told
    assert "set model.folder to a folder, or `hf download some/other`" in told
    with pytest.raises(ValueError, match="does not have some/wav2vec2 at revision other"):
        located(NAME, "other")
    with pytest.raises(ValueError, match=r"there is no folder .*/nowhere$"):
        experiment.load(config_of("nowhere"))


@pytest.mark.nightly  # the hub's client tries five times, in 24 s
def test_a_hub_that_refuses_connections(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert fetch(NAME, COMMIT) == COMMIT, "what is in the cache is not asked for"
    with pytest.raises(ValueError, match="the hub cannot be reached"):
        fetch("some/other", None)


def test_files_that_the_cache_lacks(hub: Path) -> None:
    shutil.move(hub / "model.safetensors", hub.parent / "elsewhere")
    loaded, source = experiment.load(config_of(NAME))
    with pytest.raises(ValueError, match="model.folder"):
        experiment.check(loaded, source)
