"""Ambient Acoustic Contexts (Park et al., MobileHCI 2020): one-second cuts of AudioSet's videos in ten classes of everyday sounds."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedray.core.parallel import Parallel
from fedray.data.corpora.layout import leave_out, lines_of
from fedray.data.corpora.tsv import assemble, corpus_root, unique_ids
from fedray.data.manifest import Manifest

FORM = re.compile(r"((id_.+)_\d+_\d+)_\d+\.wav")  # id_<video>_<begin>_<end>_<second>.wav

Place = tuple[str, tuple[Path, str]]  # where a file is listed: "<list>:<line>", (list, label)


@dataclass(frozen=True)
class Ambient:
    """The label is the class, the speaker the video that a cut comes from (`id_gflxubunxyk`). Nobody speaks: clients are dealt at random.

    Which cut is of which class, and what is trained on, is in two lists of lines `file<TAB>label`: FedSTAR's, which come with Flower's
    baseline. Its folder fedstar/ is what the defaults are made for, with audio at <folder of the recording>/<file>, or all in one folder.
    Cuts of one video stand in both of its lists, as the paper was scored: what is tested is other seconds, often of the same recordings.
    `test: null` hands on the first list alone; what is scored is then up to data.dev_share and data.test_share, which part videos.
    """

    audio: str = "datasets/ambient_context/Data"  # relative to data.root, as the two that follow
    train: str = "data_splits/ambient_context/train_split.txt"
    test: str | None = "data_splits/ambient_context/test_split.txt"

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """The splits train and test; lengths are read from the files' headers, in parallel. Audio that no list names is left out, counted.

        Raises ValueError with file and line for a line of another form, a cut that is missing, and a class that only the test list has.
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
            raise ValueError(f"{root / str(self.test)}: {root / self.train} has nothing of its class {min(new)}: restore the lists")
        reasons = {"in no list": [name for name in there if name not in listed], "listed twice, the second time": twice}
        leave_out(home, len(there) + len(twice), reasons)
        return splits


def _find_audio(home: Path) -> dict[str, str]:
    """File name -> path, of all .wav files in the folder and in those inside it. Raises ValueError for a name that is there twice."""
    found: dict[str, str] = {}
    for folder, inside, names in os.walk(home):
        inside.sort()
        for name in sorted(names):
            if name.endswith(".wav") and not name.startswith("."):
                path = os.path.join(folder, name)
                if found.setdefault(name, path) != path:
                    raise ValueError(f"{path}: there is {found[name]} too: remove one of them")
    return found


def _read_list(
    path: Path, option: str, home: Path, there: dict[str, str], listed: dict[str, Place], twice: list[str], parallel: Parallel
) -> Manifest:
    """The manifest of a list; `listed` (by files) and `twice`, the files of lines that only repeat another, grow."""
    lines: list[int | str] = []
    names, videos, labels = [], [], []
    for line, text in lines_of(path, f"fetch FedSTAR's list (data_splits/ of Flower's baseline fedstar), or correct {option}"):
        name, _, label = map(str.strip, text.partition("\t"))  # the labels of some lines begin with a blank
        form = FORM.fullmatch(name)
        if form is None or not label:
            raise ValueError(
                f"{path}:{line}: must read 'id_<video>_<begin>_<end>_<second>.wav<TAB><label>', not {text!r}: restore the list"
            )
        if name in listed:
            where, same = listed[name]
            if same != (path, label):
                raise ValueError(f"{path}:{line}: {name} stands in {where} already: restore the lists")
            twice.append(name)
            continue
        listed[name] = f"{path}:{line}", (path, label)
        if name not in there:
            raise ValueError(f"{path}:{line}: there is no {name} in {home} or its folders: unpack audioset_1sec_v1.tar.gz again")
        lines.append(line)
        names.append(name)
        videos.append(form[2])
        labels.append(label)
    columns: dict[str, Sequence] = {
        "utterance": [name.removesuffix(".wav") for name in names],
        "path": [there[name] for name in names],
        "speaker": videos,
        "label": labels,
    }
    return assemble(path, lines, columns, home, parallel)
