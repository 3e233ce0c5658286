"""The embedded corpus: the same bits from any process, held-out sentences, and audio that fits the manifest."""

from __future__ import annotations

import multiprocessing
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from fedray.core.parallel import serial
from fedray.data.corpora.synthesis import lexicon, rooms, sentences, speakers
from fedray.data.corpora.synthesis.embedded import Embedded
from fedray.data.corpora.synthesis.sessions import sessions
from fedray.data.corpora.synthesis.speakers import Conditions
from fedray.data.text.tokenisers import Characters

TINY = Embedded(
    server_speakers=2,
    server_utterances=3,
    client_speakers=3,
    client_utterances=2,
    dev_speakers=1,
    dev_utterances=2,
    test_speakers=2,
    test_utterances=4,
    test_server_speakers=1,
    test_server_utterances=1,
)


@pytest.fixture
def synthesiser():
    pytest.importorskip("espeakng_loader", reason="espeak-ng is not installed (pip install fedray[synth])")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make TINY once for all tests that only read it; return the cache folder and the splits."""
    pytest.importorskip("espeakng_loader", reason="espeak-ng is not installed (pip install fedray[synth])")
    cache = tmp_path_factory.mktemp("embedded")
    return cache, TINY.read(None, 0, cache, serial)


def backwards(function, items, what):
    """Make the last speaker first, since no speaker may depend on an earlier one."""
    yield from reversed([function(item) for item in reversed(items)])


def another_process(function, items, what):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        yield from pool.imap(function, items)


def waveforms(splits) -> dict[str, bytes]:
    """Return utterance -> samples, read from the files by offset and seconds."""
    cut = {}
    for manifest in splits.values():
        for row in manifest:
            rate = soundfile.info(row.path).samplerate
            start, count = row.offset * rate, row.seconds * rate
            assert start == round(start) and count == round(count)
            samples, _ = soundfile.read(row.path, start=round(start), frames=round(count), dtype="int16")
            assert len(samples) == count
            cut[row.utterance] = samples.tobytes()
    return cut


def test_a_corpus_that_is_made_again_has_the_same_fingerprint(tmp_path, synthesiser, monkeypatch):
    """Even in another cache: a run whose cache was removed, or that moved to another machine, can be resumed."""
    found = set()
    for name in ("a", "b"):
        monkeypatch.setenv("FEDRAY_CACHE", str(tmp_path / name))
        found.add(TINY.read(None, 0, tmp_path / name / "corpora", serial)["clients"].fingerprint())
    (recording,) = {row.path for row in TINY.read(None, 0, tmp_path / "b" / "corpora", serial)["dev"]}
    before = Path(recording).stat().st_mtime_ns
    assert 946_684_800 * 10**9 < before < 1_500_000_000 * 10**9
    assert len(found) == 1


def test_bits_depend_on_seed_and_names_alone(tmp_path, made):
    _, first = made
    again = TINY.read(None, 0, tmp_path / "b", backwards)
    elsewhere = TINY.read(None, 0, tmp_path / "c", another_process)
    assert waveforms(first) == waveforms(again) == waveforms(elsewhere)
    for split in first:
        for column in ("utterance", "offset", "seconds", "speaker", "text", "label"):
            assert first[split].column(column) == again[split].column(column) == elsewhere[split].column(column)

    other = waveforms(TINY.read(None, 1, tmp_path, serial))
    assert other.keys() == waveforms(first).keys()
    assert not set(other.values()) & set(waveforms(first).values())

    # Further speakers and utterances do not change the others.
    more = waveforms(replace(TINY, client_speakers=4, test_utterances=5).read(None, 0, tmp_path, serial))
    assert len(more) == len(waveforms(first)) + 1 * 2 + 2 * 1
    assert waveforms(first).items() <= more.items()


def test_manifest_says_what_is_in_the_audio(made):
    _, splits = made
    assert {split: len(manifest) for split, manifest in splits.items()} == {
        "server": 6,
        "clients": 6,
        "dev": 2,
        "test": 8,
        "test-server": 1,
    }
    by_split = [set(manifest.column("speaker")) for manifest in splits.values()]
    assert sum(map(len, by_split)) == len(set.union(*by_split)) == 2 + 3 + 1 + 2 + 1
    for manifest in splits.values():
        manifest.check()
        for path in set(manifest.column("path")):
            info = soundfile.info(path)
            assert (info.samplerate, info.format, info.subtype) == (16000, "FLAC", "PCM_16")
            rows = [row for row in manifest if row.path == path]
            assert sum(row.seconds for row in rows) == pytest.approx(info.duration)
    for samples in waveforms(splits).values():
        wave = np.frombuffer(samples, np.int16) / 32768
        assert 0.5 < len(wave) / 16000 < 6
        assert 0.01 < np.sqrt(np.mean(wave**2)) < 0.2 and np.abs(wave).max() < 0.96  # neither silent nor clipped


def test_a_second_reading_makes_nothing(made):
    cache, first = made

    def never(function, items, what):
        raise AssertionError("synthesised again")

    assert waveforms(TINY.read(None, 0, cache, never)) == waveforms(first)
    with pytest.raises(AssertionError, match="synthesised again"):
        replace(TINY, clients=Conditions(snr=[0, 5])).read(None, 0, cache, never)


def test_held_out_sentences_are_held_out():
    corpus = Embedded()
    texts: dict[str, list[str]] = {}
    for split, session in sessions(corpus, 0):
        texts.setdefault(split, []).extend(session.texts)
    assert {split: len(said) for split, said in texts.items()} == {
        **{"server": 40 * 25, "clients": 60 * 60, "dev": 20 * 20},
        **{"test": 60 * 20, "test-server": 15 * 20},
    }
    heard = {*texts["server"], *texts["clients"]}
    assert not any(sentences.held_out(text, corpus.held_out, 0) for text in heard)
    for split in ("dev", "test", "test-server"):
        held = [text for text in texts[split] if sentences.held_out(text, corpus.held_out, 0)]
        assert len(held) / len(texts[split]) == pytest.approx(corpus.unseen, abs=0.1)
        assert not heard & set(held)
    # Sentences are held out, not words: training has every word of the grammar.
    assert {word for text in heard for word in text.split()} == lexicon.commands("en").vocabulary()


def test_labels_are_what_was_really_said(made):
    _, splits = made
    heard = {*splits["server"].column("text"), *splits["clients"].column("text")}
    assert set(splits["server"].column("label")) == {None}
    for row in splits["test"]:
        assert row.label == ("seen" if row.text in heard else "unseen")


LETTERS = {language: "abcdefghijklmnopqrstuvwxyzàâçèéêìòù' " for language in ("en", "fr", "it")} | {
    "es": "abcdefghijklmnopqrstuvwxyzáéíñóú ",
    "de": "abcdefghijklmnopqrstuvwxyzäöüß ",
    "ru": "абвгдежзийклмнопрстуфхцчшщъыьэюяё ",  # espeak-ng spells out a Latin letter that looks like one of these
}


@pytest.mark.parametrize("language", lexicon.LANGUAGES)
def test_grammars(language):
    grammar = lexicon.commands(language)
    generator = np.random.default_rng(0)
    drawn = [grammar.sentence(generator) for _ in range(3000)]
    assert all(set(text) <= set(LETTERS[language]) and "  " not in text for text in [*drawn, *grammar.keywords])
    counts = [len(text.split()) for text in drawn]
    assert min(counts) == 3 and 5 < np.mean(counts) < 7 and max(counts) <= 11
    assert len(set(drawn)) > 1000 and grammar.count() > 5000
    assert 150 <= len(grammar.vocabulary()) <= 250
    assert len(set(grammar.keywords)) == len(grammar.keywords) == 35
    tokens = Characters.train(drawn)
    assert all(tokens.decode(tokens.encode(text)) == text for text in drawn[:100])


def test_keywords_are_clips_of_one_second(tmp_path, synthesiser):
    corpus = replace(TINY, kind="keywords", words=3, languages=["it", "fr"])
    splits = corpus.read(None, 0, tmp_path, serial)
    for manifest in splits.values():
        assert set(manifest.array("seconds")) == {1.0}
        assert manifest.column("text") == manifest.column("label")
    words = lexicon.commands("it").keywords[:3] + lexicon.commands("fr").keywords[:3]
    assert sorted(splits["server"].column("text")) == sorted(words)
    for samples in waveforms(splits).values():
        wave = np.frombuffer(samples, np.int16) / 32768
        assert len(wave) == 16000 and np.abs(wave).max() > 0.02


def test_several_languages_are_labelled(tmp_path, synthesiser):
    splits = replace(TINY, languages=["fr", "it"]).read(None, 0, tmp_path, serial)
    assert splits["server"].column("label") == ["fr"] * 3 + ["it"] * 3
    assert set(splits["test"].column("label")) == {"fr", "it"}


def test_every_language_is_spoken(tmp_path, synthesiser):
    six = ["en", "es", "fr", "de", "ru", "it"]
    only = {"dev_speakers": 0, "test_speakers": 0, "test_server_speakers": 0}
    corpus = replace(
        TINY, languages=six, server_speakers=6, server_utterances=4, client_speakers=6, client_utterances=2, **only
    )
    splits = corpus.read(None, 0, tmp_path, serial)
    assert set(splits) == {"server", "clients"}
    assert splits["server"].column("label") == [language for language in six for _ in range(4)]
    assert splits["clients"].column("label") == [language for language in six for _ in range(2)]
    for language in six:
        rows = [row for row in splits["server"] if row.label == language]
        assert len({row.speaker for row in rows}) == 1 and f"-{language}-" in rows[0].speaker
        # A voice spells out letters that it does not know, which takes long.
        assert all(0.15 < row.seconds / len(row.text.split()) < 0.75 for row in rows)


def test_speakers_differ_and_keep_to_their_conditions():
    conditions = Conditions(accents=2, words_per_minute=[150, 160], warp=[0.95, 1.0], t60=[0.3, 0.4])
    drawn = [speakers.draw(f"s{number}", "en", conditions, 0) for number in range(300)]
    assert {speaker.voice.split("+")[0] for speaker in drawn} == set(speakers.ACCENTS["en"][:2])
    assert {speaker.voice.split("+")[1] for speaker in drawn} >= set(speakers.VARIANTS[:5])
    assert all(149 <= speaker.rate * speaker.warp <= 161 and 0.3 <= speaker.place.t60 <= 0.4 for speaker in drawn)
    assert len({speaker.place.equaliser for speaker in drawn}) == 300


@pytest.mark.parametrize("kind", speakers.NOISES)
def test_noise_arrives_at_its_ratio(kind):
    generator = np.random.default_rng(0)
    assert rooms.power(rooms.noise(kind, 40_001, generator)) == pytest.approx(1, abs=0.05)
    voice = np.sin(np.arange(32_000) * 0.3).astype(np.float32)
    response = rooms.channel((0.0,) * 7, 0.3, 3.0, generator)
    clean = rooms.record(voice, response, kind, 200.0, -30.0, 1000, 36_000, np.random.default_rng(1)).astype(float)
    noisy = rooms.record(voice, response, kind, 10.0, -30.0, 1000, 36_000, np.random.default_rng(1)).astype(float)
    ratio = np.mean(clean[1000:33_000] ** 2) / np.mean((noisy - clean) ** 2)
    assert 10 * np.log10(ratio) == pytest.approx(10, abs=0.3)
    assert 20 * np.log10(clean[1000:33_000].std() / 32768) == pytest.approx(-30, abs=0.1)


def test_rooms_decay_by_sixty_decibels():
    response = rooms.channel((0.0,) * 7, 0.5, 0.0, np.random.default_rng(0)).astype(float)
    start = rooms.EQUALISER_TAPS // 2 + round(rooms.PRE_DELAY * 16000) + 1
    tail = response[start : start + 8000] ** 2
    first, last = tail[:800].mean(), tail[-800:].mean()
    # Between the middles of the first and last tenth, the room loses 54 of its 60 dB.
    assert 10 * np.log10(first / last) == pytest.approx(54, abs=1.5)
    assert tail.sum() == pytest.approx(1, rel=0.1)  # as loud as the direct sound, at 0 dB


def test_impossible_settings_are_errors(tmp_path, monkeypatch):
    for wrong, words in (
        ({"kind": "songs"}, "kind must be one of commands, keywords, emotions, events"),
        ({"languages": ["xx"]}, "data.options.languages: choose from en, fr, it"),
        ({"words": 36}, "data.options.words: there are 35 keywords"),
        ({"held_out": 0.0}, "data.options.held_out"),
        ({"clients": Conditions(snr=[20, 5])}, "data.options.clients.snr"),
        ({"clients": Conditions(snr=[-900, -900])}, "data.options.clients.snr: give dB from -100 to 100"),
        ({"clients": Conditions(equaliser=-3)}, "data.options.clients.equaliser: give dB from 0 to 100"),
        ({"server": Conditions(noises=["brown"])}, "data.options.server.noises: choose from white, pink, babble"),
    ):
        with pytest.raises(ValueError, match=words):
            replace(TINY, **wrong).read(None, 0, tmp_path, serial)
    with pytest.raises(ValueError, match="remove data.root"):
        TINY.read(Path("/corpora"), 0, tmp_path, serial)
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    with pytest.raises(ValueError, match=r'pip install "fedray\[synth\]"'):
        TINY.read(None, 0, tmp_path, serial)
