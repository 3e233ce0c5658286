"""FSD50K (Fonseca et al., TASLP 2022): 51,197 sounds of Freesound, 0.3 to 30 s, each with one or more of 200 classes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedray.core.parallel import Parallel
from fedray.data.audio import is_lfs_stub
from fedray.data.corpora.layout import find_home, leave_out, names_in, required
from fedray.data.corpora.tsv import Table, assemble
from fedray.data.manifest import Manifest

TRUTH, METADATA = "FSD50K.ground_truth", "FSD50K.metadata"
SPLITS = {"train": "train", "val": "dev"}


@dataclass(frozen=True)
class Fsd50k:
    """Meant for what needs no labels: FedSTAR's contrastive pre-training. Nobody speaks, and the text is null.

    A clip has several classes (those of the AudioSet ontology above its own among them): the label is the one where there is one, else all,
    joined by ";" in the order of the table ("Electric_guitar;Guitar;Music"). As classes of a classification they are too many.
    The speaker is who uploaded the clip to Freesound, by FSD50K.metadata; without that folder, the clip itself.
    """

    validation: bool = True  # false: its clips (`val`, the split dev) train too
    evaluation: bool = True  # false: without the evaluation set (the split test), whose audio is then not needed

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """The official splits train, dev and test, those that were asked for; lengths are read from the files' headers, in parallel.

        Raises ValueError with the line of the table whose clip is missing or described as it cannot be. Clips in no table are left out.
        """
        home = find_home(root, f"FSD50K.dev_audio/, FSD50K.eval_audio/ and {TRUTH}/", f"{TRUTH}/dev.csv", "FSD50K")
        classes = read_vocabulary(home / TRUTH / "vocabulary.csv")
        table, manifest = _read_part(home, "dev", classes, parallel)
        (given,) = required(table, "split")
        for row, name in enumerate(given):
            if name not in SPLITS:
                raise ValueError(f"{table.path}:{table.lines[row]}: split must be train or val, not {name!r}: restore the corpus' own file")
        chosen = np.array([SPLITS[name] if self.validation else "train" for name in given])
        splits = {split: manifest.take(np.flatnonzero(chosen == split)) for split in ("train", "dev") if split in chosen}
        if "train" not in splits:
            raise ValueError(f"{table.path} has no clips of split train: restore the corpus' own file")
        if self.evaluation:
            splits["test"] = _read_part(home, "eval", classes, parallel)[1]
        return splits


def read_vocabulary(path: Path) -> set[str]:
    """The classes, of lines `69,Electric_guitar,/m/02sgy` without a header. Raises ValueError for a missing file and other lines."""
    if not path.is_file():
        raise ValueError(f"{path} is missing: unpack FSD50K.ground_truth.zip again")
    if is_lfs_stub(path):
        raise ValueError(f"{path}: is a Git LFS stub, not the file: fetch it with `git lfs pull`")
    classes = set()
    for line, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        parts = text.split(",")
        if len(parts) != 3 or not parts[0].isdecimal():
            raise ValueError(f"{path}:{line}: must read '69,Electric_guitar,/m/02sgy', not {text!r}: restore the corpus' own file")
        classes.add(parts[1])
    return classes


def _read_part(home: Path, part: str, classes: set[str], parallel: Parallel) -> tuple[Table, Manifest]:
    """The table of a part (dev | eval), and the manifest of its rows."""
    audio, path = home / f"FSD50K.{part}_audio", home / TRUTH / f"{part}.csv"
    if not path.is_file():
        raise ValueError(f"{path} is missing: unpack FSD50K.ground_truth.zip again")
    if not audio.is_dir():
        other = ", or set data.options.evaluation=false" if part == "eval" else ""
        raise ValueError(f"{audio} is missing: unpack its archives{other}")
    table = Table.read(path)
    names, labels = required(table, "fname", "labels")
    for row, value in enumerate(labels):
        if unknown := [name for name in value.split(",") if name not in classes]:
            where = f"{path}:{table.lines[row]}"
            raise ValueError(f"{where}: {unknown[0]!r} is not in vocabulary.csv beside it: restore the corpus' own files")
    columns: dict[str, Sequence] = {
        "utterance": names,
        "path": [f"{name}.wav" for name in names],
        "speaker": _uploaders(home / METADATA / f"{part}_clips_info_FSD50K.json", names, table),
        "label": [value.replace(",", ";") for value in labels],
    }
    listed = {*columns["path"]}
    there = [name for name in names_in(audio) if name.endswith(".wav")]
    leave_out(audio, len(there), {f"not in {path.name}": [name for name in there if name not in listed]})
    return table, assemble(path, table.lines, columns, audio, parallel)


def _uploaders(path: Path, names: list[str], table: Table) -> list[str]:
    """Who uploaded each clip; the clips themselves where there is no file that says so."""
    if not path.is_file():
        return names
    if is_lfs_stub(path):
        raise ValueError(f"{path}: is a Git LFS stub, not the file: fetch it with `git lfs pull`")
    try:
        clips = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise ValueError(f"{path}: is not JSON ({problem}): unpack FSD50K.metadata.zip again") from problem
    found = []
    for row, name in enumerate(names):
        uploader = clips.get(name, {}).get("uploader") if isinstance(clips, dict) else None
        if not uploader or not isinstance(uploader, str):
            raise ValueError(f"{path}: has no uploader of clip {name} ({table.path}:{table.lines[row]}): unpack FSD50K.metadata.zip again")
        found.append(uploader)
    return found
