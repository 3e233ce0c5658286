"""Groups of speakers, by an attribute such as dialect, gender or age: scores and strategies can tell them apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedray.data.corpora.official.clip_tables import SPEAKER
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
    speakers = speakers_of(parts)
    if settings.file is None:
        columns = (zip(part.column("speaker"), part.column("label"), strict=True) for part in parts.values())
        found = _one_each((pair for part in columns for pair in part), "data.groups.column=label", speakers)
    else:
        keys = "data.groups.speaker", "data.groups.column"
        found = read_attribute(settings.file, settings.speaker, settings.column, speakers, keys)
    return {speaker: found.get(speaker, UNKNOWN) for speaker in sorted(speakers)}


def read_attribute(
    file: str, speaker: str, column: str, speakers: Collection[str], keys: tuple[str, str]
) -> dict[str, str]:
    """Speaker -> its value in a column of a table, for those of `speakers` of whom the table knows it.

    `speaker`: the column with their names. `keys` name the two columns, for errors. ValueError: a speaker has two
    values, the table has no such column, or names none of the speakers.
    """
    table = _read(Path(file))
    names, values = _column(table, speaker, keys[0]), _column(table, column, keys[1])
    if not any(name in speakers for name in names):
        names = [name[:SPEAKER] for name in names]  # Common Voice's client_id
    return _one_each(((name, value) for name, value in zip(names, values, strict=True) if name in speakers), file,
                     speakers)  # fmt: skip


def speakers_of(parts: Mapping[str, Manifest]) -> set[str]:
    """The speakers of a corpus' parts."""
    return {speaker for manifest in parts.values() for speaker in manifest.column("speaker")}


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


def _one_each(pairs: Iterable[tuple[str, str | None]], place: str, speakers: Collection[str]) -> dict[str, str]:
    """Speaker -> its value. ValueError: a speaker has two, or no speaker has one."""
    found: dict[str, str] = {}
    for speaker, value in pairs:
        if value and found.setdefault(speaker, value) != value:
            raise ValueError(
                f"{place}: speaker {speaker} is in the groups {found[speaker]} and {value}: a group is an attribute of "
                "a speaker"
            )
    if not found:
        raise ValueError(f"{place}: names none of the speakers of the corpus, such as {min(speakers)}")
    return found
