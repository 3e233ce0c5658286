"""VoxForge (MacLean, voxforge.org): sentences that volunteers read in many languages; FedSTAR classifies six."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedray.core.parallel import Parallel
from fedray.data.corpora.assembly import corpus_root, unique_ids
from fedray.data.corpora.official.layout import leave_out, names_in, split_lines
from fedray.data.corpora.skipping import settled
from fedray.data.features.audio import AudioError, duration
from fedray.data.manifest import Manifest

LANGUAGES = ("en", "es", "fr", "de", "ru", "it")  # FedSTAR's
INSIDE = "Trunk/Audio/Main/16kHz_16bit"  # folder of a language's submissions, on the server and its mirrors
SHARD = 50  # submissions in a work item
NO_PROMPTS, NO_README = "in submissions without etc/PROMPTS", "in submissions without etc/README"
NO_AUDIO, NO_TEXT = "in submissions without wav/ or flac/", "in submissions whose etc/PROMPTS is not UTF-8"
EMPTY, NO_PROMPT, NO_RECORDING = "empty", "without a prompt", "prompted but not recorded"
TWO_PROMPTS, PACKED, UNLISTED = "with two different prompts", "in archives that are not unpacked", "in neither list"
Reasons = dict[str, list[str]]


class Recording(NamedTuple):
    """A recording with its prompt."""

    utterance: str  # "en/1snoke-20120412-hge/a0405"
    path: str
    seconds: float | str  # or what is wrong with the file
    speaker: str
    text: str
    label: str  # the language


@dataclass(frozen=True)
class VoxForge:
    """The label is the language, the text the prompt, the speaker the user name at the start of a submission's name.

    Submissions are `<root>/<language>/<user>-<yyyymmdd>-<xxx>/`, or below `<language>/Trunk/Audio/Main/16kHz_16bit/`
    as on the server; with one language, `<root>` can hold them directly. Each submission by "anonymous", and each
    whose name has no date, is a speaker. The reader leaves out submissions without etc/PROMPTS, etc/README, or wav/ and
    flac/; empty recordings; recordings without a prompt; prompts without a recording. Unreadable recordings are errors.

    There is no official split: all recordings are "train", and data.dev_share and data.test_share divide the speakers.
    `split_files` uses FedSTAR's lists instead (train_split.txt, test_split.txt), whose test speakers also train.
    """

    # languages that are read, each from its folder
    languages: list[str] = field(default_factory=lambda: list(LANGUAGES))
    lower_case: bool = False  # converts the text to lower case: English prompts are in upper case
    split_files: str | None = None  # the folder of FedSTAR's lists, relative to data.root

    def __post_init__(self) -> None:
        if not self.languages or len(set(self.languages)) < len(self.languages):
            known = ", ".join(LANGUAGES)
            raise ValueError(
                f"data.options.languages must name languages, each once, such as {known}, not {self.languages}"
            )

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """Read train, and with `split_files` test. Submissions are read in parallel, lengths from file headers.

        Raises ValueError for a language without a folder or recordings, for unreadable audio, and for a line of a list
        whose recording is missing.
        """
        root = corpus_root(root, "the folders of the languages (en/, es/, ...), or the submissions of one language")
        reasons: Reasons = {}
        items: list[tuple[str, str]] = []
        for language in self.languages:
            home = self._home(root, language)
            entries = names_in(home)
            folders = [name for name in entries if (home / name).is_dir()]
            packed = [name for name in entries if name.endswith(".tgz") and name.removesuffix(".tgz") not in folders]
            reasons.setdefault(PACKED, []).extend(f"{language}/{name}" for name in packed)
            items.extend((language, str(home / name)) for name in folders)
        shards = [items[start : start + SHARD] for start in range(0, len(items), SHARD)]
        recordings: list[Recording] = []
        for found, left in parallel(_read_submissions, shards, "Reading VoxForge"):
            recordings.extend(found)
            for reason, names in left.items():
                reasons.setdefault(reason, []).extend(names)
        total = len(recordings) + sum(map(len, reasons.values()))
        split_of = dict.fromkeys((recording.utterance for recording in recordings), "train")
        if self.split_files is not None:
            folder = root / self.split_files
            split_of = self._lists(
                folder, {recording.utterance for recording in recordings}, set().union(*reasons.values())
            )
            reasons[UNLISTED] = [recording.utterance for recording in recordings if recording.utterance not in split_of]
        leave_out(root, total, reasons)
        kept = [recording for recording in recordings if recording.utterance in split_of]
        for language in self.languages:
            if not any(recording.label == language for recording in kept):
                where = self._home(root, language)
                remedy = f"unpack its archives, or remove {language} from data.options.languages"
                raise ValueError(f"{where} holds no usable recordings: {remedy}")
        manifest = self._manifest(root, kept)
        chosen = np.array([split_of[recording.utterance] for recording in kept])
        wanted = ("train",) if self.split_files is None else ("train", "test")
        splits = {split: manifest.take(np.flatnonzero(chosen == split)) for split in wanted}
        unique_ids(splits)
        return splits

    def _home(self, root: Path, language: str) -> Path:
        """The folder that contains a language's submissions."""
        for folder in (root / language / INSIDE, root / language):
            if folder.is_dir():
                return folder
        if len(self.languages) == 1 and any((folder / "etc").is_dir() for folder in root.iterdir()):
            return root
        there = ", ".join(name for name in names_in(root) if (root / name).is_dir()) or "none"
        remedy = "put the submissions there, or correct data.options.languages"
        raise ValueError(f"{root} has no folder {language} (its folders: {there}): {remedy}")

    def _lists(self, folder: Path, known: set[str], left_out: set[str]) -> dict[str, str]:
        """Utterance -> "train" or "test". Lines read `en/Trunk/Audio/Main/16kHz_16bit/k-20090202-dkx/wav/rp-04.wav`."""
        found: dict[str, str] = {}
        for split, path, line, text in split_lines(folder):
            parts = text.split("/")
            if len(parts) < 4:
                form = "<language>/.../<submission>/wav/<name>.wav"
                raise ValueError(f"{path}:{line}: the line must read {form}, not {text!r}: restore the list")
            utterance = f"{parts[0]}/{parts[-3]}/{os.path.splitext(parts[-1])[0]}"
            if parts[0] not in self.languages or utterance in left_out:
                continue
            if utterance not in known:
                raise ValueError(
                    f"{path}:{line}: the recording {text} is missing: fetch the submission, or drop the line"
                )
            if found.setdefault(utterance, split) != split:
                raise ValueError(
                    f"{path}:{line}: {text} is already listed for {found[utterance]}: restore FedSTAR's lists"
                )
        return found

    def _manifest(self, root: Path, recordings: Sequence[Recording]) -> Manifest:
        columns = dict(zip(Recording._fields, map(list, zip(*recordings, strict=True)), strict=True))
        if self.lower_case:
            columns["text"] = [text.lower() for text in columns["text"]]
        remedy = "Fetch the submission again, or remove the file"
        columns["seconds"] = [
            settled(path, length, remedy) for path, length in zip(columns["path"], columns["seconds"], strict=True)
        ]
        return Manifest.from_columns(columns, str(root), columns["utterance"])


