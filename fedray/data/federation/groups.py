"""Groups of speakers, by an attribute such as dialect, gender or age: scores and strategies can tell them apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedray.data.corpora.table import Table
from fedray.data.manifest import Manifest

UNKNOWN = "unknown"  # the group of speakers of whom nothing is known


@dataclass(frozen=True)
class GroupSettings:
    """The section `data.groups`. Without `column` there are no groups."""

    column: str | None = None  # label, if the label is a speaker's dialect or domain | a column of `file`
    # A table (tsv or csv with a header) that names speakers, as often as it likes, such as Common Voice's validated.tsv
    file: str | None = None
    speaker: str = "speaker"  # the column of `file` with the speakers' names, as in the corpus

    def __post_init__(self) -> None:
        if self.column is None and self.file is not None:
            raise ValueError("data.groups.column is missing: name the column of data.groups.file that divides speakers")
        if self.column not in (None, "label") and self.file is None:
            raise ValueError(
                f"data.groups.column={self.column} is a column of a table: name the table as data.groups.file, or "
                "choose label"
            )


def read_groups(settings: GroupSettings, parts: Mapping[str, Manifest]) -> dict[str, str]:
    """Speaker -> group, for all speakers of a corpus' parts; {}: there are no groups.

    ValueError: a speaker has two groups, the table has no such column, or names none of the speakers.
    """
    if settings.column is None:
        return {}
    speakers = {speaker for manifest in parts.values() for speaker in manifest.column("speaker")}
    if settings.file is None:
        columns = (zip(part.column("speaker"), part.column("label"), strict=True) for part in parts.values())
        pairs, place = (pair for part in columns for pair in part), "data.groups.column=label"
    else:
        table, place = _read(Path(settings.file)), settings.file
        names = _column(table, settings.speaker, "data.groups.speaker")
        values = _column(table, settings.column, "data.groups.column")
        pairs = ((name, value) for name, value in zip(names, values, strict=True) if name in speakers)
    found = _one_each(pairs, place)
    if not found:
        raise ValueError(f"{place}: names none of the speakers of the corpus, such as {min(speakers)}")
    return {speaker: found.get(speaker, UNKNOWN) for speaker in sorted(speakers)}


def majority(speakers: Iterable[str], groups: Mapping[str, str]) -> str:
    """The group of most utterances of these speakers, the first by name of equally many."""
    counts = Counter(groups[speaker] for speaker in speakers)
    return min(counts, key=lambda name: (-counts[name], name))


def _read(path: Path) -> Table:
    tabs = path.suffix != ".csv"
    return Table.read(path, "\t" if tabs else ",", quoted=not tabs)


def _column(table: Table, name: str, key: str) -> list[str]:
    if name not in table.columns:
        known = ", ".join(table.columns)
        raise ValueError(f"{table.path} has no column {name!r}: set {key} to one of {known} (a csv file ends in .csv)")
    return table.column(name, None)


def _one_each(pairs: Iterable[tuple[str, str | None]], place: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for speaker, value in pairs:
        if value and found.setdefault(speaker, value) != value:
            raise ValueError(
                f"{place}: speaker {speaker} is in the groups {found[speaker]} and {value}: a group is an attribute of "
                "a speaker"
            )
    return found
