"""MuST-C (Di Gangi et al., NAACL 2019; Cattoni et al., 2021): translated TED talks in English, versions 1 to 3."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fedray.core.parallel import Parallel
from fedray.core.ranges import Positive, Ranged
from fedray.core.texts import opened
from fedray.data.corpora.assembly import assemble, check_fetched, corpus_root, unique_ids
from fedray.data.corpora.official.layout import leave_out
from fedray.data.manifest import Manifest

# libyaml, if PyYAML has it. Events hold scalars as text: seven times faster than loading, and nothing is executed.
LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
KEYS = ("wav", "offset", "duration", "speaker_id")
LONGEST = 10_000  # characters of a line: libyaml needs minutes for a line of brackets
FORM = "- {duration: 3.5, offset: 16.08, speaker_id: spk.767, wav: ted_767.wav}"
RESTORE = "restore the file from MuST-C's archive"


@dataclass(frozen=True)
class MustC(Ranged):
    """The text is the English line, the translation the line of the target language, the speaker speaker_id.

    Utterances are segments of talks, `<root>/en-<target>/data/<split>/wav/ted_<talk>.wav`, named `ted_<talk>_<number>`
    in their order in the talk. Version 1 has de, es, fr, it, nl, pt, ro and ru; version 2 has de, ja and zh. Segments
    without length, text or translation are left out.
    """

    target: str = "zh"  # language of the translation
    train: list[str] = field(default_factory=lambda: ["train"])  # official splits that train
    dev: list[str] = field(default_factory=lambda: ["dev"])  # official splits that choose the best round
    # official splits that test; the first is the split `test`, others keep their names (tst-HE)
    test: list[str] = field(default_factory=lambda: ["tst-COMMON"])
    lower_case: bool = False  # converts the text, not the translation, to lower case
    max_seconds: Positive | None = None  # longer segments of `train` are left out (fairseq: 30); null: none

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """Read the splits: split -> manifest. Raises ValueError with the missing or wrong file or line of a list."""
        root = corpus_root(root, f"en-{self.target}/, or its contents (data/)")
        home = root if (root / "data").is_dir() else root / f"en-{self.target}"
        wanted = {"train": self.train, "dev": self.dev, "test": self.test[:1]} | {
            name: [name] for name in self.test[1:]
        }
        splits = {
            split: Manifest.concat([self._split(home, name, split == "train", parallel) for name in names])
            for split, names in wanted.items()
            if names
        }
        unique_ids(splits)
        return splits

    def _split(self, home: Path, name: str, trains: bool, parallel: Parallel) -> Manifest:
        folder = home / "data" / name
        if not folder.is_dir():
            there = ", ".join(sorted(path.name for path in folder.parent.glob("*/"))) or "none"
            remedy = f"unpack MuST-C's archive of en-{self.target}, or correct data.options (splits found: {there})"
            raise ValueError(f"{folder} is missing: {remedy}")
        path = folder / "txt" / f"{name}.yaml"
        lines, segments = _segments(path)
        offset, seconds = (_numbers(path, lines, key, segments[key]) for key in ("offset", "duration"))
        utterances = _numbered([Path(wav).stem for wav in segments["wav"]], offset)
        texts, translations = (
            _texts(folder / "txt" / f"{name}.{language}", len(lines), path) for language in ("en", self.target)
        )
        kept, reasons = list(range(len(lines))), {}

        def drop(reason: str, wrong: Callable[[int], bool]) -> None:
            reasons[reason] = [utterances[row] for row in kept if wrong(row)]
            kept[:] = [row for row in kept if not wrong(row)]

        drop("without length", lambda row: not seconds[row] > 0)
        drop("without a text", lambda row: not texts[row])
        drop("without a translation", lambda row: not translations[row])
        most = self.max_seconds if self.max_seconds is not None and trains else math.inf
        drop(f"longer than {most} s", lambda row: seconds[row] > most)
        leave_out(path, len(lines), reasons)
        if not kept:
            raise ValueError(f"{path}: no utterance is left of {len(lines):,}: {RESTORE}, or change data.options")
        columns: dict[str, Sequence[str | float]] = {
            "utterance": utterances,
            "path": segments["wav"],
            "offset": offset,
            "seconds": seconds,
            "speaker": segments["speaker_id"],
            "text": [text.lower() for text in texts] if self.lower_case else texts,
            "translation": translations,
        }
        chosen = {column: [values[row] for row in kept] for column, values in columns.items()}
        return assemble(path, [lines[row] for row in kept], chosen, folder / "wav", parallel)


def _segments(path: Path) -> tuple[list[int], dict[str, list[str]]]:
    """Read the line of each entry of a split's list, and the columns `KEYS`. Raises ValueError with the line."""
    lines: list[int] = []
    columns: dict[str, list[str]] = {key: [] for key in KEYS}
    for line, entry in _entries(path):
        for key in KEYS:
            if key not in entry:
                raise ValueError(f"{path}:{line}: the entry has no {key}; it must read '{FORM}': {RESTORE}")
            columns[key].append(entry[key])
        lines.append(line)
    return lines, columns


