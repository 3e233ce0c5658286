"""Settings that a checkpoint decides are derived, unless the user sets them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedray import experiment
from fedray.config.schema import plain
from fedray.data.features.fbank import FbankSettings
from fedray.data.features.waveform import WaveformSettings
from fedray.data.features.whisper_mel import WhisperMelSettings
from fedray.experiment.config import Config

pytest.importorskip("transformers")
from tests.encoders import write_encoder, write_vocabulary
from tests.whisper import write_checkpoint


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {kind: write_encoder(tmp_path_factory.mktemp("encoder"), kind) for kind in ("wav2vec2", "wav2vec2-bert")}
    made["letters"] = write_vocabulary(write_encoder(tmp_path_factory.mktemp("encoder"), "wav2vec2", "ctc"))
    return made | {"whisper": write_checkpoint(tmp_path_factory.mktemp("whisper"))}


@pytest.fixture
def load(folders: dict[str, Path]) -> Callable[..., Config]:
    def loaded(model: str, folder: str | None, *overrides: str, **sections: Any) -> Config:
        values = {"algorithm": {"kind": "fedavg"}, "cohort": {"size": 1}, **sections}
        values["model"] = {"kind": model} | ({} if folder is None else {"folder": str(folders[folder])})
        config, source = experiment.load(values, overrides)
        experiment.check_setup(config, source)
        again, _ = experiment.load(plain(config))
        assert again == config, "a resumed run derives nothing"
        return config

    return loaded


def test_an_encoder_decides_features_tokens_and_the_start(load: Callable[..., Config]) -> None:
    plainly = load("encoder", "wav2vec2")
    assert plainly.features == WaveformSettings() and plainly.task.settings.tokens == "characters"
    assert plainly.task.settings.augment.time_masks == plainly.task.settings.augment.frequency_masks == 0
    assert plainly.algorithm.settings.pretrain.steps == 0
    assert load("encoder", "letters").task.settings.tokens == "pretrained"
    assert load("encoder", "wav2vec2-bert").features == FbankSettings()
    assert load("encoder", "whisper").features == WhisperMelSettings()
    assert load("encoder", None).features == WaveformSettings(), "before a folder is named"


def test_what_the_user_sets_stays(load: Callable[..., Config]) -> None:
    task = {"kind": "recognition", "tokens": "characters", "augment": {"time_width": 3}}
    given = load("encoder", "letters", task=task, algorithm={"kind": "fedavg", "pretrain": {"steps": 7}})
    assert given.task.settings.tokens == "characters" and given.task.settings.augment.time_masks == 2
    assert given.algorithm.settings.pretrain.steps == 7
    assert load("encoder", "letters", "task.tokens=unigram").task.settings.tokens == "unigram"
    with pytest.raises(ValueError, match="model.kind encoder needs features.kind=waveform, not logmel"):
        load("encoder", "letters", "features.kind=logmel")


def test_words_stand_for_sections(load: Callable[..., Config]) -> None:
    assert load("encoder", "letters", task="recognition", algorithm="fedavg").task.settings.tokens == "pretrained"
    classifier = load("encoder", "letters", task="classification")
    assert classifier.task.kind == "classification" and classifier.task.settings.augment.time_masks == 0


def test_whisper_needs_no_further_setting(load: Callable[..., Config], folders: dict[str, Path]) -> None:
    found = load("whisper", "whisper")
    task = found.task.settings
    assert found.features == WhisperMelSettings() and (task.tokens, task.ctc_weight) == ("pretrained", 0)
    assert (task.decode.search, task.decode.ctc_weight, task.augment.time_masks) == ("attention", 0, 0)
    assert load("whisper", "whisper", task="translation").model.settings.prompt == "translate"
    assert load("whisper", "whisper", task="classification").features == WhisperMelSettings()
    assert found.model.settings.language == "en"
    config = folders["whisper"] / "config.json"
    whole = config.read_text(encoding="utf-8")
    config.write_text(whole.replace('"vocab_size": 261', '"vocab_size": 51864'), encoding="utf-8")
    try:
        assert load("whisper", "whisper").model.settings.language is None, "a checkpoint for English has no languages"
    finally:
        config.write_text(whole, encoding="utf-8")


def test_adapters_fit_the_family(load: Callable[..., Config]) -> None:
    found = load("encoder", "wav2vec2", algorithm={"kind": "fedlora", "lora": {"rank": 2}}).algorithm.settings.lora
    assert found.rank == 2 and found.targets == ["attention.(q|k|v|out)_proj", "feed_forward.*dense"]
    assert "ctc_head" in found.whole[0]
    bert = load("encoder", "wav2vec2-bert", algorithm="fedlora").algorithm.settings.lora
    assert bert.targets == ["self_attn.linear_(q|k|v|out)", "ffn.*dense"]
    assert load("whisper", "whisper", algorithm="fedlora").algorithm.settings.lora.targets == [
        "self_attn.*_proj",
        "fc[12]",
    ]


def test_other_models_derive_nothing(load: Callable[..., Config]) -> None:
    assert load("conformer", None).task.settings.augment.time_masks == 2
