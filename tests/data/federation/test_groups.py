"""Groups of speakers: from labels, from a table, and what is wrong with either."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedray.data.federation.groups import GroupSettings, majority, read_groups
from fedray.data.manifest import Manifest


def manifest(speakers: dict[str, list[str | None]]) -> dict[str, Manifest]:
    rows = [
        {"utterance": f"{speaker}-{n}", "path": "/a.wav", "seconds": 1.0, "speaker": speaker, "label": label}
        for speaker, labels in speakers.items()
        for n, label in enumerate(labels)
    ]
    return {"clients": Manifest.from_rows(rows[:2], "clients"), "test": Manifest.from_rows(rows[2:], "test")}


def test_labels_that_are_a_speakers() -> None:
    parts = manifest({"ann": ["us", "us"], "bob": ["uk"], "eve": [None]})
    assert read_groups(GroupSettings(column="label"), parts) == {"ann": "us", "bob": "uk", "eve": "unknown"}
    assert read_groups(GroupSettings(), parts) == {}
    with pytest.raises(ValueError, match="speaker ann is in the groups us and uk"):
        read_groups(GroupSettings(column="label"), manifest({"ann": ["us", "uk"], "bob": ["uk"]}))


@pytest.mark.parametrize(("name", "mark"), [("speakers.tsv", "\t"), ("speakers.csv", ",")])
def test_a_table_may_name_more_than_the_corpus(tmp_path: Path, name: str, mark: str) -> None:
    lines = [
        ["client_id", "age", "gender"],
        ["ann", "20", "f"],
        ["tom", "30", "m"],
        ["ann", "20", "f"],
        ["bob", "", "m"],
    ]
    (tmp_path / name).write_text("\n".join(map(mark.join, lines)) + "\n", encoding="utf-8")
    parts = manifest({"ann": [None, None], "bob": [None], "eve": [None]})

    def groups(column: str, speaker: str = "client_id") -> dict[str, str]:
        return read_groups(GroupSettings(column, str(tmp_path / name), speaker), parts)

    assert groups("gender") == {"ann": "f", "bob": "m", "eve": "unknown"}
    assert groups("age") == {"ann": "20", "bob": "unknown", "eve": "unknown"}
    with pytest.raises(ValueError, match=r"no column 'sex': set data\.groups\.column to one of client_id, age, gender"):
        groups("sex")
    with pytest.raises(ValueError, match="names none of the speakers of the corpus, such as ann"):
        groups("gender", speaker="age")


def test_common_voices_own_table_names_speakers_by_more_digits(tmp_path: Path) -> None:
    ann, bob = "a" * 128, "0123456789abcdef" * 8
    (tmp_path / "validated.tsv").write_text(f"client_id\tgender\n{ann}\tf\n{bob}\tm\n", encoding="utf-8")
    parts = manifest({ann[:16]: [None, None], bob[:16]: [None]})
    settings = GroupSettings("gender", str(tmp_path / "validated.tsv"), "client_id")
    assert read_groups(settings, parts) == {bob[:16]: "m", ann[:16]: "f"}


def test_settings_that_say_too_little() -> None:
    with pytest.raises(ValueError, match=r"data\.groups\.column is missing"):
        GroupSettings(file="x.tsv")
    with pytest.raises(ValueError, match=r"name the table as data\.groups\.file"):
        GroupSettings(column="gender")


def test_a_client_is_where_most_of_its_utterances_are() -> None:
    groups = {"ann": "x", "bob": "y", "eve": "y"}
    assert majority(["ann", "ann", "bob", "eve", "eve"], groups) == "y"
    assert majority(["bob", "ann"], groups) == "x"