def _entries(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line, keys and values) of each flat map in a YAML file."""
    text = "".join(_read(path))
    if (longest := max(map(len, text.split("\n")))) > LONGEST:
        raise ValueError(f"{path}: a line has {longest:,} characters; lines must read '{FORM}': {RESTORE}")
    entry: dict[str, str] | None = None
    key: str | None = None
    start = 1
    try:
        for event in yaml.parse(text, LOADER):
            assert event.start_mark is not None
            line = event.start_mark.line + 1
            if entry is None and isinstance(event, yaml.MappingStartEvent):
                entry, start = {}, line
            elif entry is not None and isinstance(event, yaml.MappingEndEvent):
                yield start, entry
                entry = None
            elif entry is not None and isinstance(event, yaml.ScalarEvent):
                if key is None:
                    key = event.value
                else:
                    entry[key], key = event.value, None
            elif (
                entry is not None
                or isinstance(event, yaml.NodeEvent)
                and not isinstance(event, yaml.SequenceStartEvent)
            ):
                raise ValueError(f"{path}:{line}: the entry must read '{FORM}': {RESTORE}")
    except yaml.MarkedYAMLError as error:
        where = f"{path}:{error.problem_mark.line + 1}" if error.problem_mark else str(path)
        raise ValueError(f"{where}: is not YAML ({error.problem}): {RESTORE}") from error
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise ValueError(f"{path}: is not YAML ({' '.join(str(error).split())}): {RESTORE}") from error


def _texts(path: Path, count: int, listed: Path) -> list[str]:
    """Read the lines of a file of texts, one for each of `count` entries of the list `listed`."""
    texts = [line.strip() for line in _read(path)]
    if len(texts) != count:
        raise ValueError(f"{path} has {len(texts):,} lines, but {listed} has {count:,} entries: {RESTORE}")
    return texts


def _read(path: Path) -> list[str]:
    """Read lines, which end at line feeds only: subtitles hold other characters that Python takes for line ends."""
    if not path.is_file():
        raise ValueError(f"{path} is missing: {RESTORE}")
    check_fetched(path)
    with opened(path, newline="\n") as file:
        return list(file)


def _numbers(path: Path, lines: Sequence[int], key: str, values: Sequence[str]) -> list[float]:
    numbers = []
    for line, value in zip(lines, values, strict=True):
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"{path}:{line}: the {key} must be a number of seconds, not {value!r}: {RESTORE}")
        numbers.append(number)
    return numbers


def _numbered(talks: Sequence[str], offset: Sequence[float]) -> list[str]:
    """Name the utterances of each talk by time: `ted_767_0`, `ted_767_1`, ..."""
    names, seen = [""] * len(talks), dict.fromkeys(talks, 0)
    for row in sorted(range(len(talks)), key=offset.__getitem__):
        names[row] = f"{talks[row]}_{seen[talks[row]]}"
        seen[talks[row]] += 1
    return names
