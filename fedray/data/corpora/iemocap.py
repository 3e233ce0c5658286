"""IEMOCAP (Busso et al., Language Resources and Evaluation 2008): emotional dialogues of ten actors, in five sessions of two."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedray.core.parallel import Parallel
from fedray.data.corpora.layout import check_choice, find_home, leave_out, lines_of, names_in
from fedray.data.corpora.tsv import assemble
from fedray.data.manifest import Manifest

SESSIONS = (1, 2, 3, 4, 5)
SPEAKERS = tuple(f"Ses0{session}{letter}" for session in SESSIONS for letter in "FM")
CLASSES = {"neu": "neu", "ang": "ang", "sad": "sad", "hap": "hap", "exc": "hap"}  # excitement counts as happiness
OTHERS = ("fru", "fea", "sur", "dis", "oth", "xxx")  # xxx: the raters did not agree
LINE = re.compile(r"\[\d+\.?\d* - \d+\.?\d*\]\t(\w+)\t(\w+)\t\[.*\]")
TURN = re.compile(r"(Ses0(\d)[FM]_(impro|script)\w+)_([FM])(?:XX)?\d+")


class Turn(NamedTuple):
    source: str  # the file that rates it, and the line
    utterance: str
    speaker: str  # "Ses01F"
    path: str
    label: str


@dataclass(frozen=True)
class Iemocap:
    """The speaker is the one who talks: the session and the letter before the number of the turn (Ses01F_impro01_M003 is Ses01M's; the
    letter in front only says who wore the markers). Labels are neu, ang, sad, and hap with exc: 5,531 turns, 2,943 of them improvised.
    Turns that the raters put elsewhere, or did not agree on, are left out, counted.
    """

    parts: str = "all"  # all | impro (FedAudio, FedMLAC) | script
    test_session: int = 5  # both speakers of it are the test set (leave one session out)
    test_speaker: str | None = None  # instead, one speaker is ("Ses03M"; leave one speaker out)
    dev_session: int | None = None  # null: the session before (5 before 1), or with test_speaker the other speaker of the session; 0: none

    def __post_init__(self) -> None:
        check_choice("parts", self.parts, ("all", "impro", "script"))
        check_choice("test_session", self.test_session, SESSIONS)
        if self.test_speaker is not None:
            check_choice("test_speaker", self.test_speaker, SPEAKERS)
        tested = self.test_session if self.test_speaker is None else SPEAKERS.index(self.test_speaker) // 2 + 1
        if self.dev_session is not None:
            check_choice("dev_session", self.dev_session, (0, *(session for session in SESSIONS if session != tested)))

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """The splits train, dev (unless dev_session is 0) and test; lengths are read from the files' headers, in parallel.

        Raises ValueError naming the session, the file, or the line of an evaluation that is missing or not as it should be.
        """
        holds = "IEMOCAP_full_release/, or what is in it (Session1/ to Session5/)"
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
        speakers = np.array(columns["speaker"])
        test, dev = self._held_out()
        chosen = {"train": ~np.isin(speakers, test + dev), "dev": np.isin(speakers, dev), "test": np.isin(speakers, test)}
        splits = {split: manifest.take(np.flatnonzero(rows)) for split, rows in chosen.items() if split != "dev" or dev}
        if empty := [split for split, part in splits.items() if not len(part)]:
            raise ValueError(f"{home} has no turns in the four classes for {empty[0]}: restore the corpus' evaluations")
        return splits

    def _held_out(self) -> tuple[list[str], list[str]]:
        """The speakers of test and dev."""
        both = {session: [f"Ses0{session}F", f"Ses0{session}M"] for session in SESSIONS} | {0: []}
        if self.test_speaker is not None:
            partner = [name for pair in both.values() for name in pair if self.test_speaker in pair and name != self.test_speaker]
            return [self.test_speaker], partner if self.dev_session is None else both[self.dev_session]
        dev = (self.test_session - 2) % len(SESSIONS) + 1 if self.dev_session is None else self.dev_session
        return both[self.test_session], both[dev]

    def _session(self, home: Path, session: int, reasons: dict[str, list[str]]) -> list[Turn]:
        """The turns of a session that are rated and among the chosen parts; those without a rating go to `reasons`."""
        sounds, folder = home / f"Session{session}" / "sentences" / "wav", home / f"Session{session}" / "dialog" / "EmoEvaluation"
        for needed in (sounds, folder):
            if not needed.is_dir():
                raise ValueError(f"{needed} is missing: unpack IEMOCAP_full_release again; data.root must hold it")
        # Beside the evaluations lie folders with those of single raters, and the dot-files of the disk that it was copied from.
        turns = []
        for name in names_in(folder):
            if (folder / name).is_file() and name.endswith(".txt"):
                turns += [turn for turn in _rated(folder / name, sounds, session) if self._chosen(turn.utterance)]
        if not turns:
            raise ValueError(f"{folder} holds no evaluations (Ses0{session}F_impro01.txt, ...): unpack IEMOCAP_full_release again")
        known = {turn.utterance for turn in turns}
        for dialog in names_in(sounds):
            if (sounds / dialog).is_dir() and self._chosen(dialog):
                stems = [name.removesuffix(".wav") for name in names_in(sounds / dialog) if name.endswith(".wav")]
                reasons.setdefault("without an evaluation", []).extend(stem for stem in stems if stem not in known)
        return turns

    def _chosen(self, name: str) -> bool:
        return self.parts == "all" or f"_{self.parts}" in name


def _rated(path: Path, sounds: Path, session: int) -> list[Turn]:
    """The turns that a file of evaluations sums up, one line each; other lines are the single raters'."""
    turns = []
    for line, text in lines_of(path, "unpack IEMOCAP_full_release again"):
        if not text.startswith("["):
            continue
        form = LINE.fullmatch(text)
        if form is None:
            raise ValueError(f"{path}:{line}: must read '[start - end]<TAB>turn<TAB>emotion<TAB>[V, A, D]': restore the file")
        turn = TURN.fullmatch(form[1])
        if turn is None or turn[1] != path.stem or int(turn[2]) != session:
            raise ValueError(f"{path}:{line}: {form[1]!r} is not a turn of this dialogue ({path.stem}_F000, _M000, ...): restore the file")
        if form[2] not in (*CLASSES, *OTHERS):
            raise ValueError(
                f"{path}:{line}: the emotion must be one of {', '.join((*CLASSES, *OTHERS))}, not {form[2]!r}: restore the file"
            )
        sound = sounds / path.stem / f"{form[1]}.wav"
        turns.append(Turn(f"{path.relative_to(path.parents[3])}:{line}", form[1], f"Ses0{session}{turn[4]}", str(sound), form[2]))
    return turns
