"""Chinese translations of the embedded corpus: each sentence has one, and each dialect prefers its own words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from fedray.core.parallel import serial
from fedray.data.corpora.synthesis import lexicon, making, translation
from fedray.data.corpora.synthesis.embedded import Embedded
from fedray.data.corpora.synthesis.recipe import Recipe
from tests.data.corpora.synthesis.test_embedded import synthesiser  # noqa: F401
from tests.data.corpora.synthesis.test_embedded_kinds import small

FILE = translation.FOLDER / "zh.yaml"


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("cancel the meeting tomorrow", "取消明天的会议"),
        ("wake me up at half past seven", "七点半叫醒我"),
        ("how far is london from paris", "从巴黎到伦敦有多远"),
        ("turn off the kitchen lights", "把厨房的灯关掉"),
        ("remind me to buy eggs on monday", "星期一提醒我买鸡蛋"),
        ("set a timer for thirty five minutes", "设一个三十五分钟的计时器"),
        ("call my mother tonight", "给我妈妈今晚打电话"),
    ],
)
def test_time_and_place_stand_before_the_verb(sentence: str, expected: str) -> None:
    assert translation.translator("zh").translate(sentence, lambda phrase, count: 0) == expected


def test_every_sentence_has_a_translation_in_hanzi() -> None:
    grammar, generator = lexicon.commands("en"), np.random.default_rng(0)
    for number in range(2000):
        said = translation.translated(grammar.sentence(generator), "zh", None, f"u{number}")
        assert said and all("一" <= sign <= "鿿" for sign in said), said


def test_a_dialect_prefers_words_of_its_own() -> None:
    """Two speakers of a dialect mostly agree, those of two dialects mostly do not; an utterance has one translation."""
    grammar, generator = lexicon.commands("en"), np.random.default_rng(1)
    sentences = [grammar.sentence(generator) for _ in range(400)]

    def said(dialect: str | None, speaker: str) -> list[str]:
        return [translation.translated(text, "zh", dialect, f"{speaker}-{n}") for n, text in enumerate(sentences)]

    def alike(one: list[str], other: list[str]) -> float:
        return float(np.mean([a == b for a, b in zip(one, other, strict=True)]))

    scots, others = said("en-gb-scotland", "a"), said("en-029", "a")
    assert said("en-gb-scotland", "a") == scots
    assert alike(scots, said("en-gb-scotland", "b")) > 0.5 > 0.3 > alike(scots, others)
    assert alike(said(None, "a"), said(None, "b")) < 0.3, "without a dialect all translations are as frequent"


def test_a_sentence_of_another_grammar_has_no_translation() -> None:
    with pytest.raises(ValueError, match="'sand the plank' is not one of the commands' sentences"):
        translation.translated("sand the plank", "zh", None, "u")


@pytest.mark.parametrize(
    ("key", "change", "said"),
    [
        ("templates", {"send {person} a message": None}, "translate each phrase of the grammar: 'send {person} a"),
        ("templates", {"call the {person}": "给{person}打电话"}, "translate each phrase of the grammar: 'call the"),
        ("templates", {"send {person} a message": "给{city}发"}, "'给{city}发' must fill the slots of 'send {person}"),
        (
            "templates",
            {"send {person} a message": "发短信"},
            "'发短信' must fill the slots of 'send {person} a message'",
        ),
    ],
)
def test_a_file_with_a_fault_is_named(key: str, change: dict[str, str | None], said: str, tmp_path: Path) -> None:
    content = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    content[key] = {name: text for name, text in (content[key] | change).items() if text is not None}
    (tmp_path / "zh.yaml").write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    with pytest.raises(ValueError) as raised:
        translation.read(tmp_path / "zh.yaml", lexicon.commands("en"))
    assert f"zh.yaml: {key}: {said}" in str(raised.value)


def test_the_audio_is_that_of_the_corpus_without_translations(tmp_path: Path, synthesiser: None) -> None:  # noqa: F811
    corpus = small("commands", 2, 3, dialects=["en-gb-scotland", "en-029"], server_speakers=1, server_utterances=2)
    without = corpus.read(None, 0, tmp_path, serial)
    folders = list(tmp_path.iterdir())
    translated = replace(corpus, translation="zh").read(None, 0, tmp_path, serial)
    assert list(tmp_path.iterdir()) == folders
    for split, rows in translated.items():
        assert rows.column("text") == without[split].column("text")
        assert without[split].column("translation") == [None] * len(rows) and None not in rows.column("translation")
        assert rows.fingerprint() != without[split].fingerprint()


def test_impossible_settings_are_errors(tmp_path: Path) -> None:
    for options, said in (
        ({"translation": "xx"}, "choose zh, or null"),
        ({"translation": "zh", "languages": ["fr"]}, "is for English commands"),
        ({"translation": "zh", "domains": ["howto"]}, "is for English commands"),
        ({"translation": "zh", "kind": "keywords"}, "is for English commands"),
    ):
        with pytest.raises(ValueError, match=f"data.options.translation.* {said}"):
            Embedded(**options).read(None, 0, tmp_path, serial)


def test_a_corpus_is_made_anew_only_when_its_own_sources_change() -> None:
    def names(**options: object) -> set[str]:
        return {path.name for path in making.sources(Recipe(**options))}

    commands = names()
    assert {"making.py", "speakers.py", "en.yaml"} <= commands
    assert not commands & {"translation.py", "zh.yaml", "embedded.py", "events.py", "fr.yaml", "howto.yaml"}
    assert "fr.yaml" in names(languages=["fr"]) and "howto.yaml" in names(domains=["howto"])
    assert "events.py" in names(kind="events") and "en.yaml" not in names(kind="events")
