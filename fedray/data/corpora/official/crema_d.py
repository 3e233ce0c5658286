"""CREMA-D (Cao et al., IEEE Transactions on Affective Computing 2014): 7,442 sentences in six emotions by 91 actors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedray.core.parallel import Parallel
from fedray.data.corpora.assembly import assemble
from fedray.data.corpora.official.layout import check_choice, find_home, leave_out, names_in, required
from fedray.data.corpora.table import Table
from fedray.data.manifest import Manifest

ACTORS = tuple(range(1001, 1092))
FOLDS = (1, 2, 3, 4, 5)
VOTES = {"N": "neu", "H": "hap", "S": "sad", "A": "ang"}  # the corpus' codes of emotions, in lower case
OTHER_VOTES = ("D", "F")  # disgust and fear
BROKEN = "1076_MTI_SAD_XX"  # the distributed file is broken
UNHEARD = "rated but not distributed"
TABLE = "processedResults/summaryTable.csv"
ODD = {"1040_ITH_SAD_XX": "1040_ITH_SAD_X"}  # name in the table -> name of the file (FedAudio finds no label for it)
# In the table, but not in the repository (noted by TensorFlow Datasets).
ABSENT = ("1006_TIE_NEU_XX", "1013_WSI_DIS_XX", "1017_IWW_FEA_XX")
FORM = re.compile(r"(\d{4})_[A-Z]{3}_(ANG|DIS|FEA|HAP|NEU|SAD)_(?:LO|MD|HI|XX?)")


@dataclass(frozen=True)
class CremaD:
    """The speaker is the actor (1001 to 1091).

    `labels`:
    votes  the majority of the raters (MultiModalVote of processedResults/summaryTable.csv): neu, hap, sad or ang. Ties,
           disgust and fear are left out (FedAudio, FedMLAC: 4,798 clips)
    names  the emotion that the actor was asked for, from the file's name: ang, dis, fea, hap, neu, sad; needs no table

    1076_MTI_SAD_XX.wav is left out. The corpus' README names three more odd recordings. They are kept, as in FedAudio:
    1064_IEO_DIS_MD lasts a minute, 1064_TIE_SAD_XX and 1076_MTI_NEU_XX are very short.
    The five folds divide the actors in order (1001-1019, 1020-1037, 1038-1055, 1056-1073, 1074-1091), like
    KFold(5) of scikit-learn.
    """

    labels: str = "votes"  # votes | names
    # fold, from 1 to 5, whose actors are the test set; 0: none, all actors train (FedMLAC's 91; see data.own_share)
    fold: int = 5
    dev_fold: int | None = None  # null: the fold before `fold`, or 5 before 1; 0: no dev set, as in FedAudio

    def __post_init__(self) -> None:
        check_choice("labels", self.labels, ("votes", "names"))
        check_choice("fold", self.fold, (0, *FOLDS))
        if self.dev_fold is not None:
            check_choice("dev_fold", self.dev_fold, (0, *(fold for fold in FOLDS if fold != self.fold)))

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """Read train, dev (unless dev_fold is 0) and test; with fold=0, train and the dev_fold asked for.

        Lengths come from file headers, read in parallel.

        Raises ValueError with the file or the line that is missing or wrong, and for actors without recordings.
        """
        home = find_home(root, "CREMA-D/, or its contents (AudioWAV/, processedResults/)", "AudioWAV", "CREMA-D")
        stems = _recordings(home / "AudioWAV")
        reasons: dict[str, list[str]] = {"broken as distributed": [BROKEN] if BROKEN in stems else []}
        if self.labels == "votes":
            source, lines, labels = self._votes(home / TABLE, stems, reasons)
        else:
            labels = {stem: form[2].lower() for stem, form in stems.items() if stem != BROKEN}
            source, lines = home / "AudioWAV", list(labels)
        leave_out(home, len(stems) + len(reasons.get(UNHEARD, ())), reasons)
        columns = {
            "utterance": list(labels),
            "path": [f"{stem}.wav" for stem in labels],
            "speaker": [stem[:4] for stem in labels],
            "label": list(labels.values()),
        }
        manifest = assemble(source, lines, columns, home / "AudioWAV", parallel)
        fold = np.array([fold_of(int(actor)) for actor in columns["speaker"]])
        before = (self.fold - 2) % len(FOLDS) + 1 if self.fold else 0
        held = {"dev": before if self.dev_fold is None else self.dev_fold, "test": self.fold}
        chosen = {"train": ~np.isin(fold, list(held.values()))}
        chosen |= {split: fold == number for split, number in held.items() if number}
        splits = {split: manifest.take(np.flatnonzero(rows)) for split, rows in chosen.items()}
        if empty := [split for split, part in splits.items() if not len(part)]:
            raise ValueError(f"{source} has no labels for the actors of {empty[0]}: restore the corpus' file")
        return splits

    def _votes(
        self, path: Path, stems: dict[str, re.Match[str]], reasons: dict[str, list[str]]
    ) -> tuple[Path, list[int | str], dict[str, str]]:
        """Return the table's path, and the line and label of its rows in a class. Adds the other rows to `reasons`."""
        if not path.is_file():
            raise ValueError(
                f"{path} is missing: fetch it from the corpus' repository, or set data.options.labels=names"
            )
        table = Table.read(path)
        told = ("without a majority", "voted disgust or fear", UNHEARD)
        ties, others, absent = (reasons.setdefault(reason, []) for reason in told)
        lines: list[int | str] = []
        labels: dict[str, str] = {}
        seen: dict[str, int | str] = {}
        for line, stem, vote in zip(table.lines, *required(table, "FileName", "MultiModalVote"), strict=True):
            stem = stem.removesuffix(".wav")
            if stem not in stems and ODD.get(stem) in stems:
                stem = ODD[stem]
            if stem in seen:
                raise ValueError(f"{path}:{line}: {stem} is already in line {seen[stem]}: restore the corpus' file")
            seen[stem] = line
            if stem == BROKEN:
                continue
            if stem not in stems and stem in ABSENT:
                absent.append(stem)
                continue
            if stem not in stems:
                missing = path.parents[1] / "AudioWAV" / f"{stem}.wav"
                raise ValueError(f"{path}:{line}: {missing} is missing: fetch it (with Git LFS), or remove the line")
            if ":" in vote and set(vote.split(":")) <= {*VOTES, *OTHER_VOTES}:
                ties.append(stem)
            elif vote in OTHER_VOTES:
                others.append(stem)
            elif vote in VOTES:
                lines.append(line)
                labels[stem] = VOTES[vote]
            else:
                valid = ", ".join((*VOTES, *OTHER_VOTES))
                rule = f"MultiModalVote must be one of {valid}, or several as in N:S, not {vote!r}"
                raise ValueError(f"{path}:{line}: {rule}: restore the corpus' file")
        reasons["not in the table of votes"] = [stem for stem in stems if stem not in seen and stem != BROKEN]
        return path, lines, labels


def fold_of(actor: int) -> int:
    """The fold of an actor, 1 to 5: the first fold has 19 actors, the others 18."""
    return 1 if actor < 1020 else (actor - 1020) // 18 + 2


def _recordings(folder: Path) -> dict[str, re.Match[str]]:
    """Name without .wav -> its parts. Raises ValueError for other names, and for actors without recordings."""
    stems = {}
    for name in names_in(folder):
        form = FORM.fullmatch(name.removesuffix(".wav"))
        if form is None or not name.endswith(".wav") or int(form[1]) not in ACTORS:
            rule = "the name must be like 1001_DFA_ANG_XX.wav, with actors 1001 to 1091"
            raise ValueError(f"{folder / name}: {rule}: rename or remove the file")
        stems[form[0]] = form
    present = {int(form[1]) for form in stems.values()}
    if missing := [str(actor) for actor in ACTORS if actor not in present]:
        some = ", ".join(missing[:10]) + (", ..." if len(missing) > 10 else "")
        raise ValueError(
            f"{folder} lacks recordings of {len(missing)} of the {len(ACTORS)} actors ({some}): fetch them"
        )
    return stems
