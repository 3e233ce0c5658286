"""Where the errors are, counted by hand, and the audio of the worst utterances, sample for sample."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
import yaml

from fedray import report
from fedray.report import clips, errors
from fedray.report.errors import Edit, align
from fedray.report.predictions import Predictions
from fedray.runs.folder import RunFolder
from tests import small_corpus
from tests.report.folders import classes, config, write
from tests.small_corpus import without_ray  # noqa: F401 (a fixture)

SAID = ["one two three", "one", "four five one two three four", "two two"]
BEFORE = ["one three", "two", "four five six two three", "two two"]  # 1 deletion, 1 substitution, 1 + 1, none
AFTER = [
    "one two tree",
    "one",
    "four five one two three four four",
    "to two",
]  # 1 substitution, none, 1 insertion, 1 substitution


def rows(hypotheses: list[str], wrong: list[int]) -> list[dict[str, object]]:
    names = [f"u{number}.wav" for number in range(4)]  # as the reader calls them
    columns = {
        "utterance": names,
        "speaker": ["ann", "ann", "bob", "bob"],
        "label": ["seen", "unseen", "seen", ""],
        "reference": SAID,
    }
    columns |= {"words": [len(text.split()) for text in SAID], "hypothesis": hypotheses, "errors": wrong}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@pytest.fixture
def found(tmp_path: Path) -> errors.Errors:
    folder = write(tmp_path / "run", None, rows(BEFORE, [1, 1, 2, 0]), rows(AFTER, [1, 0, 1, 1]))
    analysed = errors.analyse(Predictions.read(RunFolder(folder)), "test")
    assert analysed is not None
    return analysed


def test_rates_of_parts(found: errors.Errors) -> None:
    def table(parts: object) -> list[tuple[str, int, int, float, float]]:
        return [(part.name, part.utterances, part.length, round(part.seed, 6), round(part.best, 6)) for part in parts]  # type: ignore[attr-defined]

    # ann: 3 + 1 words, errors 1 + 1 before and 1 + 0 after; bob: 6 + 2 words, errors 2 + 0 and 1 + 1. The worst first.
    assert table(found.speakers) == [("ann", 2, 4, 50.0, 25.0), ("bob", 2, 8, 25.0, 25.0)]
    assert table(found.labels) == [("seen", 2, 9, round(300 / 9, 6), round(200 / 9, 6)), ("unseen", 1, 1, 100.0, 0.0)]
    assert table(found.lengths) == [
        ("1 word", 1, 1, 100, 0),
        ("2–3 words", 2, 5, 20, 40),
        ("6–8 words", 1, 6, round(200 / 6, 6), round(100 / 6, 6)),
    ]


def test_words_and_worst_utterances(found: errors.Errors) -> None:
    assert (
        sorted(found.substituted) == [("three", "tree", 1), ("two", "to", 1)]
        and found.inserted == [("four", 1)]
        and not found.deleted
    )
    assert [utterance.id for utterance in found.worst] == [
        "u3.wav",
        "u0.wav",
        "u2.wav",
    ]  # one error each: the shortest first
    assert found.worst[0].edits == [Edit("substituted", "two", "to"), Edit("same", "two", "two")]
    assert [edit.kind for edit in found.worst[1].before] == ["same", "deleted", "same"]


def test_words_that_are_left_out_are_deleted_and_rows_are_paired_by_name(tmp_path: Path) -> None:
    """Seed and best model are swapped, and the seed model's rows are in reverse order."""
    folder = write(tmp_path / "run", None, rows(AFTER, [1, 0, 1, 1])[::-1], rows(BEFORE, [1, 1, 2, 0]))
    found = errors.analyse(Predictions.read(RunFolder(folder)), "test")
    assert found is not None and sorted(found.deleted) == [("four", 1), ("two", 1)] and not found.inserted
    assert [(part.name, part.seed, part.best) for part in found.speakers] == [("ann", 25.0, 50.0), ("bob", 25.0, 25.0)]


def test_alignments_keep_every_word() -> None:
    generator = np.random.default_rng(0)
    texts = [
        [" ".join(generator.choice(["a", "b", "c"], size=generator.integers(0, 6))) for _ in range(50)]
        for _ in range(2)
    ]
    for said, heard, edits in zip(*texts, align(*texts), strict=True):
        assert " ".join(edit.reference for edit in edits if edit.kind != "inserted") == said
        assert " ".join(edit.hypothesis for edit in edits if edit.kind != "deleted") == heard
    assert align([], []) == []


def test_classes_that_are_confused(tmp_path: Path) -> None:
    before, after = classes(1, 0.2), classes(2, 0.6)
    found = errors.analyse(Predictions.read(RunFolder(write(tmp_path / "run", config(), before, after))), "test")
    assert found is not None and not found.recognition
    pairs = [(row["reference"], row["hypothesis"]) for row in after if row["errors"]]
    assert {(said, heard): count for said, heard, count in found.substituted} == {
        pair: pairs.count(pair) for pair in pairs
    }
    for part in found.labels:
        mine = [row["errors"] for row in after if row["reference"] == part.name]
        assert part.best == pytest.approx(100 * (1 - sum(mine) / len(mine))) and part.utterances == len(mine)
    assert [part.best for part in found.labels] == sorted(part.best for part in found.labels)


@pytest.mark.usefixtures("without_ray", "unrendered")
def test_the_worst_utterances_can_be_heard(tmp_path: Path) -> None:
    small_corpus.write(
        tmp_path, train=[("t0", "cid", "one")], test=[(f"u{number}", "ann", text) for number, text in enumerate(SAID)]
    )
    folder = write(tmp_path / "run", None, rows(BEFORE, [1, 1, 2, 0]), rows(AFTER, [1, 0, 1, 1]))
    settings = small_corpus.config(tmp_path, "train", "test") | {"rounds": 3, "seed": 0}
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    assert "add --audio DIR" in Path(report.write(folder)).read_text()
    text = Path(report.write(folder, audio=[tmp_path])).read_text()
    heard = re.findall(r'<audio [^>]*src="data:audio/flac;base64,([^"]+)"', text)
    assert len(heard) == 3 and "No audio" not in text
    wave, rate = soundfile.read(io.BytesIO(base64.b64decode(heard[0])))
    expected, _ = soundfile.read(tmp_path / "u3.wav")
    assert rate == 16000 and wave == pytest.approx(expected, abs=2**-14)
    (tmp_path / "u3.wav").unlink()
    assert "not at hand on this machine" in Path(report.write(folder, audio=[tmp_path])).read_text()


def test_a_corpus_that_would_take_minutes_is_left_alone() -> None:
    done = []
    with pytest.raises(ValueError, match="it is not in the cache, and synthesising would take about"):
        list(clips.briefly(done.append, range(10**12), "Synthesising"))
    assert len(done) < 1000
