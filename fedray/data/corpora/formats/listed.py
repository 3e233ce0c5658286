"""The base class of corpora whose splits are files that list utterances."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

from fedray.core.parallel import Parallel
from fedray.data.corpora.assembly import corpus_root, unique_ids
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
        parts: dict[str, list[Manifest]] = {}
        problems: list[str] = []
        for split in SPLITS:
            for position, name in enumerate(lists.get(split, ())):
                further = split == "test" and position > 0
                target = f"test-{re.sub('^test[-._]', '', self.stem(name))}" if further else split
                with gathered(problems):
                    found = self.read_file(root, self.place(root, name, split), target, parallel)
                    for key, manifest in found.items():
                        parts.setdefault(key, []).append(manifest)
        refuse(problems)
        splits = {split: Manifest.concat(manifests) for split, manifests in parts.items()}
        unique_ids(splits)
        return splits

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
