"""Google Speech Commands v0.02 (Warden, 2018, arXiv:1804.03209): 105,829 clips of 35 words, up to one second, by 2,618 speakers."""

from __future__ import annotations

import functools
import hashlib
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedray.core.parallel import Parallel
from fedray.core.seeds import numpy_generator
from fedray.data.corpora.layout import check_choice, find_home, leave_out, lines_of, names_in, split_lines
from fedray.data.corpora.tsv import assemble, corpus_root, measure, unique_ids
from fedray.data.manifest import Manifest

COMMANDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
OTHERS = (
    "backward", "bed", "bird", "cat", "dog", "eight", "five", "follow", "forward", "four", "happy", "house", "learn", "marvin", "nine",
    "one", "seven", "sheila", "six", "three", "tree", "two", "visual", "wow", "zero",
)  # fmt: skip
WORDS = COMMANDS + OTHERS
SILENCE, UNKNOWN, NOISE = "_silence_", "_unknown_", "_background_noise_"
LISTS = {"dev": "validation_list.txt", "test": "testing_list.txt"}
PARTS = {"train": (0.0, 0.8), "dev": (0.8, 0.9), "test": (0.9, 1.0)}  # of each noise file
CUT = 1.0  # seconds of silence
SHORTEST = 11.0  # seconds of a noise file, so that a tenth of it is longer than a cut (the corpus' own last a minute or more)


class Clip(NamedTuple):
    utterance: str  # "yes/004ae714_nohash_0", as the official lists have it, without .wav
    path: str
    speaker: str
    text: str | None  # the word, where it is known
    label: str


@dataclass(frozen=True)
class SpeechCommands:
    """The speaker is what stands before `_nohash_`; the official splits are by speakers. Text is the word, label its class.

    `classes`:
    35  every word is a class
    36  and `_silence_` (FedAudio; Zhang et al., 2023)
    12  ten commands, `_silence_`, and `_unknown_`: the other 25 words, of which each split has as many, drawn at random, as
        `unknown_percentage` says (the task of the paper and of FedSTAR)
    Silence is one-second cuts of _background_noise_, drawn anew for every seed. Files are cut in time first, 80 % of each for training,
    10 % for dev and test each, so that nothing is scored that was trained on (TensorFlow's own example draws all from everywhere).
    A cut belongs to the speaker of a clip drawn at random: whoever recorded more has more silence.

    `speakers: train` (2,118, as FedAudio counts them) trains on what neither list names, and scores the lists. `all` hands on everybody's
    clips as training data (the 2,618 of FedScale and FedMLAC): what is scored then is up to data.dev_share and data.test_share.

    FedSTAR's own division is `classes=12 split=files unknown_percentage=null` with `split_files` and `test_archive`: its lists train on
    the official development clips too, with all 25 other words, have no development set, and score the separate test archive.
    """

    classes: int = 35  # 35 | 12 | 36
    # lists: the official validation_list.txt and testing_list.txt | hash: the rule that they were made by | files: `split_files`
    split: str = "lists"
    split_files: str | None = None  # the folder of FedSTAR's train_split.txt and test_split.txt, relative to data.root
    speakers: str = "train"  # train | all
    unknown_percentage: float | None = 10.0  # of the number of clips of commands in the split, as in TensorFlow; null: all there are
    silence_percentage: float | None = None  # of the number of clips of words; null: as many as a word has: 10 for 12 classes, 2.9 for 36
    test_archive: str | None = None  # 12 classes: the folder of speech_commands_test_set_v0.02, relative to data.root; it is the test set

    def __post_init__(self) -> None:
        check_choice("classes", self.classes, (35, 12, 36))
        check_choice("split", self.split, ("lists", "hash", "files"))
        check_choice("speakers", self.speakers, ("train", "all"))
        if (self.split == "files") != (self.split_files is not None) or (self.split == "files" and self.speakers == "all"):
            raise ValueError("data.options.split_files goes with split=files and speakers=train: set all of them, or none")
        for name in ("unknown_percentage", "silence_percentage"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"data.options.{name} must be a percentage above 0, or null, not {value}")
        if self.test_archive is not None and self.classes != 12:
            raise ValueError(
                f"data.options.test_archive is the test set of 12 classes, not of {self.classes}: remove it, or set classes=12"
            )
        if self.test_archive is not None and self.speakers == "all":
            raise ValueError("data.options.test_archive is by speakers that speakers=all trains on: remove it, or set speakers=train")

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """The splits train, dev (but for split=files) and test, or train alone for all speakers; lengths are read in parallel.

        Raises ValueError naming the folder, the file, or the line of a list that is missing or not as it should be.
        """
        holds = "speech_commands_v0.02/, or what is in it (yes/, no/, ..., validation_list.txt)"
        home = find_home(root, holds, "yes", "speech_commands_v0.02", "SpeechCommands/speech_commands_v0.02")
        clips = find_clips(home)
        folder = corpus_root(root, holds) / (self.test_archive or "")
        archive = None if self.test_archive is None else find_test_clips(folder)
        if self.speakers == "all":
            parts = {"train": clips}
        elif self.split_files is not None:
            parts = read_split_files(corpus_root(root, holds) / self.split_files, clips, archive)
        else:
            held_out = read_lists(home, clips) if self.split == "lists" else {}
            parts = {"train": [], "dev": [], "test": []}
            for clip in clips:
                parts[held_out.get(clip.utterance, "train") if self.split == "lists" else split_by_hash(clip.speaker)].append(clip)
        noises = None if self.classes == 35 else find_noises(home, parallel)
        splits = {}
        for split, part in parts.items():
            if archive is not None and split == "test":
                splits[split] = _manifest(folder, part if self.split == "files" else archive, parallel)
                continue
            words = part if self.classes != 12 else [clip for clip in part if clip.label in COMMANDS]
            if not words:
                raise ValueError(f"{home} holds no clips for {split}: unpack speech_commands_v0.02.tar.gz again")
            chosen = words + (self._unknown(part, len(words), split, seed) if self.classes == 12 else [])
            splits[split] = _manifest(home, chosen, parallel)
            if noises is not None:
                times = (0.0, 1.0) if self.speakers == "all" else PARTS[split]
                count = len(words) / (10 if self.classes == 12 else len(WORDS))
                if self.silence_percentage is not None:
                    count = len(words) * self.silence_percentage / 100
                cuts = draw_silence(noises, times, [clip.speaker for clip in chosen], math.ceil(count), split, seed)
                splits[split] = Manifest.concat([splits[split], cuts])
        unique_ids(splits)
        return splits

    def _unknown(self, clips: Sequence[Clip], words: int, split: str, seed: int) -> list[Clip]:
        """Clips of other words than the commands, in order."""
        others = [clip._replace(label=UNKNOWN) for clip in clips if clip.label not in COMMANDS]
        if self.unknown_percentage is None:
            return others
        count = math.ceil(words * self.unknown_percentage / 100)
        drawn = numpy_generator(seed, "speech commands", "unknown", split).permutation(len(others))[:count]
        return [others[index] for index in np.sort(drawn)]


