"""The base class of corpora whose splits are files that list utterances."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from fedray.core.parallel import Parallel
from fedray.data.corpora.assembly import corpus_root, repeated_ids, unique_ids
from fedray.data.corpora.problems import gathered, refuse
from fedray.data.manifest import Manifest
from fedray.data.text.languages import is_code
from fedray.data.text.normalisation import Normaliser

SPLITS = ("server", "clients", "train", "dev", "test")
USUAL_SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("dev", "val", "valid", "validation", "development"), "dev"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}


def _joined(parts: Iterable[tuple[str, Path, Manifest]]) -> dict[str, Manifest]:
    """Split -> the rows of all its files."""
    found: dict[str, list[Manifest]] = {}
    for split, _, manifest in parts:
        found.setdefault(split, []).append(manifest)
    return {split: Manifest.concat(manifests) for split, manifests in found.items()}


def _prefixed(rows: Manifest, folder: Path, root: Path) -> Manifest:
    """The rows with the folder, relative to the root, before their ids."""
    inside = os.path.relpath(folder, root)
    field = rows.table.schema.field("utterance")
    ids = [os.path.normpath(os.path.join(inside, name)) for name in rows.column("utterance")]
    at = rows.table.column_names.index("utterance")
    return Manifest(rows.table.set_column(at, field, pa.array(ids, field.type)))


def below(root: Path, name: str | None) -> Path:
    """A path that an option gives: relative to the root, absolute, or in the home folder (~/a.tsv). None: the root."""
    return root / Path(name or "").expanduser()


@dataclass(frozen=True)
class Listed(ABC):
    """A corpus whose splits are files (or Kaldi folders), named relative to the root.

    The files of a split are joined, except for test: each test file after the first is a split named after the file, so
    that `test: [test.csv, other.csv]` gives `test` and `test-other`.
    """

    train: list[str] = field(default_factory=list)  # files of the training data
    dev: list[str] = field(default_factory=list)  # files that choose the best round; []: set data.dev_share
    # files of the first test set and of further ones; []: set data.test_share
    test: list[str] = field(default_factory=list)
    server: list[str] = field(
        default_factory=list
    )  # files of the server, for corpora that are already divided between server and clients
    clients: list[str] = field(default_factory=list)  # files of the clients' training data, in place of `train`
    lower_case: bool = False  # converts the text, not the labels, to lower case, by the rules of `language`
    punctuation: bool = True  # false: keep only the words of the text, by the rules of `language` in docs/corpora.md
    language: str | None = None  # code of the texts' language, such as uz or zh-CN; null: rules for any language

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """Read the splits: split -> manifest. Raises ValueError with all that is wrong, by file and line."""
        root = corpus_root(root, "the files that train, dev and test name")
        lists: dict[str, list[str]] = {split: getattr(self, split) for split in SPLITS}
        if not any(lists.values()):
            lists = self.found(root)
        parts: list[tuple[str, Path, Manifest]] = []  # split, folder of the file, rows
        problems: list[str] = []
        further = self.further(lists.get("test", ())[1:])
        for split in SPLITS:
            for position, name in enumerate(lists.get(split, ())):
                target = further[position - 1] if split == "test" and position > 0 else split
                with gathered(problems):
                    path = self.place(root, name, split)
                    found = self.read_file(root, path, target, parallel)
                    parts += [(key, path.parent, manifest) for key, manifest in found.items()]
        refuse(problems)
        splits = _joined(parts)
        if self.named_by_path() and repeated_ids(splits):
            splits = _joined([(key, folder, _prefixed(rows, folder, root)) for key, folder, rows in parts])
        unique_ids(splits)
        return splits

    def further(self, names: Sequence[str]) -> list[str]:
        """The splits of further test sets: named after their files, and files of one name after their folders too."""
        stems = [self.stem(name) for name in names]
        found = [
            f"test-{re.sub('^test[-._]', '', stem if stems.count(stem) == 1 else f'{Path(name).parent.name}-{stem}')}"
            for name, stem in zip(names, stems, strict=True)
        ]
        if twice := next((split for split in found if found.count(split) > 1), None):
            both = " and ".join(name for name, split in zip(names, found, strict=True) if split == twice)
            raise ValueError(f"data.options.test: {both} would both be the split {twice}: rename one of them")
        return found

    def named_by_path(self) -> bool:
        """Whether a row's id is its path relative to the folder of its file, which may repeat in another folder."""
        return False

    def found(self, root: Path) -> dict[str, list[str]]:
        """Split -> names, if the options give none. Raises ValueError if the folder does not tell either."""
        raise ValueError(
            f"data.options names no files in {root}: set train, dev and test to lists of files in data.root"
        )

    def place(self, root: Path, name: str, split: str) -> Path:
        """The path of a name in the options. Raises ValueError if nothing is there."""
        if not name:
            raise ValueError(f"data.options.{split} has an empty name: remove it")
        path = below(root, name)
        if not path.exists():
            raise ValueError(f"{path} does not exist: correct data.root, or {name!r} in data.options.{split}")
        return path

    def stem(self, name: str) -> str:
        """The part of a name in the options that names a further test set."""
        return Path(name).stem

    @abstractmethod
    def read_file(self, root: Path, path: Path, split: str, parallel: Parallel) -> dict[str, Manifest]:
        """The manifest of one file: for `split`, or for the splits that the file's rows name."""

    def texts(self, values: list[str] | None) -> list[str] | None:
        """The texts as the settings want them. Raises ValueError for a language that is no code."""
        if self.language is not None and not is_code(self.language):
            raise ValueError(f"data.options.language must be a code such as uz or zh-CN, not {self.language!r}")
        if values is None or (self.punctuation and not self.lower_case):
            return values
        normalise = Normaliser(self.language or "", self.lower_case, self.punctuation)
        return [normalise.lower(value) for value in values] if self.punctuation else normalise.texts(values)
