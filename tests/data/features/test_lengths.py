"""The samples that are read are the samples that are there, or an error says what to do: formats in all ways."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from fedray.data.features import audio
from tests.data.features import ways
from tests.data.features.programs import PROGRAMS, Program

CODEC = 0.045  # seconds that codecs of libsndfile add: the last block is filled up
REMEDIES = ("`ffmpeg ", "`sox ", "again", "correct", "holds no samples", "cannot be read as audio")


def verdict(path: Path, wanted: float, tolerance: float, rate: int) -> str:
    """Read a file as a reader without lengths does, and to its end: "right", "refused", or what is wrong."""
    answers = []
    for seconds in (None, "measured"):
        try:
            length = None if seconds is None else audio.duration(path)
            read = len(audio.read(path, rate, 0.0, length)) / rate
            answers.append("right" if abs(read - wanted) <= tolerance else f"{read:.3f} s instead of {wanted:.3f}")
        except audio.AudioError as error:
            said = any(remedy in error.reason for remedy in REMEDIES) and str(path) in str(error)
            answers.append("refused" if said else f"no remedy: {error}")
    return next((answer for answer in answers if answer not in ("right", "refused")), max(answers))


def tried(path: Path, form: str, subtype: str) -> Iterator[tuple[str, str]]:
    """(way, verdict) for a format of libsndfile."""
    content, rate = ways.written(form, subtype), ways.RATES.get(form, ways.RATE)
    if content is None:
        return
    path.write_bytes(content)
    once = len(audio.read(path, rate)) / rate
    yield "codec", "right" if abs(once - ways.SECONDS) <= CODEC else f"{once:.3f} s"
    for way, data, times in ways.all_ways(content, round(ways.SECONDS * rate)):
        path = path.with_name(f"_{path.name}")  # by a file's size and time the reader knows what it has seen
        path.write_bytes(data)
        # A cut may fall anywhere into a block or page of a codec, and beside the header.
        yield way, verdict(path, times * once, 0.4 if way == "cut" else 0.02, rate)
        if way in ("whole", "joined"):
            yield f"segment, {way}", segment(path, (times - 1) * once, rate)


def segment(path: Path, start: float, rate: int) -> str:
    """Whether a segment holds the sound of its place, where the signal begins at `start`."""
    place, length = 0.5, 0.3
    found = audio.read(path, rate, start + place, length).numpy()
    signal = ways.signal(rate=rate)[round(place * rate) :][: len(found)]
    likeness = float(np.corrcoef(found, signal)[0, 1]) if len(found) == round(length * rate) else 0.0
    return "right" if likeness > 0.7 else f"likeness {likeness:.2f}"


@pytest.mark.parametrize(("form", "subtype"), ways.formats())
def test_a_format_of_libsndfile_in_all_ways(form: str, subtype: str, tmp_path: Path) -> None:
    verdicts = dict(tried(tmp_path / f"a.{form.lower()}", form, subtype))
    if not verdicts:
        pytest.skip("libsndfile does not write this")
    assert {way: said for way, said in verdicts.items() if said not in ("right", "refused")} == {}
    assert verdicts["whole"] == verdicts["segment, whole"] == verdicts["segment, joined"] == "right"


def of_program(program: Program, folder: Path) -> Iterator[tuple[str, str]]:
    """(way, verdict) for what a program writes."""
    source = folder / "in.wav"
    soundfile.write(source, ways.signal(), ways.RATE)
    contents = {"file": program.file(source, folder / "out"), "pipe": program.pipe(source)}
    path = folder / "a"
    for way, content in contents.items():
        for times in (1, 2):
            path.write_bytes(content * times)
            yield f"{way} x {times}", verdict(path, times * ways.SECONDS, times * program.pads, ways.RATE)
        path.write_bytes(content[: round(ways.KEPT * len(content))])
        yield f"{way}, cut", verdict(path, ways.KEPT * ways.SECONDS, 0.4, ways.RATE)
    path.write_bytes(contents["pipe"] + contents["file"])
    yield "pipe and file", verdict(path, 2 * ways.SECONDS, 2 * program.pads, ways.RATE)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_what_programs_write(program: Program, tmp_path: Path) -> None:
    if program.missing:
        pytest.skip(program.missing)
    verdicts = dict(of_program(program, tmp_path))
    assert {way: said for way, said in verdicts.items() if said not in ("right", "refused")} == {}
    assert verdicts["file x 1"] == verdicts["pipe x 1"] == "right"


def main(folder: Path) -> None:
    """Print how often each way was right, refused or wrong."""
    counts: Counter[tuple[str, str]] = Counter()
    found = [said for kind in ways.formats() for said in tried(folder / f"a.{kind[0].lower()}", *kind)]
    found += [said for program in PROGRAMS if not program.missing for said in of_program(program, folder)]
    for way, said in found:
        counts[way.partition(" at ")[0], said if said in ("right", "refused") else "wrong"] += 1
    for way in sorted({way for way, _ in counts}):
        print(f"{way:24}", *(f"{said} {counts[way, said]:5}" for said in ("right", "refused", "wrong")))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
