"""IEMOCAP (Busso et al., Language Resources and Evaluation 2008): emotional dialogues, five sessions of two actors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedray.core.parallel import Parallel
from fedray.data.corpora.assembly import assemble
from fedray.data.corpora.official.layout import check_choice, find_home, leave_out, lines_of, names_in
from fedray.data.manifest import Manifest

SESSIONS = (1, 2, 3, 4, 5)
SPEAKERS = tuple(f"Ses0{session}{letter}" for session in SESSIONS for letter in "FM")
CLASSES = {"neu": "neu", "ang": "ang", "sad": "sad", "hap": "hap", "exc": "hap"}  # excited counts as happy
OTHERS = ("fru", "fea", "sur", "dis", "oth", "xxx")  # xxx: the raters did not agree
LINE = re.compile(r"\[\d+\.?\d* - \d+\.?\d*\]\t(\w+)\t(\w+)\t\[.*\]")
TURN = re.compile(r"(Ses0(\d)[FM]_(impro|script)\w+)_([FM])(?:XX)?\d+")


class Turn(NamedTuple):
    """A rated turn of a dialogue."""

    source: str  # file and line of the rating
    utterance: str
    speaker: str  # "Ses01F"
    path: str
    label: str


@dataclass(frozen=True)
class Iemocap:
    """The speaker is the session and the letter before the turn's number: Ses01F_impro01_M003 is Ses01M's turn.

    (The first letter is the actor with the motion-capture markers.) Labels are neu, ang, sad, and hap, which includes
    exc: 5,531 turns, 2,943 of them improvised. Turns with other labels, or on which the raters disagree, are left
    out.
    """

    parts: str = "all"  # all | impro (FedAudio, FedMLAC) | script
    # session whose speakers are the test set (leave one session out); 0: none, all speakers train (FedMLAC's 10)
    test_session: int = 5
    test_speaker: str | None = None  # one speaker is the test set instead, such as "Ses03M" (leave one speaker out)
    # session of the dev set; null: the one before test_session (5 before 1), or with test_speaker its partner; 0: none
    dev_session: int | None = None

    def __post_init__(self) -> None:
        check_choice("parts", self.parts, ("all", "impro", "script"))
        check_choice("test_session", self.test_session, (0, *SESSIONS))
        if self.test_speaker is not None:
            check_choice("test_speaker", self.test_speaker, SPEAKERS)
        tested = self.test_session if self.test_speaker is None else SPEAKERS.index(self.test_speaker) // 2 + 1
        if self.dev_session is not None:
            check_choice("dev_session", self.dev_session, (0, *(session for session in SESSIONS if session != tested)))

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """Read train, dev (unless dev_session is 0) and test; with test_session=0, train and the dev_session asked for.

        Lengths come from file headers, read in parallel.

        Raises ValueError with the session, the file, or the line of an evaluation that is missing or wrong.
        """
        holds = "IEMOCAP_full_release/, or its contents (Session1/ to Session5/)"
        home = find_home(root, holds, "Session1", "IEMOCAP_full_release")
        turns: list[Turn] = []
        reasons: dict[str, list[str]] = {}
        total = 0
        for session in SESSIONS:
            rated = self._session(home, session, reasons)
            total += len(rated)
            turns += [turn for turn in rated if turn.label in CLASSES]
            for turn in rated:
                if turn.label not in CLASSES:
                    reason = "without agreement (xxx)" if turn.label == "xxx" else "of other emotions"
                    reasons.setdefault(reason, []).append(turn.utterance)
        leave_out(home, total + len(reasons.get("without an evaluation", ())), reasons)
        columns = {
            "utterance": [turn.utterance for turn in turns],
            "path": [turn.path for turn in turns],
            "speaker": [turn.speaker for turn in turns],
            "label": [CLASSES[turn.label] for turn in turns],
        }
        manifest = assemble(home, [turn.source for turn in turns], columns, home, parallel)
        speakers = np.array(manifest.column("speaker"))  # data.skip_broken leaves rows out
        test, dev = self._held_out()
        chosen = {
            "train": ~np.isin(speakers, test + dev),
            "dev": np.isin(speakers, dev),
            "test": np.isin(speakers, test),
        }
        wanted = {"train": True, "dev": bool(dev), "test": bool(test)}
        splits = {split: manifest.take(np.flatnonzero(rows)) for split, rows in chosen.items() if wanted[split]}
        if empty := [split for split, part in splits.items() if not len(part)]:
            raise ValueError(f"{home} has no turns in the four classes for {empty[0]}: restore the corpus' evaluations")
        return splits

    def _held_out(self) -> tuple[list[str], list[str]]:
        """The speakers of test, and of dev."""
        both = {session: [f"Ses0{session}F", f"Ses0{session}M"] for session in SESSIONS} | {0: []}
        if self.test_speaker is not None:
            pair = next(pair for pair in both.values() if self.test_speaker in pair)
            partner = [name for name in pair if name != self.test_speaker]
            return [self.test_speaker], partner if self.dev_session is None else both[self.dev_session]
        before = (self.test_session - 2) % len(SESSIONS) + 1 if self.test_session else 0
        return both[self.test_session], both[before if self.dev_session is None else self.dev_session]

    def _session(self, home: Path, session: int, reasons: dict[str, list[str]]) -> list[Turn]:
        """Read the rated turns of a session in the chosen parts. Adds turns without a rating to `reasons`."""
        sounds = home / f"Session{session}" / "sentences" / "wav"
        folder = home / f"Session{session}" / "dialog" / "EmoEvaluation"
        for needed in (sounds, folder):
            if not needed.is_dir():
                raise ValueError(f"{needed} is missing: unpack IEMOCAP_full_release again")
        # The folder also holds folders with the ratings of single raters, and dot-files.
        turns = []
        for name in names_in(folder):
            if (folder / name).is_file() and name.endswith(".txt"):
                turns += [turn for turn in _rated(folder / name, sounds, session) if self._chosen(turn.utterance)]
        if not turns:
            example = f"Ses0{session}F_impro01.txt"
            raise ValueError(f"{folder} holds no evaluations ({example}, ...): unpack IEMOCAP_full_release again")
        known = {turn.utterance for turn in turns}
        for dialog in names_in(sounds):
            if (sounds / dialog).is_dir() and self._chosen(dialog):
                stems = [name.removesuffix(".wav") for name in names_in(sounds / dialog) if name.endswith(".wav")]
                reasons.setdefault("without an evaluation", []).extend(stem for stem in stems if stem not in known)
        return turns

    def _chosen(self, name: str) -> bool:
        return self.parts == "all" or f"_{self.parts}" in name


def _rated(path: Path, sounds: Path, session: int) -> list[Turn]:
    """Read the turns in a file of evaluations: one summary line each. Other lines are ratings of single raters."""
    turns = []
    for line, text in lines_of(path, "unpack IEMOCAP_full_release again"):
        if not text.startswith("["):
            continue
        form = LINE.fullmatch(text)
        if form is None:
            line_form = "[start - end]<TAB>turn<TAB>emotion<TAB>[V, A, D]"
            raise ValueError(f"{path}:{line}: the line must read '{line_form}': restore the file")
        turn = TURN.fullmatch(form[1])
        if turn is None or turn[1] != path.stem or int(turn[2]) != session:
            turns_of = f"{path.stem}_F000, _M000, ..."
            raise ValueError(
                f"{path}:{line}: {form[1]!r} is not a turn of this dialogue ({turns_of}): restore the file"
            )
        if form[2] not in (*CLASSES, *OTHERS):
            known = ", ".join((*CLASSES, *OTHERS))
            raise ValueError(f"{path}:{line}: the emotion must be one of {known}, not {form[2]!r}: restore the file")
        sound = sounds / path.stem / f"{form[1]}.wav"
        source = f"{path.relative_to(path.parents[3])}:{line}"
        turns.append(Turn(source, form[1], f"Ses0{session}{turn[4]}", str(sound), form[2]))
    return turns
