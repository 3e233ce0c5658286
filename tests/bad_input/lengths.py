"""Audio whose header, samples and manifest differ in length is refused by name, in words that tell which is wrong."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import soundfile

from fedray.data.features.streams import mpeg
from tests.bad_input.audio import MEASURED, WHOLE, flac, wav
from tests.bad_input.case import ACCEPTED, Case
from tests.bad_input.corpus import CLIENTS, CONFIG, RATE, both, put, sound
from tests.bad_input.tables import kaldi

SECONDS = 2.0
ONE = "  clients: {by: iid, count: 1}\n"  # of a corpus without speakers
FORMATS = {  # those whose end is found in another way each
    "WAV": ("PCM_16", "FLOAT", "IMA_ADPCM", "MS_ADPCM", "GSM610"),
    **dict.fromkeys(("AIFF", "AU", "CAF", "W64", "RF64", "NIST", "FLAC", "SDS"), ("PCM_16",)),
    "OGG": ("VORBIS", "OPUS"),
    "MP3": ("MPEG_LAYER_III",),
}


def stated(seconds: float) -> Callable[[Path], object]:
    """The clients' table, which says that a0.wav has this length."""
    return put("clients.tsv", CLIENTS.replace("0.2", str(seconds), 1))


def long(form: str = "WAV", subtype: str = "PCM_16", rate: int = RATE) -> bytes:
    return sound(SECONDS, rate, subtype, form)


def refused(name: str, content: bytes, *says: str, seconds: float = SECONDS, data: bool = True) -> Case:
    make = both(stated(seconds), put("a0.wav", content))
    return Case(f"lengths: {name}", ("a0.wav", *says), make, data=data)


@functools.cache
def variable() -> bytes:
    """An mp3 of variable bit rate: two loud seconds, then two quiet ones."""
    noise = np.random.default_rng(0).standard_normal(int(4 * RATE)) * np.repeat([0.3, 1e-4], 2 * RATE)
    file = io.BytesIO()
    with soundfile.SoundFile(
        file, "w", RATE, 1, "MPEG_LAYER_III", format="MP3", bitrate_mode="VARIABLE", compression_level=0.5
    ) as sound_file:
        sound_file.write(noise)
    return file.getvalue()


def from_a_pipe() -> bytes:
    """The same without its first frame, the Xing frame, which is written last."""
    content = variable()
    return content[mpeg.LENGTHS[content[1] << 8 | content[2]] :]


def with_count(change: Callable[[int], int]) -> bytes:
    """An mp3 with another number of frames in its Xing frame."""
    content = variable()
    place = max(content.find(b"Xing"), content.find(b"Info")) + 8
    count = change(int.from_bytes(content[place : place + 4], "big"))
    return content[:place] + count.to_bytes(4, "big") + content[place + 4 :]


def by_libsndfile(content: bytes) -> float:
    """The length of an mp3 that its first frame suggests."""
    return round(soundfile.info(io.BytesIO(content)).duration, 3)


def cell(value: bytes | None) -> Callable[[Path], object]:
    """A dataset of Hugging Face whose first cell of audio is this."""
    file = io.BytesIO()
    rows = {"audio": [{"bytes": each, "path": None} for each in (value, WHOLE)], "text": ["one", "two"]}
    pq.write_table(pa.table(rows), file)
    text = CONFIG.replace("corpus: tsv", "corpus: huggingface").replace("[server.tsv]", "[]")
    text = text.replace("clients: [clients.tsv]", "clients: [train]")
    return both(
        put("train-00000-of-00001.parquet", file.getvalue()),
        put("config.yaml", text.replace("  options:\n", f"{ONE}  options:\n")),
    )


def folder(content: bytes) -> Callable[[Path], object]:
    """Folders of two classes; the first file is this."""

    def write(home: Path) -> None:
        for place, sound_file in ((home / "in" / "yes" / "a0.wav", content), (home / "in" / "no" / "b0.wav", WHOLE)):
            place.parent.mkdir(parents=True)
            place.write_bytes(sound_file)
        text = CONFIG.replace("corpus: tsv", "corpus: folders").replace("    server: [server.tsv]\n", "")
        text = text.replace("    clients: [clients.tsv]\n", "    classes: ['yes', 'no']\n    words: true\n")
        text = text.replace("    text_column: text\n", "").replace("  options:\n", f"{ONE}  options:\n")
        text = text.replace("root: .\n", "root: in\n")
        (home / "config.yaml").write_text(text, encoding="utf-8")

    return write


