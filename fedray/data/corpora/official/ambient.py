"""Ambient Acoustic Contexts (Park et al., MobileHCI 2020): one-second cuts of AudioSet videos in ten classes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from fedray.core.parallel import Parallel
from fedray.data.corpora.assembly import Column, assemble, corpus_root, unique_ids
from fedray.data.corpora.official.layout import FETCH_LIST, leave_out, lines_of, shown_folders
from fedray.data.manifest import Manifest

FORM = re.compile(r"((id_.+)_\d+_\d+)_\d+\.wav")  # id_<video>_<begin>_<end>_<second>.wav

Place = tuple[str, tuple[Path, str]]  # where a file is listed: "<list>:<line>", (list, label)


@dataclass(frozen=True)
class Ambient:
    """The label is the class, the speaker the source video (`id_gflxubunyxk`). For clients, deal cuts at random.

    FedSTAR's two lists, of lines `file<TAB>label`, give the classes and the splits. They come with Flower's baseline;
    the defaults fit its folder fedstar/, with audio at <folder of the recording>/<file>, or in one folder. Both lists
    have cuts of the same videos, so the test set has other seconds of recordings that also train (as in the paper).
    With `test: null` the first list is all training data: data.dev_share and data.test_share then divide the videos.
    """

    audio: str = "datasets/ambient_context/Data"  # relative to data.root, as are the lists
    train: str = "data_splits/ambient_context/train_split.txt"  # the list of the training cuts
    # the list of the test cuts; null: the first list is divided into all splits
    test: str | None = "data_splits/ambient_context/test_split.txt"

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """Read the splits train and test. Lengths come from file headers, read in parallel; unlisted audio is left out.

        Raises ValueError with file and line for malformed lines, missing cuts, and classes without training cuts.
        """
        root = corpus_root(root, f"the audio ({self.audio}) and the lists ({self.train})")
        home = root / self.audio
        if not home.is_dir():
            raise ValueError(f"{home} is missing: unpack audioset_1sec_v1.tar.gz there, or correct data.options.audio")
        there = _find_audio(home)
        listed: dict[str, Place] = {}
        twice: list[str] = []
        splits = {}
        for split, name in (("train", self.train), ("test", self.test)):
            if name is not None:
                splits[split] = _read_list(root / name, f"data.options.{split}", home, there, listed, twice, parallel)
        unique_ids(splits)
        if "test" in splits and (new := set(splits["test"].column("label")) - set(splits["train"].column("label"))):
            lists = f"{root / str(self.test)}: the class {min(new)} has no cuts in {root / self.train}"
            raise ValueError(f"{lists}: restore the lists")
        reasons = {"in no list": [name for name in there if name not in listed], "listed for the second time": twice}
        leave_out(home, len(there) + len(twice), reasons)
        return splits


def _find_audio(home: Path) -> dict[str, str]:
    """File name -> path of all .wav files below the folder. Raises ValueError if two files have the same name."""
    found: dict[str, str] = {}
    for folder, names in shown_folders(home):
        for name in names:
            if name.endswith(".wav"):
                path = os.path.join(folder, name)
                if found.setdefault(name, path) != path:
                    raise ValueError(f"{path} and {found[name]} have the same name: remove one of the two")
    return found


def _read_list(
    path: Path,
    option: str,
    home: Path,
    there: dict[str, str],
    listed: dict[str, Place],
    twice: list[str],
    parallel: Parallel,
) -> Manifest:
    """The manifest of a list. Adds its files to `listed`, and the files of repeated lines to `twice`."""
    lines: list[int | str] = []
    names, videos, labels = [], [], []
    for line, text in lines_of(path, f"{FETCH_LIST}, or correct {option}"):
        name, _, label = map(str.strip, text.partition("\t"))  # some labels begin with a space
        form = FORM.fullmatch(name)
        if form is None or not label:
            line_form = "id_<video>_<begin>_<end>_<second>.wav<TAB><label>"
            raise ValueError(f"{path}:{line}: the line must read '{line_form}', not {text!r}: restore the list")
        if name in listed:
            where, same = listed[name]
            if same != (path, label):
                raise ValueError(f"{path}:{line}: {name} is already in {where}: restore the lists")
            twice.append(name)
            continue
        listed[name] = f"{path}:{line}", (path, label)
        if name not in there:
            raise ValueError(f"{path}:{line}: {name} is not below {home}: unpack audioset_1sec_v1.tar.gz again")
        lines.append(line)
        names.append(name)
        videos.append(form[2])
        labels.append(label)
    columns: dict[str, Column] = {
        "utterance": [name.removesuffix(".wav") for name in names],
        "path": [there[name] for name in names],
        "speaker": videos,
        "label": labels,
    }
    return assemble(path, lines, columns, home, parallel)