def find_clips(home: Path) -> list[Clip]:
    """All clips of the 35 words, by word and name. ValueError for words without a folder, other folders, names of other forms."""
    folders = [name for name in names_in(home) if (home / name).is_dir() and not name.startswith("_")]
    if missing := [word for word in WORDS if word not in folders]:
        raise ValueError(
            f"{home} lacks folders of {len(missing)} of the 35 words ({', '.join(missing)}): unpack speech_commands_v0.02.tar.gz"
        )
    if strange := [name for name in folders if name not in WORDS]:
        raise ValueError(f"{home / strange[0]}: is not one of the 35 words of version 0.02: remove the folder, it is not of this corpus")
    clips = []
    for word in folders:
        prefix = os.path.join(home, word, "")
        for name in names_in(prefix):
            form = re.fullmatch(r"(([0-9a-f]{8})_nohash_\d+)\.wav", name)
            if form is None:
                raise ValueError(f"{prefix}{name}: must be named as 004ae714_nohash_0.wav is: rename or remove it")
            clips.append(Clip(f"{word}/{form[1]}", prefix + name, form[2], word, word))
    return clips


def find_test_clips(folder: Path) -> list[Clip]:
    """The clips of the separate test archive, by class and name: yes/bb05582b_nohash_0.wav, _unknown_/wow_4290ca61_nohash_1.wav.wav.

    A clip whose name tells no speaker has its class in place of one.
    """
    remedy = "unpack speech_commands_test_set_v0.02.tar.gz there, or correct data.options.test_archive"
    if not folder.is_dir():
        raise ValueError(f"{folder} is missing: {remedy}")
    labels = [name for name in names_in(folder) if (folder / name).is_dir()]
    expected = sorted((*COMMANDS, SILENCE, UNKNOWN))
    if wrong := sorted(set(labels) ^ set(expected)):
        raise ValueError(f"{folder} must hold the folders {', '.join(expected)}, and differs in {', '.join(wrong)}: {remedy}")
    clips = []
    for label in labels:
        for name in names_in(folder / label):
            if not name.endswith(".wav"):
                raise ValueError(f"{folder / label / name}: is not a .wav file: remove it")
            form = re.match(r"(?:([a-z]+)_)?([0-9a-f]{8})_nohash_", name)
            word = label if label in COMMANDS else form[1] if form is not None and label == UNKNOWN else None
            # Of ".wav.wav" one stays in the id: there may be a file of the same name without it.
            utterance = f"{label}/{name.removesuffix('.wav')}"
            clips.append(Clip(utterance, str(folder / label / name), form[2] if form is not None else label, word, label))
    return clips