def skipping(make: Callable[[Path], object]) -> Callable[[Path], object]:
    """The same with data.skip_broken."""

    def write(folder: Path) -> None:
        make(folder)
        config = folder / "config.yaml"
        config.write_text(config.read_text("utf-8").replace("data:\n", "data:\n  skip_broken: true\n"), "utf-8")

    return write


def measured(name: str, make: Callable[[Path], object], *says: str) -> tuple[Case, ...]:
    """Two cases: the reader refuses what it cannot measure; with data.skip_broken it is left out and named."""
    return (
        Case(f"lengths: {name}", (*says, "data.skip_broken=true"), make, data=True),
        Case(f"lengths: {name}, data.skip_broken", ACCEPTED, skipping(make), status=1),
    )


def cut(form: str, subtype: str) -> bytes:
    rate = 48000 if subtype == "OPUS" else RATE
    content = long(form, subtype, rate)
    return content[: len(content) // 2]


CASES: tuple[Case, ...] = (
    *(
        refused(f"{form} {subtype}, cut in the middle", cut(form, subtype), "again" if form != "SDS" else "sox")
        for form, subtypes in FORMATS.items()
        for subtype in subtypes
    ),
    refused("a whole wav that the table calls longer", long(), "correct the length in the manifest", seconds=3.0),
    refused("a whole mp3 that the table calls longer", variable(), "correct the length in the manifest", seconds=9.0),
    refused(
        "an mp3 from a pipe that the table calls as short as its first frame suggests",
        from_a_pipe(),
        "and so does the manifest",
        "ffmpeg -i IN -c copy OUT",
        seconds=by_libsndfile(from_a_pipe()),
    ),
    refused("an mp3 that promises twice its frames", with_count(lambda count: 2 * count), "-c copy", seconds=4.0),
    refused(
        "an mp3 that counts half of its frames, as does the table",
        with_count(lambda count: count // 2),
        "and so does the manifest",
        seconds=2.0,
    ),
    refused("an mp3 from a pipe, cut in a frame", from_a_pipe()[:-99], "its last frame is incomplete", seconds=4.0),
    refused("two mp3 joined, and the length of the first", 2 * variable(), "so does the manifest", "sox", seconds=4.0),
    refused("two FLAC joined, and the length of one", 2 * long("FLAC"), "so does the manifest", data=False),
    refused("two Ogg joined, and the length of one", 2 * long("OGG", "VORBIS"), "so does the manifest"),
    refused("two wav joined that differ in rate", long() + long(rate=8000), "8,000 and 16,000 Hz", "sox"),
    refused("two wav joined that differ in channels", long() + wav(bytes(64000), channels=2), "channels", "sox"),
    refused(
        "two mp3 joined that differ in rate", variable() + long("MP3", "MPEG_LAYER_III", 24000), "24,000 Hz", "sox"
    ),
    refused("two Ogg joined that differ in rate", long("OGG", "VORBIS") + long("OGG", "VORBIS", 8000), "8,000", "sox"),
    *(
        refused(
            f"{form} that was cut, joined to a whole one", cut(form, kind) + long(form, kind), "a0.wav", seconds=4.0
        )
        for form, kind in (("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("CAF", "PCM_16"))
    ),
    refused("a FLAC that promises twice its samples", flac(2 * 3200), "promises", seconds=0.4),
    refused("a wav with a foreign end", long() + bytes(range(1, 256)) * 40, "10,200 bytes follow", "ffmpeg"),
    refused("a MAT4 file that counts other samples", long("MAT4").replace(b"\0\x7d\0\0", b"\0\x3e\0\0", 1), "sox"),
    *measured("no samples, to be measured", both(MEASURED, put("a0.wav", wav(b""))), "a0.wav", "holds no samples"),
    *measured("a wav cut, to be measured", both(MEASURED, put("a0.wav", cut("WAV", "PCM_16"))), "a0.wav", "promises"),
    *measured("an empty cell of a dataset", cell(None), "row 0", "holds no audio"),
    *measured("a broken cell of a dataset", cell(b"no audio"), "row 0", "cannot be read as audio"),
    *measured("a cell of a dataset without bytes", cell(b""), "row 0", "cannot be read as audio"),
    *measured("a cell of a dataset that was cut", cell(cut("FLAC", "PCM_16")), "row 0", "truncated"),
    *measured("a folder with a file that was cut", folder(cut("AIFF", "PCM_16")), "a0.wav", "promises"),
    *measured("a folder with a file without samples", folder(wav(b"")), "a0.wav", "holds no samples"),
    *measured("a folder with a Git LFS stub", folder(b"version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"),
    *measured("Kaldi without utt2dur, cut", both(kaldi, put("a0.wav", cut("WAV", "PCM_16"))), "a0.wav", "promises"),
)
