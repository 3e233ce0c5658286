"""Google Speech Commands v0.02 (Warden, 2018, arXiv:1804.03209).

105,829 clips of 35 words, up to one second long, by 2,618 speakers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedray.core.parallel import Parallel
from fedray.core.ranges import Positive, Ranged
from fedray.core.seeds import numpy_generator
from fedray.data.corpora.assembly import assemble, corpus_root, unique_ids
from fedray.data.corpora.official.layout import check_choice, find_home
from fedray.data.corpora.official.speech_commands_clips import (
    COMMANDS,
    UNKNOWN,
    WORDS,
    Clip,
    find_clips,
    find_test_clips,
    read_lists,
    read_split_files,
    split_by_hash,
)
from fedray.data.corpora.official.speech_commands_silence import draw_silence, find_noises
from fedray.data.manifest import Manifest

HOLDS = "speech_commands_v0.02/, or its contents (yes/, no/, ..., validation_list.txt)"
PARTS = {"train": (0.0, 0.8), "dev": (0.8, 0.9), "test": (0.9, 1.0)}  # of each noise file, for cuts of silence


@dataclass(frozen=True)
class SpeechCommands(Ranged):
    """The speaker is the part of a name before `_nohash_`; official splits divide speakers. The text is the word.

    The label is one of `classes`:
    35  the words
    36  the words and `_silence_` (FedAudio; Zhang et al., 2023)
    12  ten commands, `_silence_`, and `_unknown_`: random clips of the other 25 words, as many in each split as
        `unknown_percentage` says (the task of the paper and of FedSTAR)

    Silence is one-second cuts of _background_noise_, drawn by the seed. Training cuts come from the first 80 % of every
    noise file, dev and test cuts from 10 % each, so no split shares audio (TensorFlow's example cuts anywhere). A cut
    belongs to the speaker of a random clip: speakers with more clips have more silence.

    `speakers: train` trains on the 2,118 speakers that neither list names (as FedAudio counts them). `speakers: all`
    makes all clips training data (the 2,618 speakers of FedScale and FedMLAC): use data.dev_share and data.test_share.
    Its silence is cut from whole noise files, so a cut of dev or test can overlap a training cut.

    FedSTAR's division is `classes=12 split=files unknown_percentage=null` with `split_files` and `test_archive`. Its
    lists add the official development clips and all 25 other words to the training data, have no development set, and
    test on the separate test archive.
    """

    classes: int = 35  # 35 | 12 | 36
    # lists: the official validation_list.txt and testing_list.txt | hash: the rule behind them | files: `split_files`
    split: str = "lists"
    split_files: str | None = None  # the folder of FedSTAR's train_split.txt and test_split.txt, relative to data.root
    speakers: str = "train"  # train | all
    # size of `_unknown_` in percent of the split's clips of commands, as in TensorFlow; null: all clips
    unknown_percentage: Positive | None = 10.0
    # size of `_silence_` in percent of the split's clips of words; null: as many cuts as clips of one word
    silence_percentage: Positive | None = None
    test_archive: str | None = None  # 12 classes: test on speech_commands_test_set_v0.02, a folder below data.root

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("classes", self.classes, (35, 12, 36))
        check_choice("split", self.split, ("lists", "hash", "files"))
        check_choice("speakers", self.speakers, ("train", "all"))
        files = self.split == "files"
        if files != (self.split_files is not None) or (files and self.speakers == "all"):
            raise ValueError("data.options.split_files needs split=files and speakers=train: set all three, or none")
        if self.test_archive is not None and self.classes != 12:
            problem = f"data.options.test_archive has 12 classes, data.options.classes is {self.classes}"
            raise ValueError(f"{problem}: remove test_archive, or set classes=12")
        if self.test_archive is not None and self.speakers == "all":
            problem = "data.options.test_archive has speakers that speakers=all trains on"
            raise ValueError(f"{problem}: remove test_archive, or set speakers=train")

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """Read train, dev (except with split=files) and test; with speakers=all, train only.

        Lengths are read in parallel. Raises ValueError with the folder, the file, or the line of a list that is wrong.
        """
        home = find_home(root, HOLDS, "yes", "speech_commands_v0.02", "SpeechCommands/speech_commands_v0.02")
        root = corpus_root(root, HOLDS)
        clips = find_clips(home)
        folder = root / (self.test_archive or "")
        archive = None if self.test_archive is None else find_test_clips(folder)
        noises = None if self.classes == 35 else find_noises(home, parallel)
        splits = {}
        for split, part in self._parts(root, home, clips, archive).items():
            if archive is not None and split == "test":
                splits[split] = _manifest(folder, part if self.split == "files" else archive, parallel)
                continue
            words = part if self.classes != 12 else [clip for clip in part if clip.label in COMMANDS]
            if not words:
                raise ValueError(f"{home} holds no clips for {split}: unpack speech_commands_v0.02.tar.gz again")
            chosen = words + (self._unknown(part, len(words), split, seed) if self.classes == 12 else [])
            splits[split] = _manifest(home, chosen, parallel)
            if noises is not None:
                cuts = self._silence(noises, chosen, len(words), split, seed)
                splits[split] = Manifest.concat([splits[split], cuts])
        unique_ids(splits)
        return splits

    def _parts(self, root: Path, home: Path, clips: list[Clip], archive: list[Clip] | None) -> dict[str, list[Clip]]:
        """Split -> clips."""
        if self.speakers == "all":
            return {"train": clips}
        if self.split_files is not None:
            return read_split_files(root / self.split_files, clips, archive)
        held_out = read_lists(home, clips) if self.split == "lists" else {}
        parts: dict[str, list[Clip]] = {"train": [], "dev": [], "test": []}
        for clip in clips:
            split = held_out.get(clip.utterance, "train") if self.split == "lists" else split_by_hash(clip.speaker)
            parts[split].append(clip)
        return parts

    def _unknown(self, clips: Sequence[Clip], words: int, split: str, seed: int) -> list[Clip]:
        """Clips of words that are not commands, in order."""
        others = [clip._replace(label=UNKNOWN) for clip in clips if clip.label not in COMMANDS]
        if self.unknown_percentage is None:
            return others
        count = math.ceil(words * self.unknown_percentage / 100)
        drawn = numpy_generator(seed, "speech commands", "unknown", split).permutation(len(others))[:count]
        return [others[index] for index in np.sort(drawn)]

    def _silence(
        self, noises: Mapping[str, float], clips: Sequence[Clip], words: int, split: str, seed: int
    ) -> Manifest:
        times = (0.0, 1.0) if self.speakers == "all" else PARTS[split]
        count = words / (10 if self.classes == 12 else len(WORDS))
        if self.silence_percentage is not None:
            count = words * self.silence_percentage / 100
        return draw_silence(noises, times, [clip.speaker for clip in clips], math.ceil(count), split, seed)


def _manifest(home: Path, clips: Sequence[Clip], parallel: Parallel) -> Manifest:
    """Assemble clips with and without a word separately: `assemble` takes a text for all rows or for none."""
    parts = []
    for known in (True, False):
        if rows := [clip for clip in clips if (clip.text is not None) == known]:
            columns = {name: list(values) for name, values in zip(Clip._fields, zip(*rows, strict=True), strict=True)}
            lines = columns["utterance"]
            texts = columns["text"] if known else None
            parts.append(assemble(home, lines, columns | {"text": texts}, home, parallel, listed=False))
    return Manifest.concat(parts)