def read_lists(home: Path, clips: Iterable[Clip]) -> dict[str, str]:
    """Utterance -> "dev" or "test", for those that the official lists name. Raises ValueError with file and line."""
    known = {clip.utterance for clip in clips}
    found: dict[str, str] = {}
    for split, name in LISTS.items():
        path = home / name
        for line, text in lines_of(path, "unpack speech_commands_v0.02.tar.gz again, or set data.options.split=hash"):
            utterance = text.removesuffix(".wav")
            if utterance not in known or utterance == text:
                raise ValueError(f"{path}:{line}: there is no file {home / text}: unpack speech_commands_v0.02.tar.gz again")
            if utterance in found:
                raise ValueError(f"{path}:{line}: {text} is listed already (for {found[utterance]}): restore the official lists")
            found[utterance] = split
    return found


def read_split_files(folder: Path, clips: Sequence[Clip], archive: Sequence[Clip] | None) -> dict[str, list[Clip]]:
    """The clips that FedSTAR's lists name for train and test (from the test archive, where it is given), in the order of the clips.

    Left out, counted: clips in neither list, and lines of silence for training, which is cut anew. ValueError with file and line.
    """
    known = {"train": {clip.utterance: clip for clip in clips}, "test": {clip.utterance: clip for clip in archive or clips}}
    listed: dict[str, set[str]] = {"train": set(), "test": set()}
    cuts = []
    for split, path, line, text in split_lines(folder):
        utterance = text.removesuffix(".wav")
        if split == "train" and text.startswith(f"{SILENCE}/"):
            cuts.append(text)
            continue
        if utterance not in known[split] or utterance == text:
            remedy = "set data.options.test_archive" if split == "test" and archive is None else "unpack the archives again"
            raise ValueError(f"{path}:{line}: there is no clip {text}: {remedy}")
        if any(utterance in listed[other] for other in (("train", "test") if archive is None else (split,))):
            raise ValueError(f"{path}:{line}: {text} is listed already: restore FedSTAR's lists")
        listed[split].add(utterance)
    unlisted = [clip.utterance for clip in clips if not any(clip.utterance in names for names in listed.values())]
    unlisted += [f"test archive's {name}" for name in known["test"] if archive is not None and name not in listed["test"]]
    total = len(clips) + len(archive or ()) + len(cuts)
    leave_out(folder, total, {"in neither list": unlisted, "listed cuts of silence, which are drawn anew": cuts})
    return {split: [clip for name, clip in known[split].items() if name in listed[split]] for split in listed}


@functools.cache
def split_by_hash(speaker: str) -> str:
    """The official rule, which keeps a speaker in one split whatever files are added: about 10 % dev, 10 % test."""
    most = 2**27 - 1
    percentage = int(hashlib.sha1(speaker.encode()).hexdigest(), 16) % (most + 1) * (100 / most)
    return "dev" if percentage < 10 else "test" if percentage < 20 else "train"


def find_noises(home: Path, parallel: Parallel) -> dict[str, float]:
    """The files of background noise -> their lengths in seconds."""
    folder = home / NOISE
    paths = [str(folder / name) for name in names_in(folder) if name.endswith(".wav")] if folder.is_dir() else []
    if not paths:
        raise ValueError(f"{folder} holds no .wav files, which silence is cut from: unpack speech_commands_v0.02.tar.gz, or set classes=35")
    lengths = {}
    for path, length in measure(paths, True, parallel).items():
        if isinstance(length, str):
            raise ValueError(f"{path}: {length}. Restore the file")
        if length < SHORTEST:
            raise ValueError(f"{path} lasts {length:.2f} s, and silence is cut from tenths of {SHORTEST:.0f} s or more: restore the file")
        lengths[path] = length
    return lengths


def draw_silence(
    noises: dict[str, float], times: tuple[float, float], speakers: Sequence[str], count: int, split: str, seed: int
) -> Manifest:
    """`count` cuts of one second from the part of every file that lies between two shares of its length, each to one of the speakers."""
    generator = numpy_generator(seed, "speech commands", "silence", split)
    paths, lengths = list(noises), np.array(list(noises.values()))
    rooms = (times[1] - times[0]) * lengths - CUT  # seconds where a cut may begin
    owners = generator.choice(len(speakers), count, replace=count > len(speakers))
    files = generator.choice(len(paths), count, p=rooms / rooms.sum())
    offsets = times[0] * lengths[files] + generator.random(count) * rooms[files]
    columns: dict[str, Sequence] = {
        "utterance": [f"{SILENCE}/{split}-{index:05d}" for index in range(count)],
        "path": [paths[file] for file in files],
        "offset": offsets.tolist(),
        "seconds": [CUT] * count,
        "speaker": [speakers[owner] for owner in owners],
        "label": [SILENCE] * count,
    }
    return Manifest.from_columns(columns, NOISE)


def _manifest(home: Path, clips: Sequence[Clip], parallel: Parallel) -> Manifest:
    """Text is a column of a file or it is none: what has no word is put together apart."""
    parts = []
    for known in (True, False):
        if rows := [clip for clip in clips if (clip.text is not None) == known]:
            columns = {name: list(values) for name, values in zip(Clip._fields, zip(*rows, strict=True), strict=True)}
            lines = columns["utterance"]
            parts.append(assemble(home, lines, columns | {"text": columns["text"] if known else None}, home, parallel))
    return Manifest.concat(parts)
