"""The Free Spoken Digit Dataset (Jackson et al.): six speakers, 50 takes of every digit, 8 kHz."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedray.core.parallel import Parallel
from fedray.data.corpora.assembly import assemble, corpus_root
from fedray.data.corpora.official.layout import is_hidden
from fedray.data.manifest import Manifest

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RATE = 8000  # Hz, the corpus' sample rate
Takes = dict[int, list[str]]  # take -> the paths of its ten digits


@dataclass(frozen=True)
class Fsdd:
    """Single digits: the word is text and label. A take is one recording of a digit by a speaker, 0 to 49.

    The takes of test and dev are ranges that include both ends.
    """

    test_takes: tuple[int, int] = (0, 4)  # takes of `test`, first and last: the official test set
    dev_takes: tuple[int, int] = (5, 9)  # takes of `dev`, first and last; all others train

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """The splits "train", "dev" and "test". Raises ValueError for names that are not `digit_speaker_take`."""
        check_disjoint({"test_takes": self.test_takes, "dev_takes": self.dev_takes})
        held_out = {"test": self.test_takes, "dev": self.dev_takes}
        rows: dict[str, list[tuple[str, ...]]] = {"train": [], "dev": [], "test": []}
        for speaker, takes in recordings(root).items():
            for take, paths in takes.items():
                split = next((name for name, (first, last) in held_out.items() if first <= take <= last), "train")
                rows[split] += [
                    (Path(path).stem, path, speaker, word, word) for path, word in zip(paths, WORDS, strict=True)
                ]
        splits = {}
        for split, part in rows.items():
            if not part:
                raise ValueError(f"{root}: {split} has no recordings: correct test_takes and dev_takes in data.options")
            columns = dict(zip(("utterance", "path", "speaker", "text", "label"), zip(*part, strict=True), strict=True))
            splits[split] = assemble(Path(root or ""), columns["utterance"], columns, Path(), parallel, listed=False)
        return splits


def recordings(root: Path | None) -> dict[str, Takes]:
    """Speaker -> take -> paths of the digits 0 to 9, from `recordings/{digit}_{speaker}_{take}.wav` (or .flac).

    Raises ValueError for other names, for a recording that is there twice, and for takes without all ten digits.
    """
    folder = corpus_root(root, "recordings/, or the recordings themselves (0_jackson_0.wav, ...)")
    folder = folder / "recordings" if (folder / "recordings").is_dir() else folder
    found: dict[tuple[str, int], dict[int, str]] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".wav", ".flac") or is_hidden(path.name):
            continue
        name = re.fullmatch(r"(\d)_([^_]+)_(\d+)", path.stem)
        if name is None:
            raise ValueError(
                f"{path}: the name must be digit_speaker_take, as in 7_jackson_32.wav: rename or remove the file"
            )
        digits = found.setdefault((name[2], int(name[3])), {})
        if int(name[1]) in digits:
            raise ValueError(f"{path}: {Path(digits[int(name[1])]).name} is the same recording: remove one of the two")
        digits[int(name[1])] = str(path)
    if not found:
        raise ValueError(f"{folder} holds no recordings (0_jackson_0.wav, ...): correct data.root")
    speakers: dict[str, Takes] = {}
    for (speaker, take), digits in sorted(found.items()):
        if missing := [f"{digit}_{speaker}_{take}" for digit in range(10) if digit not in digits]:
            raise ValueError(
                f"{folder}: {', '.join(missing)} are missing: fetch them, or remove take {take} of {speaker}"
            )
        speakers.setdefault(speaker, {})[take] = [digits[digit] for digit in range(10)]
    return speakers


def choose_takes(speakers: Mapping[str, Takes], name: str, takes: tuple[int, int]) -> Takes:
    """The speaker's takes in a range that includes both ends. Raises ValueError if there are none."""
    chosen = {take: paths for take, paths in speakers[name].items() if takes[0] <= take <= takes[1]}
    if not chosen:
        first, last = min(speakers[name]), max(speakers[name])
        raise ValueError(f"{name} has no takes {takes[0]} to {takes[1]}, only {first} to {last}: correct data.options")
    return chosen


def check_disjoint(ranges: Mapping[str, tuple[int, int]]) -> None:
    """Raises ValueError if two ranges of takes overlap, so that a recording would be in two splits."""
    named = sorted(ranges.items(), key=lambda item: item[1])
    for (name, (low, high)), (next_name, (next_low, _)) in zip(named, [*named[1:], ("", (10**9, 10**9))], strict=True):
        if low > high:
            raise ValueError(f"data.options.{name} must be a range of takes (first, last), not [{low}, {high}]")
        if high >= next_low:
            raise ValueError(
                f"data.options.{name} and data.options.{next_name} overlap at take {next_low}: separate them"
            )
