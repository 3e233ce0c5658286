"""Kaldi data folders: wav.scp, utt2spk, and where they are there text, segments and utt2dur."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedray.core.parallel import Parallel
from fedray.data.corpora.tsv import Listed, assemble, measure
from fedray.data.manifest import Manifest

Entries = dict[str, tuple[int, str]]  # key -> (line, rest of the line)


@dataclass(frozen=True)
class Kaldi(Listed):
    """train, dev and test name folders. Paths in wav.scp are absolute or relative to the root (Kaldi's working folder).

    Without segments an utterance is a whole recording. Pipes and archive positions in wav.scp are refused: convert the audio first.
    """

    text_file: str | None = "text"  # null: no transcripts
    label_file: str | None = None  # of lines "utterance label", like utt2spk

    def read_file(self, root: Path, path: Path, split: str, parallel: Parallel) -> dict[str, Manifest]:
        if not path.is_dir():
            raise ValueError(f"{path} is not a folder: a Kaldi data folder holds wav.scp, utt2spk and text")
        speakers = _entries(path / "utt2spk")
        recordings = _recordings(path / "wav.scp")
        segmented = (path / "segments").exists()
        source = path / ("segments" if segmented else "wav.scp")
        columns: dict[str, list | None] = {}
        if segmented:
            utterances, columns = _segments(source, recordings, root, parallel)
        else:
            utterances = recordings
            columns["path"] = [text for _, text in recordings.values()]
            if (path / "utt2dur").exists():
                columns["seconds"] = _matched(path / "utt2dur", utterances, source)
        columns |= {
            "utterance": list(utterances),
            "speaker": _matched(path / "utt2spk", utterances, source),
            "text": None if self.text_file is None else self.texts(_matched(path / self.text_file, utterances, source)),
            "label": None if self.label_file is None else _matched(path / self.label_file, utterances, source),
        }
        if extra := [name for name in speakers if name not in utterances]:
            raise ValueError(
                f"{path / 'utt2spk'}:{speakers[extra[0]][0]}: the utterance {extra[0]!r} is not in {source.name}; add or drop it"
            )
        return {split: assemble(source, [line for line, _ in utterances.values()], columns, root, parallel)}


def _entries(path: Path) -> Entries:
    if not path.is_file():
        raise ValueError(f"{path} is missing: a Kaldi data folder needs it")
    entries: Entries = {}
    with path.open(encoding="utf-8") as file:
        for line, text in enumerate(file, start=1):
            if not (fields := text.split(maxsplit=1)):
                continue
            key, rest = fields[0], fields[1].strip() if len(fields) == 2 else ""
            if key in entries:
                raise ValueError(f"{path}:{line}: {key!r} stands in line {entries[key][0]} already")
            entries[key] = (line, rest)
    return entries


def _recordings(path: Path) -> Entries:
    recordings = _entries(path)
    for name, (line, text) in recordings.items():
        if text.endswith("|") or text.startswith("|"):
            raise ValueError(f"{path}:{line}: {name!r} is a pipe ({text}): run it once, write a wav or flac file, and name that file here")
        if ".ark:" in text:
            raise ValueError(f"{path}:{line}: {name!r} is a position in an archive ({text}): write its audio to a wav or flac file")
    return recordings


def _segments(source: Path, recordings: Entries, root: Path, parallel: Parallel) -> tuple[Entries, dict[str, list | None]]:
    utterances = _entries(source)
    paths, starts, ends = [], [], []
    for line, text in utterances.values():
        fields = text.split()
        try:
            recording, start, end = fields[0], float(fields[1]), float(fields[2])
        except (IndexError, ValueError) as problem:
            raise ValueError(f"{source}:{line}: must read 'utterance recording start end', in seconds") from problem
        if recording not in recordings:
            raise ValueError(f"{source}:{line}: the recording {recording!r} is not in wav.scp: add it, or drop the segment")
        paths.append(str(root / recordings[recording][1]))
        starts.append(start)
        ends.append(end)
    if -1 in ends:  # Kaldi's way to say: to the end of the recording
        lengths = measure([path for path, end in zip(paths, ends, strict=True) if end == -1], True, parallel)
        for row, end in enumerate(ends):
            if end == -1 and not isinstance(length := lengths[paths[row]], str):
                ends[row] = length
    seconds = [round(end - start, 6) for start, end in zip(starts, ends, strict=True)]
    return utterances, {"path": paths, "offset": starts, "seconds": seconds}


def _matched(path: Path, utterances: Entries, source: Path) -> list[str]:
    """The values of a file for the utterances, in their order."""
    entries = _entries(path)
    for name, (line, _) in utterances.items():
        if name not in entries:
            raise ValueError(f"{path} has no line for {name!r} ({source.name}:{line}): add it, or drop the utterance everywhere")
        if not entries[name][1]:
            raise ValueError(f"{path}:{entries[name][0]}: nothing follows {name!r}: complete the line, or drop the utterance everywhere")
    return [entries[name][1] for name in utterances]
