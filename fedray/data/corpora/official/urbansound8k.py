"""UrbanSound8K (Salamon et al., ACM Multimedia 2014): 8,732 city sounds of up to 4 s in ten classes and folds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedray.core.parallel import Parallel
from fedray.core.ranges import Amount, Ranged
from fedray.data.corpora.assembly import assemble, by_id
from fedray.data.corpora.official.layout import check_choice, find_home, leave_out, names_in, required
from fedray.data.corpora.table import Table
from fedray.data.features.audio import UNMEASURED
from fedray.data.manifest import Manifest

CLASSES = (
    "air_conditioner", "car_horn", "children_playing", "dog_bark", "drilling",
    "engine_idling", "gun_shot", "jackhammer", "siren", "street_music",
)  # fmt: skip
FOLDS = tuple(range(1, 11))
TABLE = "metadata/UrbanSound8K.csv"


@dataclass(frozen=True)
class UrbanSound8K(Ranged):
    """The speaker is the source recording (fsID), the label the class. Clients are often Dirichlet draws.

    Folds are official and never reshuffled: all cuts of a recording are in one fold. A published score is the mean
    over ten runs, each testing on another fold. `dev_folds` costs training data, because the fold that chooses the
    round must differ from the fold that tests.
    """

    # folds, from 1 to 10, of the test set; []: none, all sounds train (FedMLAC's 8,732; see data.own_share)
    test_folds: list[int] = field(default_factory=lambda: [10])
    # folds of the dev set; null: the fold before the first test fold, or 10 before 1; []: none, as published
    dev_folds: list[int] | None = None
    min_seconds: Amount = 0.1  # shorter sounds are left out (FedAudio's rule)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("test_folds", "dev_folds"):
            for fold in getattr(self, name) or ():
                check_choice(name, fold, FOLDS)
        if len(set(self.test_folds)) == len(FOLDS):
            raise ValueError("data.options.test_folds leaves no fold to train on: name at most nine")
        if both := set(self.test_folds) & set(self.dev_folds or ()):
            raise ValueError(
                f"data.options.test_folds and dev_folds both name fold {min(both)}: remove it from one of the two"
            )
        if len({*self.test_folds, *self.development()}) == len(FOLDS):
            raise ValueError("data.options.test_folds and data.options.dev_folds leave no fold to train on: name fewer")

    def development(self) -> list[int]:
        """The folds of the split dev."""
        if self.dev_folds is not None:
            return self.dev_folds
        if not self.test_folds:
            return []
        before = [(self.test_folds[0] - step - 1) % len(FOLDS) + 1 for step in range(1, len(FOLDS))]
        return [next(fold for fold in before if fold not in self.test_folds)]

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """Read train, and dev and test if they have folds. Lengths come from file headers, read in parallel.

        Raises ValueError with the line of the table whose sound is missing or whose values are wrong, and for sounds
        that are not in the table.
        """
        home = find_home(root, f"UrbanSound8K/, or its contents (audio/fold1/, ..., {TABLE})", TABLE, "UrbanSound8K")
        table = Table.read(home / TABLE)
        names, recordings, folds, codes, classes = required(
            table, "slice_file_name", "fsID", "fold", "classID", "class"
        )
        place: dict[str, str] = {}
        for row, name in enumerate(names):
            where = f"{table.path}:{table.lines[row]}"
            code = codes[row]
            if not (code.isdecimal() and int(code) < len(CLASSES) and CLASSES[int(code)] == classes[row]):
                known = ", ".join(CLASSES)
                raise ValueError(
                    f"{where}: class {classes[row]!r} is not number {code!r} of {known}: restore the table"
                )
            if name.split("-")[:2] != [recordings[row], code]:
                begin = f"{recordings[row]}-{code}-"
                raise ValueError(f"{where}: {name!r} must begin with fsID and classID, {begin}: restore the table")
            if folds[row] not in map(str, FOLDS):
                last = len(FOLDS)
                raise ValueError(
                    f"{where}: fold must be a number from 1 to {last}, not {folds[row]!r}: restore the table"
                )
            place[name] = f"fold{folds[row]}/{name}"
        _all_listed(home, set(place.values()), table.path)
        columns = {
            "utterance": [name.removesuffix(".wav") for name in names],
            "path": [place[name] for name in names],
            "speaker": recordings,
            "label": classes,
        }
        manifest = assemble(table.path, table.lines, columns, home / "audio", parallel)
        seconds = manifest.array("seconds")
        long = (seconds >= self.min_seconds) | (seconds == UNMEASURED)  # unreadable files are named with their features
        short = [f"{name}.wav" for name, enough in zip(manifest.column("utterance"), long, strict=True) if not enough]
        leave_out(table.path, len(names), {f"shorter than {self.min_seconds} s": short})
        chosen = {"test": self.test_folds, "dev": self.development()}
        chosen["train"] = [fold for fold in FOLDS if fold not in (*chosen["test"], *chosen["dev"])]
        fold_of = by_id(columns["utterance"], folds)
        number = np.array([int(fold_of[name]) for name in manifest.column("utterance")])
        splits = {}
        for split in ("train", "dev", "test"):
            if chosen[split]:
                splits[split] = manifest.take(np.flatnonzero(long & np.isin(number, chosen[split])))
                if not len(splits[split]):
                    empty = f"{table.path} has no sounds for {split} in fold {', '.join(map(str, chosen[split]))}"
                    raise ValueError(f"{empty}: restore the table, or lower data.options.min_seconds")
        return splits


def _all_listed(home: Path, listed: set[str], table: Path) -> None:
    """Raise ValueError for a sound that the table does not list in its fold."""
    for fold in names_in(home / "audio") if (home / "audio").is_dir() else ():
        if not (home / "audio" / fold).is_dir():
            continue
        for name in names_in(home / "audio" / fold):
            if name.endswith(".wav") and f"{fold}/{name}" not in listed:
                path = home / "audio" / fold / name
                raise ValueError(f"{path} is not in this fold in {table}: remove the file, or restore the table")
