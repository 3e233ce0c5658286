"""Kaldi data folders: wav.scp, and usually utt2spk, text, segments and utt2dur."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedray.core.parallel import Parallel
from fedray.core.texts import opened
from fedray.data.corpora.assembly import WITHOUT_SPEAKERS, Column, assemble, measure, shapes
from fedray.data.corpora.formats.listed import Listed
from fedray.data.corpora.official.layout import leave_out
from fedray.data.corpora.skipping import SKIP, skips
from fedray.data.features.audio import UNMEASURED
from fedray.data.manifest import Manifest

Entries = dict[str, tuple[int, str]]  # key -> (line, rest of the line)


@dataclass(frozen=True)
class Kaldi(Listed):
    """train, dev and test name folders. Paths in wav.scp are absolute or relative to the root (Kaldi's working folder).

    Without segments, an utterance is a whole recording. Pipes and archive positions in wav.scp are rejected: convert
    such audio to files first.
    """

    speaker_file: str | None = "utt2spk"  # file of the speakers; null: unknown, each recording counts as a speaker
    text_file: str | None = "text"  # file of the transcripts in Kaldi's form; null: no transcripts
    label_file: str | None = None  # file of lines "utterance label", as utt2spk has them; null: no classes

    def read_file(self, root: Path, path: Path, split: str, parallel: Parallel) -> dict[str, Manifest]:
        if not path.is_dir():
            raise ValueError(f"{path} is not a folder: name a Kaldi data folder, which holds wav.scp, utt2spk and text")
        recordings = _recordings(path / "wav.scp")
        segmented = (path / "segments").exists()
        source = path / ("segments" if segmented else "wav.scp")
        columns: dict[str, Column | None] = {}
        if segmented:
            utterances, columns = _segments(source, recordings, root, parallel)
        else:
            utterances = recordings
            columns["path"] = [text for _, text in recordings.values()]
            if (path / "utt2dur").exists():
                columns["seconds"] = _matched(path / "utt2dur", utterances, source)
        texts = None if self.text_file is None else _matched(path / self.text_file, utterances, source)
        columns |= {
            "utterance": list(utterances),
            "speaker": None if self.speaker_file is None else _speakers(path / self.speaker_file, utterances, source),
            "text": self.texts(texts),
            "label": None if self.label_file is None else _matched(path / self.label_file, utterances, source),
        }
        return {split: assemble(source, [line for line, _ in utterances.values()], columns, root, parallel)}


def _entries(path: Path) -> Entries:
    if not path.is_file():
        raise ValueError(f"{path} is missing: a Kaldi data folder needs it")
    entries: Entries = {}
    with opened(path) as file:
        for line, text in enumerate(file, start=1):
            if not (fields := text.split(maxsplit=1)):
                continue
            key, rest = fields[0], fields[1].strip() if len(fields) == 2 else ""
            if key in entries:
                raise ValueError(f"{path}:{line}: {key!r} is already in line {entries[key][0]}: drop one of the two")
            entries[key] = (line, rest)
    return entries


def _recordings(path: Path) -> Entries:
    recordings = _entries(path)
    for name, (line, text) in recordings.items():
        if text.endswith("|") or text.startswith("|"):
            remedy = "run the pipe once, write a wav or flac file, and name that file here"
            raise ValueError(f"{path}:{line}: {name!r} is a pipe ({text}): {remedy}")
        if ".ark:" in text:
            remedy = "write its audio to a wav or flac file, and name that file here"
            raise ValueError(f"{path}:{line}: {name!r} is a position in an archive ({text}): {remedy}")
    return recordings


def _segments(
    source: Path, recordings: Entries, root: Path, parallel: Parallel
) -> tuple[Entries, dict[str, Column | None]]:
    utterances = _entries(source)
    paths, starts, ends = [], [], []
    channels: dict[str, tuple[int, str]] = {}  # recording -> a line that names a channel of it, and the channel
    for line, text in utterances.values():
        fields = text.split()
        try:
            recording, start, end = fields[0], float(fields[1]), float(fields[2])
        except (IndexError, ValueError) as problem:
            raise ValueError(
                f"{source}:{line}: the line must read 'utterance recording start end', in seconds"
            ) from problem
        if recording not in recordings:
            raise ValueError(
                f"{source}:{line}: the recording {recording!r} is not in wav.scp: add it there, or drop the segment"
            )
        paths.append(str(root / recordings[recording][1]))
        if len(fields) > 3:
            channels.setdefault(paths[-1], (line, fields[3]))
        starts.append(start)
        ends.append(end)
    headers, _ = shapes(list(channels), parallel)
    if several := [path for path, header in headers.items() if header.channels > 1]:
        line, channel = channels[several[0]]
        raise ValueError(
            f"{source}:{line}: {several[0]} has several channels, which fedray would average: save channel {channel} "
            "to a file of its own, and name that file in wav.scp"
        )

    lengths: dict[str, float] = {}
    broken: dict[str, str] = {}
    if -1 in ends:  # in Kaldi, -1 means the end of the recording
        lengths, broken = measure([path for path, end in zip(paths, ends, strict=True) if end == -1], parallel)
        for (line, _), path in zip(utterances.values(), paths, strict=True):
            if path in broken and not skips():
                raise ValueError(
                    f"{source}:{line}: {path}: {broken[path]}: repair the file, or drop the segment; paths in wav.scp "
                    f"are relative to data.root. Or {SKIP}"
                )
    seconds = [
        UNMEASURED if end == -1 and path in broken else round((lengths[path] if end == -1 else end) - start, 6)
        for path, start, end in zip(paths, starts, ends, strict=True)
    ]
    return utterances, {"path": paths, "offset": starts, "seconds": seconds}


def _speakers(path: Path, utterances: Entries, source: Path) -> list[str]:
    """The utterances' speakers. An utterance that only utt2spk names is an error."""
    if not path.is_file():
        raise ValueError(f"{path} is missing: add it, or set speaker_file in data.options to null. {WITHOUT_SPEAKERS}")
    for name, (line, _) in _entries(path).items():
        if name not in utterances:
            raise ValueError(
                f"{path}:{line}: the utterance {name!r} is not in {source.name}: add it there, or drop the line"
            )
    return _matched(path, utterances, source)


def _matched(path: Path, utterances: Entries, source: Path) -> list[str]:
    """The file's values for the utterances, in the order of the utterances. Warns of further lines, left out."""
    entries = _entries(path)
    leave_out(path, len(entries), {f"not in {source.name}": entries.keys() - utterances.keys()})
    for name, (line, _) in utterances.items():
        if name not in entries:
            where = f"{source.name}:{line}"
            raise ValueError(
                f"{path} has no line for {name!r} ({where}): add one, or drop the utterance from all files"
            )
        if not entries[name][1]:
            where = f"{path}:{entries[name][0]}"
            raise ValueError(
                f"{where}: nothing follows {name!r}: complete the line, or drop the utterance from all files"
            )
    return [entries[name][1] for name in utterances]
