"""FSD50K (Fonseca et al., TASLP 2022): 51,197 sounds of 0.3 to 30 s, each in one or more of 200 classes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedray.core.parallel import Parallel
from fedray.core.texts import read_text
from fedray.data.corpora.assembly import Column, assemble, by_id, check_fetched
from fedray.data.corpora.official.layout import find_home, leave_out, names_in, required
from fedray.data.corpora.table import Table
from fedray.data.manifest import Manifest

TRUTH, METADATA = "FSD50K.ground_truth", "FSD50K.metadata"
SPLITS = {"train": "train", "val": "dev"}


@dataclass(frozen=True)
class Fsd50k:
    """Sounds for work without labels, such as FedSTAR's contrastive pre-training. The text is null.

    A clip can have several classes, among them the parents of a class in the AudioSet ontology. The label joins all
    with ";" in the order of the table ("Electric_guitar;Guitar;Music"): too many labels for classification. The
    speaker is the clip's uploader according to FSD50K.metadata, or the clip itself without that folder.
    """

    validation: bool = True  # false: the validation clips (the split dev) train too
    evaluation: bool = True  # false: no evaluation set (the split test); its audio is not needed

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """Read the official splits that the settings choose. Lengths come from file headers, read in parallel.

        Raises ValueError with the line of the table whose clip is missing or whose values are wrong. Clips in no table
        are left out.
        """
        home = find_home(root, f"FSD50K.dev_audio/, FSD50K.eval_audio/ and {TRUTH}/", f"{TRUTH}/dev.csv", "FSD50K")
        classes = read_vocabulary(home / TRUTH / "vocabulary.csv")
        table, manifest = _read_part(home, "dev", classes, parallel)
        names, given = required(table, "fname", "split")
        for row, name in enumerate(given):
            if name not in SPLITS:
                where = f"{table.path}:{table.lines[row]}"
                raise ValueError(f"{where}: split must be train or val, not {name!r}: restore the corpus' file")
        split_of = by_id(names, given)
        kept = (split_of[name] for name in manifest.column("utterance"))
        chosen = np.array([SPLITS[name] if self.validation else "train" for name in kept])
        splits = {
            split: manifest.take(np.flatnonzero(chosen == split)) for split in ("train", "dev") if split in chosen
        }
        if "train" not in splits:
            raise ValueError(f"{table.path} has no clips of split train: restore the corpus' file")
        if self.evaluation:
            splits["test"] = _read_part(home, "eval", classes, parallel)[1]
        return splits


def read_vocabulary(path: Path) -> set[str]:
    """Read the classes, from lines `69,Electric_guitar,/m/02sgy` without a header.

    Raises ValueError for a missing file and for other lines.
    """
    if not path.is_file():
        raise ValueError(f"{path} is missing: unpack FSD50K.ground_truth.zip again")
    check_fetched(path)
    classes = set()
    for line, text in enumerate(read_text(path).splitlines(), start=1):
        parts = text.split(",")
        if len(parts) != 3 or not parts[0].isdecimal():
            rule = f"the line must read '69,Electric_guitar,/m/02sgy', not {text!r}"
            raise ValueError(f"{path}:{line}: {rule}: restore the corpus' file")
        classes.add(parts[1])
    return classes


def _read_part(home: Path, part: str, classes: set[str], parallel: Parallel) -> tuple[Table, Manifest]:
    """Read the table of a part (dev | eval) and make its manifest."""
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
            raise ValueError(f"{where}: {unknown[0]!r} is not in vocabulary.csv: restore the corpus' files")
    columns: dict[str, Column] = {
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
    """The uploader of each clip, or the clips themselves if there is no file of uploaders."""
    if not path.is_file():
        return names
    check_fetched(path)
    try:
        clips = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{path} is not JSON ({problem}): unpack FSD50K.metadata.zip again") from problem
    found = []
    for row, name in enumerate(names):
        uploader = _at(clips, name, "uploader")
        if not uploader or not isinstance(uploader, str):
            where = f"{table.path}:{table.lines[row]}"
            raise ValueError(f"{path} has no uploader of clip {name} ({where}): unpack FSD50K.metadata.zip again")
        found.append(uploader)
    return found


def _at(value: object, *keys: str) -> object:
    """A value inside nested JSON objects; None if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
