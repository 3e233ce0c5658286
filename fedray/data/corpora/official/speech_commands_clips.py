"""The files of Speech Commands: clips of words, the separate test archive, and lists of the splits."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fedray.data.corpora.official.layout import leave_out, lines_of, names_in, split_lines

COMMANDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
OTHERS = (
    "backward", "bed", "bird", "cat", "dog", "eight", "five", "follow", "forward", "four", "happy", "house", "learn",
    "marvin", "nine", "one", "seven", "sheila", "six", "three", "tree", "two", "visual", "wow", "zero",
)  # fmt: skip
WORDS = COMMANDS + OTHERS
SILENCE, UNKNOWN = "_silence_", "_unknown_"
LISTS = {"dev": "validation_list.txt", "test": "testing_list.txt"}
AGAIN = "unpack speech_commands_v0.02.tar.gz again"


class Clip(NamedTuple):
    """A clip of one word, of noise or of the test archive."""

    utterance: str  # "yes/004ae714_nohash_0", as in the official lists, without .wav
    path: str
    speaker: str
    text: str | None  # the word, if it is known
    label: str


def find_clips(home: Path) -> list[Clip]:
    """Find all clips of the 35 words, by word and name.

    Raises ValueError for missing and unknown folders of words, and for malformed file names.
    """
    folders = [name for name in names_in(home) if (home / name).is_dir() and not name.startswith("_")]
    if missing := [word for word in WORDS if word not in folders]:
        words = ", ".join(missing)
        raise ValueError(f"{home} lacks the folders of {len(missing)} of the 35 words ({words}): {AGAIN}")
    if strange := [name for name in folders if name not in WORDS]:
        raise ValueError(f"{home / strange[0]} is not one of the 35 words of version 0.02: remove the folder")
    clips = []
    for word in folders:
        prefix = os.path.join(home, word, "")
        for name in names_in(prefix):
            form = re.fullmatch(r"(([0-9a-f]{8})_nohash_\d+)\.wav", name)
            if form is None:
                raise ValueError(
                    f"{prefix}{name}: the name must be like 004ae714_nohash_0.wav: rename or remove the file"
                )
            clips.append(Clip(f"{word}/{form[1]}", prefix + name, form[2], word, word))
    return clips


def find_test_clips(folder: Path) -> list[Clip]:
    """Find the clips of the separate test archive, by class and name.

    Examples are yes/bb05582b_nohash_0.wav and _unknown_/wow_4290ca61_nohash_1.wav.wav. For a clip whose name has no
    speaker, the speaker is the class.
    """
    remedy = "unpack speech_commands_test_set_v0.02.tar.gz there, or correct data.options.test_archive"
    if not folder.is_dir():
        raise ValueError(f"{folder} is missing: {remedy}")
    labels = [name for name in names_in(folder) if (folder / name).is_dir()]
    expected = sorted((*COMMANDS, SILENCE, UNKNOWN))
    if wrong := sorted(set(labels) ^ set(expected)):
        raise ValueError(
            f"{folder} must hold the folders {', '.join(expected)}, but differs in {', '.join(wrong)}: {remedy}"
        )
    clips = []
    for label in labels:
        for name in names_in(folder / label):
            if not name.endswith(".wav"):
                raise ValueError(f"{folder / label / name} is not a .wav file: remove it")
            form = re.match(r"(?:([a-z]+)_)?([0-9a-f]{8})_nohash_", name)
            word = label if label in COMMANDS else form[1] if form is not None and label == UNKNOWN else None
            # The id of a file "*.wav.wav" keeps one ".wav", because a file "*.wav" of the same name can exist.
            utterance = f"{label}/{name.removesuffix('.wav')}"
            speaker = form[2] if form is not None else label
            clips.append(Clip(utterance, str(folder / label / name), speaker, word, label))
    return clips


def read_lists(home: Path, clips: Iterable[Clip]) -> dict[str, str]:
    """Read the official lists: utterance -> "dev" or "test". Raises ValueError with file and line."""
    known = {clip.utterance for clip in clips}
    found: dict[str, str] = {}
    for split, name in LISTS.items():
        path = home / name
        for line, text in lines_of(path, f"{AGAIN}, or set data.options.split=hash"):
            utterance = text.removesuffix(".wav")
            if utterance not in known or utterance == text:
                raise ValueError(f"{path}:{line}: the file {home / text} does not exist: {AGAIN}")
            if utterance in found:
                raise ValueError(
                    f"{path}:{line}: {text} is already listed for {found[utterance]}: restore the official lists"
                )
            found[utterance] = split
    return found


def read_split_files(folder: Path, clips: Sequence[Clip], archive: Sequence[Clip] | None) -> dict[str, list[Clip]]:
    """The clips that FedSTAR's lists name for train and test, in the order of the clips.

    With `archive`, test clips come from the test archive. Clips that neither list names, and lines of silence for
    training, are left out and counted: the reader draws silence itself. Raises ValueError with file and line.
    """
    known = {
        "train": {clip.utterance: clip for clip in clips},
        "test": {clip.utterance: clip for clip in archive or clips},
    }
    listed: dict[str, set[str]] = {"train": set(), "test": set()}
    cuts = []
    for split, path, line, text in split_lines(folder):
        utterance = text.removesuffix(".wav")
        if split == "train" and text.startswith(f"{SILENCE}/"):
            cuts.append(text)
            continue
        if utterance not in known[split] or utterance == text:
            remedy = "unpack the archives again"
            if split == "test" and archive is None:
                remedy = "set data.options.test_archive"
            raise ValueError(f"{path}:{line}: the clip {text} does not exist: {remedy}")
        if any(utterance in listed[other] for other in (("train", "test") if archive is None else (split,))):
            raise ValueError(f"{path}:{line}: {text} is already listed: restore FedSTAR's lists")
        listed[split].add(utterance)
    unlisted = [clip.utterance for clip in clips if not any(clip.utterance in names for names in listed.values())]
    if archive is not None:
        unlisted += [f"test archive's {name}" for name in known["test"] if name not in listed["test"]]
    total = len(clips) + len(archive or ()) + len(cuts)
    leave_out(
        folder, total, {"in neither list": unlisted, "listed cuts of silence, which the reader draws itself": cuts}
    )
    return {split: [clip for name, clip in known[split].items() if name in listed[split]] for split in listed}


@functools.cache
def split_by_hash(speaker: str) -> str:
    """The split by the official rule: about 10 % dev and 10 % test. New files do not change a speaker's split."""
    most = 2**27 - 1
    percentage = int(hashlib.sha1(speaker.encode()).hexdigest(), 16) % (most + 1) * (100 / most)
    return "dev" if percentage < 10 else "test" if percentage < 20 else "train"
