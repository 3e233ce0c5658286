"""Audio files in folders by class: ROOT/CLASS/..., or ROOT/{train,dev,test}/CLASS/..."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import soundfile

from fedray.core.parallel import Parallel
from fedray.data.corpora.assembly import assemble, corpus_root
from fedray.data.corpora.formats.listed import USUAL_SPLITS
from fedray.data.corpora.official.layout import leave_out, names_in, shown_folders
from fedray.data.manifest import Manifest

HOLDS = "the folders of the classes (yes/, no/, ...), or train/, dev/ and test/ with these folders inside"
READABLE = {f".{name.lower()}" for name in soundfile.available_formats()} | {".aif", ".opus", ".oga"}
# Audio that libsndfile cannot read. Such a file is an error; other files that are not audio are left out.
UNREADABLE = {".m4a", ".mp4", ".aac", ".wma", ".amr", ".webm", ".3gp", ".ra", ".mka", ".ape"}


@dataclass(frozen=True)
class Folders:
    """The label is the name of the class folder. Files may lie at any depth in it.

    Without train/, dev/ and test/, all files are training data: set `data.dev_share` and `data.test_share`.
    """

    # A regular expression, searched in the path below the root; its group is the speaker: "_([a-z]+)_[0-9]+.wav".
    # null: unknown, each recording counts as a speaker
    speaker: str | None = None
    classes: list[str] = field(default_factory=list)  # class folders to read; []: all
    words: bool = False  # true: the class is the spoken word, and the transcript too
    splits: bool | None = None  # whether the root holds train/, dev/ and test/; null: if it holds no other folder

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """Read the splits: split -> manifest. Lengths come from file headers, read in parallel.

        Raises ValueError for empty splits and classes, for classes of dev and test that train lacks, and for files that
        cannot be read.
        """
        home = corpus_root(root, HOLDS)
        pattern = self._pattern()
        manifests = {}
        train: set[str] = set()
        for split, folder in sorted(self._folders(home).items(), key=lambda item: item[0] != "train"):
            found = self._files(folder)
            train = train or set(found)
            if unknown := sorted(set(found) - train):
                known = ", ".join(sorted(train))
                raise ValueError(
                    f"{folder / unknown[0]}: train has no class of this name, only {known}: rename or remove the folder"
                )
            labels, files = zip(*((label, file) for label, files in found.items() for file in files), strict=True)
            names = [file.relative_to(home).as_posix() for file in files]
            columns = {
                "utterance": names,
                "path": names,
                "label": labels,
                "text": labels if self.words else None,
                "speaker": None if pattern is None else _speakers(pattern, names, home),
            }
            manifests[split] = assemble(folder, names, columns, home, parallel, listed=False)
        return manifests

    def _pattern(self) -> re.Pattern[str] | None:
        if self.speaker is None:
            return None
        try:
            pattern = re.compile(self.speaker)
        except re.error as problem:
            raise ValueError(
                f"data.options.speaker: {self.speaker!r} is not a regular expression ({problem}): correct it"
            ) from problem
        if pattern.groups != 1:
            raise ValueError(
                f"data.options.speaker: {self.speaker!r} has {pattern.groups} groups: put one pair of parentheses "
                "around the part of the path that names the speaker, and write (?:...) for other groups"
            )
        return pattern

    def _folders(self, home: Path) -> dict[str, Path]:
        """Split -> the folder that holds its classes."""
        names = [name for name in names_in(home) if (home / name).is_dir()]
        splits = [name for name in names if name.lower() in USUAL_SPLITS]
        if self.splits is None and splits and len(splits) < len(names):
            others = ", ".join(name for name in names if name not in splits)
            raise ValueError(
                f"{home} holds {', '.join(splits)} beside {others}: set data.options.splits to false if all of these "
                f"are classes, or to true if {', '.join(splits)} hold the classes"
            )
        if not (self.splits or (self.splits is None and splits)):
            return {"train": home}
        folders: dict[str, Path] = {}
        for name in splits:
            split = USUAL_SPLITS[name.lower()]
            if split in folders:
                raise ValueError(
                    f"{home} holds both {folders[split].name}/ and {name}/, which mean {split}: merge them"
                )
            folders[split] = home / name
        if "train" not in folders:
            raise ValueError(f"{home} holds no train/: add it, or correct data.root or data.options.splits")
        return folders

    def _files(self, folder: Path) -> dict[str, list[Path]]:
        """Class -> its audio files. Files that are not audio, and files in no class, are left out and counted."""
        known = [name for name in names_in(folder) if (folder / name).is_dir()]
        if missing := [name for name in self.classes if name not in known]:
            raise ValueError(
                f"data.options.classes: {folder} has no folder {missing[0]!r}, only {', '.join(known) or 'files'}"
            )
        if not known:
            raise ValueError(f"{folder} holds no folders: give each class a folder, or correct data.root")
        outside = [name for name in names_in(folder) if (folder / name).is_file() and _is_audio(folder / name)]
        found, others = {}, []
        for label in self.classes or known:
            files = [Path(place, name) for place, names in sorted(shown_folders(folder / label)) for name in names]
            found[label] = [file for file in files if _is_audio(file)]
            others += [file.relative_to(folder).as_posix() for file in files if not _is_audio(file)]
            if not found[label]:
                raise ValueError(
                    f"{folder / label} holds no audio: add some, remove the folder, or name the other folders in "
                    "data.options.classes"
                )
        total = sum(map(len, found.values())) + len(outside) + len(others)
        leave_out(folder, total, {"in no class folder": outside, "whose name is not that of an audio file": others})
        return found


def _is_audio(file: Path) -> bool:
    suffix = file.suffix.lower()
    if suffix in UNREADABLE:
        raise ValueError(f"{file}: fedray cannot read {suffix} files: convert them to flac or wav, e.g. with ffmpeg")
    return suffix in READABLE


def _speakers(pattern: re.Pattern[str], names: Sequence[str], home: Path) -> list[str]:
    speakers = [found[1] or "" if (found := pattern.search(name)) else "" for name in names]
    if without := [name for name, speaker in zip(names, speakers, strict=True) if not speaker]:
        more = f" and in {len(without) - 1:,} more, such as {without[-1]!r}" if len(without) > 1 else ""
        raise ValueError(
            f"{home / without[0]}: data.options.speaker, {pattern.pattern!r}, finds no speaker in {without[0]!r}"
            f"{more}: correct the expression, rename or remove the files, or name the class folders to read in "
            "data.options.classes"
        )
    return speakers