def speaker_of(submission: str) -> str:
    """The user of a submission: `1snoke` for 1snoke-20120412-hge; the whole name for "anonymous" or without a date."""
    form = re.fullmatch(r"(.+?)-\d{8}(?:[-_].*)?", submission)
    return submission if form is None or form[1].lower() == "anonymous" else form[1]


def _read_submissions(items: Iterable[tuple[str, str]]) -> tuple[list[Recording], Reasons]:
    recordings: list[Recording] = []
    reasons: Reasons = {}
    for language, folder in items:
        found, left = _read_submission(language, folder)
        recordings.extend(found)
        for reason, names in left.items():
            reasons.setdefault(reason, []).extend(names)
    return recordings, reasons


def _read_submission(language: str, folder: str) -> tuple[list[Recording], Reasons]:
    """Read the recordings of a submission, and the names of those left out, by reason."""
    submission = os.path.basename(folder)
    name = f"{language}/{submission}"
    inside = os.path.join(folder, "etc")
    etc = {entry.lower(): entry for entry in names_in(inside)} if os.path.isdir(inside) else {}
    sounds = _sounds(folder)
    everything = [f"{name}/{stem}" for stem in sounds or ()] or [name]
    for file, reason in (("prompts", NO_PROMPTS), ("readme", NO_README)):
        if file not in etc:
            return [], {reason: everything}
    prompts = _read_prompts(os.path.join(inside, etc["prompts"]))
    if prompts is None:
        return [], {NO_TEXT: everything}
    if sounds is None:
        return [], {NO_AUDIO: [f"{name}/{stem}" for stem in prompts] or [name]}
    reasons: Reasons = {NO_RECORDING: [f"{name}/{stem}" for stem in prompts if stem not in sounds]}
    recordings = []
    for stem, path in sounds.items():
        utterance, texts = f"{name}/{stem}", prompts.get(stem, set())
        seconds = _seconds(path)
        if not seconds or len(texts) != 1:
            reason = EMPTY if not seconds else TWO_PROMPTS if texts else NO_PROMPT
            reasons.setdefault(reason, []).append(utterance)
        else:
            recordings.append(Recording(utterance, path, seconds, speaker_of(submission), next(iter(texts)), language))
    return recordings, reasons


def _sounds(folder: str) -> Mapping[str, str] | None:
    """Name without ending -> path, from wav/ or, if it has no recordings, flac/. None if there is neither folder."""
    found = None
    for kind in ("wav", "flac"):
        place = os.path.join(folder, kind)
        if not found and os.path.isdir(place):
            names = [name for name in names_in(place) if name.lower().endswith(f".{kind}")]
            found = {os.path.splitext(name)[0]: os.path.join(place, name) for name in names}
    return found


def _read_prompts(path: str) -> dict[str, set[str]] | None:
    """Recording -> prompts that are not blank: one, or several if lines contradict each other. None if not UTF-8.

    Lines read `1snoke-20120412-hge/mfc/a0405 IT SEEMED THE ORDAINED ORDER`; the part before the last slash is ignored.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = [line.split() for line in file]
    except UnicodeDecodeError:
        return None
    prompts: dict[str, set[str]] = {}
    for words in lines:
        if len(words) > 1:
            prompts.setdefault(os.path.basename(words[0]), set()).add(" ".join(words[1:]))
    return prompts


def _seconds(path: str) -> float | str:
    """The length of a recording, 0 for a file without bytes or samples, or what is wrong with it."""
    try:
        return duration(path) if os.path.getsize(path) else 0.0
    except AudioError as problem:
        return problem.reason
