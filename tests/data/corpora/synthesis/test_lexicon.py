"""Lexicons: every file has the checked shape, and errors name the file and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedray.data.corpora.synthesis import lexicon
from fedray.data.corpora.synthesis.sentences import SLOT
from tests.trees import write

FILES = sorted(lexicon.FOLDER.rglob("*.yaml"))


def test_every_file_is_used() -> None:
    used = {lexicon.FOLDER / "commands" / f"{language}.yaml" for language in lexicon.LANGUAGES}
    used |= {lexicon.FOLDER / "domains" / f"{name}.yaml" for name in lexicon.DOMAINS}
    assert used == set(FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_slot_is_used(path: Path) -> None:
    grammar = lexicon.read(path)
    phrases = [*grammar.templates, *(phrase for phrases in grammar.slots.values() for phrase in phrases)]
    assert {slot for phrase in phrases for slot in SLOT.findall(phrase)} == set(grammar.slots)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("templates: [go]\n", "the keys must be templates, slots and, optionally, keywords"),
        ("templates: [go]\nslots: [a]\n", "slots must map names to lists of phrases"),
        ("templates: go\nslots: {}\n", "templates must be a list of phrases, not 'go'"),
        ("templates: [go]\nslots: {switch: [on, off]}\n", "slots.switch: True is not text: put it in quotation marks"),
        ("templates: ['go {place}']\nslots: {}\n", "'go {place}' names the slot 'place', which slots does not define"),
    ],
)
def test_another_shape_is_an_error(text: str, words: str, tmp_path: Path) -> None:
    path = write(tmp_path / "xx.yaml", text)
    with pytest.raises(ValueError, match=words) as error:
        lexicon.read(path)
    assert str(path) in str(error.value)
