"""GigaSpeech (Chen et al., Interspeech 2021): 10,000 hours of transcribed audiobooks, podcasts and videos."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fedray.core.parallel import Parallel
from fedray.core.ranges import Count, Positive, Ranged, is_number
from fedray.core.texts import unusable
from fedray.data.corpora.assembly import MOST_SECONDS, check_fetched, find_missing, unique_ids
from fedray.data.corpora.official.held_out import cut
from fedray.data.corpora.official.layout import check_choice, find_home, leave_out
from fedray.data.manifest import Manifest
from fedray.data.text.scoring import GARBAGE, PUNCTUATION

SUBSETS = ("XS", "S", "M", "L", "XL", "DEV", "TEST")
LIST = "GigaSpeech.json"
RESTORE = f"fetch {LIST} again"
ROWS = 20_000  # rows kept as Python objects before they go into a table
READ = 2**20  # bytes of the list read at a time
COLUMNS = ("utterance", "path", "offset", "seconds", "speaker", "text", "label")


@dataclass(frozen=True)
class GigaSpeech(Ranged):
    """The label is the category of a recording. Each recording counts as a speaker, because speakers are unknown.

    Utterances are segments of recordings in `<root>/audio/`. The subsets of segments are used, not those
    of recordings. The list of 12 GB is read as a stream, which needs ijson and takes minutes. Segments marked as music,
    noise, silence or other are left out.

    Du et al. (2024) make clients of ten categories: train XL, categories [howto, crime, health, film, gaming, arts,
    sports, comedy, history, society], and data.clients {by: label}. Their six unseen clients are news, education,
    science, people, entertainment and nonprofits. Their dev and test sets, of 1,700 to 5,500 utterances for each
    category, are not DEV and TEST: held_out cuts such sets.
    """

    train: str = "XL"  # subset that trains: XS (10 h) | S (250 h) | M (1,000 h) | L (2,500 h) | XL (10,000 h)
    dev: str | None = "DEV"  # subset that chooses the best round; null: none
    test: str | None = "TEST"  # subset that tests; null: none
    # Keep recordings whose category begins with one of these, ignoring case; the label is the beginning. []: all
    # recordings, with the whole category as label
    categories: list[str] = field(default_factory=list)
    # Utterances of dev, and as many of test, for each category: whole recordings of `train` are drawn with data.seed
    # until they have this many or more. null: the subsets `dev` and `test`
    held_out: Count | None = None
    punctuation: bool = False  # true: <COMMA> and the like become marks after the word; false: they are left out
    lower_case: bool = False  # converts the text to lower case; false: GigaSpeech's upper case
    max_seconds: Positive | None = None  # longer segments of train are left out; null: none

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("train", "dev", "test"):
            if getattr(self, option) is not None:
                check_choice(option, getattr(self, option), SUBSETS)

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """Read the splits train, dev and test.

        Raises ValueError for a damaged list (with the recording or segment), for missing recordings, and for splits
        without utterances.
        """
        home = find_home(root, f"{LIST} and audio/", LIST, "GigaSpeech")
        path = home / LIST
        splits = {"train": self.train} if self.held_out else {"train": self.train, "dev": self.dev, "test": self.test}
        subsets = {split: f"{{{subset}}}" for split, subset in splits.items() if subset is not None}
        rows = {split: _Rows(path) for split in subsets}
        reasons: dict[str, list[str]] = {}
        files: dict[str, str] = {}
        categories: set[str] = set()
        for audio in _audios(path):
            categories.add(audio.category)
            label = self._label(audio.category)
            if label is None:
                continue
            file = os.path.join(home, audio.path)
            for segment in audio.segments:
                wanted = [split for split, subset in subsets.items() if subset in segment.subsets]
                if not wanted:
                    continue
                seconds, text = segment.end - segment.begin, self._text(segment.text)
                if problem := self._problem(seconds, text, wanted):
                    reasons.setdefault(problem, []).append(segment.sid)
                    continue
                files[file] = audio.aid
                for split in wanted:
                    rows[split].add((segment.sid, file, segment.begin, seconds, audio.aid, text, label))
        self._check_categories(path, categories)
        _check_files(path, files, parallel)
        manifests = {split: found.manifest() for split, found in rows.items()}
        total = sum(map(len, manifests.values())) + sum(map(len, reasons.values()))
        leave_out(path, total, reasons)
        for split, manifest in manifests.items():
            if not len(manifest):
                raise ValueError(
                    f"{path}: no segment of {subsets[split]} is left for {split}: correct data.options, or {RESTORE}"
                )
        unique_ids(manifests)
        return cut(manifests["train"], self.held_out, seed, "speaker") if self.held_out else manifests

    def _label(self, category: str) -> str | None:
        """The label of a category; None if `categories` leaves it out."""
        if not self.categories:
            return category
        lowered = category.lower()
        return next((beginning for beginning in self.categories if lowered.startswith(beginning.lower())), None)

    def _check_categories(self, path: Path, found: Collection[str]) -> None:
        for beginning in self.categories:
            if not any(category.lower().startswith(beginning.lower()) for category in found):
                raise ValueError(
                    f"{path}: no category begins with {beginning!r}: correct data.options.categories; the categories "
                    f"are {', '.join(sorted(found)) or 'none'}"
                )

    def _problem(self, seconds: float, text: str | None, wanted: Sequence[str]) -> str | None:
        """Why a segment of this length and text is left out of the splits `wanted`; None if it is not."""
        if text is None:
            return "marked as music, noise, silence or other"
        if not text:
            return "without words"
        # Official dev and test sets are scored whole. Sets cut from train hold only segments that could train.
        if self.max_seconds is not None and seconds > self.max_seconds and "train" in wanted:
            return f"longer than {self.max_seconds} s"
        return None

    def _text(self, text: str) -> str | None:
        """The words of a segment; None if it is marked as garbage."""
        words = text.split()
        if "<" in text:
            if not GARBAGE.isdisjoint(words):
                return None
            if self.punctuation:
                text = " ".join(words)
                for tag, mark in PUNCTUATION.items():
                    text = text.replace(f" {tag}", mark)
                words = text.split()
            words = [word for word in words if word not in PUNCTUATION]
        text = " ".join(words)
        return text.lower() if self.lower_case else text


class Segment(NamedTuple):
    """A stretch of a recording, in seconds, with its transcript and its subsets in braces."""

    sid: str
    begin: float
    end: float
    text: str
    subsets: Sequence[str]


class Audio(NamedTuple):
    """A recording."""

    aid: str
    path: str  # relative to the folder of the list
    category: str  # "N/A" if the list has none
    segments: Iterator[Segment]


class _Rows:
    """The rows of a split. Most are kept in tables: as Python objects, eight million rows take many gigabytes."""

    def __init__(self, path: Path) -> None:
        self._path, self._rows, self._done = path, list[tuple[Any, ...]](), list[Manifest]()

    def add(self, row: tuple[Any, ...]) -> None:
        self._rows.append(row)
        if len(self._rows) == ROWS:
            self._flush()

    def manifest(self) -> Manifest:
        self._flush()
        done, self._done = self._done, []  # the tables are freed as soon as they are joined
        return Manifest.concat(done)

    def _flush(self) -> None:
        if self._rows:
            columns = dict(zip(COLUMNS, map(list, zip(*self._rows, strict=True)), strict=True))
            self._done.append(Manifest.from_columns(columns, str(self._path), columns["utterance"]))
            self._rows.clear()


def _check_files(path: Path, files: Mapping[str, str], parallel: Parallel) -> None:
    """Raise ValueError for recordings that are missing. `files`: file -> recording."""
    missing = find_missing(list(files), parallel)
    if missing:
        file, problem = next(iter(missing.items()))
        raise ValueError(
            f"{path}: {files[file]}: {file}: {problem}: download the recordings of the subsets in data.options "
            f"({len(missing):,} of {len(files):,} are missing)"
        )


def _audios(path: Path) -> Iterator[Audio]:
    """Yield the recordings of the list, one at a time. Raises ValueError with the recording or byte that is wrong."""
    try:
        import ijson
    except ImportError as error:
        raise ValueError('data.corpus gigaspeech needs ijson: pip install "fedray[gigaspeech]"') from error
    check_fetched(path)
    empty = True
    with path.open("rb") as file:
        try:
            for number, audio in enumerate(ijson.items(file, "audios.item", use_float=True, buf_size=READ)):
                yield _audio(audio, path, number)
                empty = False
        except (ijson.JSONError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"{path}: is not JSON, before byte {file.tell():,} ({reason}): {RESTORE}") from error
    if empty:
        raise ValueError(f"{path} has no recordings under the key audios: {RESTORE}")


def _audio(audio: Any, path: Path, number: int) -> Audio:
    where = f"{path}: audios[{number}]"
    if not isinstance(audio, dict):
        raise ValueError(f"{where} must be an object, not {audio!r:.100}: {RESTORE}")
    aid = _text_of(audio, "aid", where)
    where = f"{path}: {aid}"
    segments = audio.get("segments")
    if not isinstance(segments, list):
        raise ValueError(f"{where}: segments must be a list, not {segments!r:.100}: {RESTORE}")
    category = _text_of(audio, "category", where) if audio.get("category") else "N/A"
    return Audio(aid, _text_of(audio, "path", where), category, _segments(segments, where))


def _segments(segments: Sequence[Any], where: str) -> Iterator[Segment]:
    for number, segment in enumerate(segments):
        if not isinstance(segment, dict):
            raise ValueError(f"{where}: segments[{number}] must be an object, not {segment!r:.100}: {RESTORE}")
        sid = _text_of(segment, "sid", f"{where}: segments[{number}]")
        inside = f"{where}: {sid}"
        begin, end = (_seconds_of(segment, key, inside) for key in ("begin_time", "end_time"))
        subsets = segment.get("subsets")
        if not 0 <= begin < end < MOST_SECONDS:
            raise ValueError(
                f"{inside}: end_time must come after begin_time, and both be 0 or more, not {begin} and {end}: "
                f"{RESTORE}"
            )
        if not isinstance(subsets, list):
            raise ValueError(f"{inside}: subsets must be a list, not {subsets!r:.100}: {RESTORE}")
        yield Segment(sid, begin, end, _text_of(segment, "text_tn", inside), subsets)


def _text_of(item: Mapping[str, Any], key: str, where: str) -> str:
    value = item.get(key)
    if not isinstance(value, str) or unusable(value):
        raise ValueError(f"{where}: {key} must be text, not {value!r:.100}: {RESTORE}")
    return value


def _seconds_of(item: Mapping[str, Any], key: str, where: str) -> float:
    value = item.get(key)
    if not is_number(value):
        raise ValueError(f"{where}: {key} must be a number of seconds, not {value!r:.100}: {RESTORE}")
    return float(value)
