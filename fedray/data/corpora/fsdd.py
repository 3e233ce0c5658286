"""The Free Spoken Digit Dataset (Jackson et al.; six speakers, 50 takes of every digit, 8 kHz): single digits, and strings of them."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import scipy.fft
import scipy.signal
import soundfile

from fedray.core.cache import cached, key
from fedray.core.parallel import Parallel
from fedray.core.seeds import numpy_generator
from fedray.data import audio
from fedray.data.corpora.tsv import Tsv, assemble, corpus_root
from fedray.data.manifest import Manifest

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RATE = 8000  # Hz, the corpus' own
HOP, SEARCH = 128, 80  # samples: pieces of 32 ms are laid every 16 ms, each moved by up to 10 ms to where it fits
SHARD = 200  # strings a task
Takes = dict[int, list[str]]  # take -> the paths of its ten digits
Range = tuple[float, float]


@dataclass(frozen=True)
class Fsdd:
    """Single digits, the word being both text and label. Takes (recordings of a digit by a speaker, 0-49) are ranges, ends included."""

    test_takes: tuple[int, int] = (0, 4)  # the official test set
    dev_takes: tuple[int, int] = (5, 9)  # all others train

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """The splits "train", "dev" and "test". Raises ValueError for names that are not `digit_speaker_take`."""
        held_out = {"test": self.test_takes, "dev": self.dev_takes}
        _disjoint(held_out)
        rows: dict[str, list[tuple[str, ...]]] = {"train": [], "dev": [], "test": []}
        for speaker, takes in recordings(root).items():
            for take, paths in takes.items():
                split = next((name for name, (first, last) in held_out.items() if first <= take <= last), "train")
                rows[split] += [(Path(path).stem, path, speaker, word, word) for path, word in zip(paths, WORDS, strict=True)]
        splits = {}
        for split, part in rows.items():
            if not part:
                raise ValueError(f"{root}: no recording is left for {split}: correct test_takes and dev_takes in data.options")
            columns = dict(zip(("utterance", "path", "speaker", "text", "label"), zip(*part, strict=True), strict=True))
            splits[split] = assemble(Path(root or ""), columns["utterance"], columns, Path(), parallel)
        return splits


@dataclass(frozen=True)
class ConnectedDigits:
    """Strings of digits: recordings of one speaker, drawn at random, joined with pauses; text is "three one four".

    `server`: strings by the server's speakers. `clients`: each speaker's takes are dealt to `clients_per_speaker` clients ("theo#2"), which
    is what speaker and label say. `dev` and `test`: strings by the same clients from other takes; `test-server`: by the server's speakers.
    A speaker may be on both sides if server_takes and client_takes do not overlap. All is drawn by name from the seed: the same bits for
    any number of processes.
    """

    server_speakers: list[str] = field(default_factory=lambda: ["george", "jackson", "lucas"])
    client_speakers: list[str] = field(default_factory=list)  # empty: all others
    clients_per_speaker: int = 4
    server_takes: tuple[int, int] = (10, 49)  # ranges, ends included
    client_takes: tuple[int, int] = (10, 49)
    dev_takes: tuple[int, int] = (5, 9)
    test_takes: tuple[int, int] = (0, 4)  # the official test set; to choose settings, take others
    server_strings: int = 1500
    client_strings: int = 60  # of each client
    dev_strings: int = 120
    test_strings: int = 300  # and as many in test-server
    digits: tuple[int, int] = (3, 7)
    pause: Range = (0.05, 0.3)  # seconds, before, between and after digits
    augment_server: bool = True  # each string of `server` once, by what the next four lines say
    warp: Range = (0.84, 1.2)  # formants and pitch, as a shorter vocal tract has them
    tempo: Range = (0.8, 1.25)
    equaliser: float = 6.0  # dB up or down at most, at each of seven frequencies
    server_snr: Range = (8.0, 40.0)  # dB, white noise
    rooms: bool = False  # clients, dev and test are heard in a room of each client's own, and noise
    t60: Range = (0.25, 0.6)  # seconds
    client_snr: Range = (5.0, 20.0)  # dB, white noise

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """The splits named above, those without strings left out; 16-bit FLAC below `cache`, made on first use. Raises ValueError for
        settings that cannot be and recordings that are missing."""
        self.check()
        speakers = recordings(root)
        sources = self._sources(speakers, seed)
        used = sorted({path for source in sources for paths in source.takes.values() for path in paths})
        parts = {
            "settings": asdict(self),
            "seed": seed,
            "recordings": [[Path(path).name, (status := Path(path).stat()).st_size, status.st_mtime_ns] for path in used],
            "code": Path(__file__).read_text(encoding="utf-8"),
        }
        build = functools.partial(self._build, sources=sources, seed=seed, parallel=parallel)
        folder = cached(Path(cache) / f"connected-digits-{key(parts)}", build)
        ours = {name: name for name in ("server", "clients", "test-server")}
        return Tsv(
            train=["strings.tsv"], id_column="utterance", text_column="text", label_column="speaker", split_column="split", split_names=ours
        ).read(folder, seed, cache, parallel)

    def check(self) -> None:
        lowest = {"digits": 1, "pause": 0, "warp": 0.5, "tempo": 0.5, "t60": 0.01, "server_snr": -100, "client_snr": -100}
        for name, least in lowest.items():
            low, high = getattr(self, name)
            if not least <= low <= high:
                raise ValueError(f"{name} must be a range (lowest, highest) from {least} upwards, not [{low}, {high}]")
        if self.clients_per_speaker < 1 or self.equaliser < 0:
            raise ValueError("clients_per_speaker must be at least 1, and equaliser at least 0 dB")
        if set(self.client_speakers) & set(self.server_speakers):
            _disjoint({"server_takes": self.server_takes, "client_takes": self.client_takes})
        held_out = {"test_takes": self.test_takes} | ({"dev_takes": self.dev_takes} if self.dev_strings else {})
        for name in ("server_takes", "client_takes"):
            _disjoint(held_out | {name: getattr(self, name)})

    def _sources(self, speakers: dict[str, Takes], seed: int) -> list[Source]:
        others = self.client_speakers or [name for name in speakers if name not in self.server_speakers]
        for name in (*self.server_speakers, *others):
            if name not in speakers:
                raise ValueError(f"there is no speaker {name!r} among the recordings, only {', '.join(speakers)}: correct data.options")
        if not self.server_speakers or not others:
            raise ValueError("the server and the clients need a speaker each: correct server_speakers and client_speakers in data.options")
        sources: list[Source] = []
        clients = [(name, f"{name}#{number}") for name in others for number in range(1, self.clients_per_speaker + 1)]
        for position, (name, client) in enumerate(clients):
            takes = sorted(_chosen(speakers, name, self.client_takes))
            if len(takes) < self.clients_per_speaker:
                raise ValueError(
                    f"{name} has {len(takes)} takes, too few for {self.clients_per_speaker} clients: lower clients_per_speaker"
                )
            dealt = numpy_generator(seed, "connected digits", "takes", name).permutation(takes)
            own = sorted(dealt[position % self.clients_per_speaker :: self.clients_per_speaker].tolist())
            sources.append(Source("clients", client, {take: speakers[name][take] for take in own}, self.client_strings))
        servers = [(name, name) for name in self.server_speakers]
        for split, talkers, takes_range, strings in (
            ("server", servers, self.server_takes, self.server_strings),
            ("dev", clients, self.dev_takes, self.dev_strings),
            ("test", clients, self.test_takes, self.test_strings),
            ("test-server", servers, self.test_takes, self.test_strings),
        ):
            for position, (name, talker) in enumerate(talkers):
                share = len(range(position, strings, len(talkers)))
                sources.append(Source(split, talker, _chosen(speakers, name, takes_range), share))
        return [
            replace(source, first=start, count=min(SHARD, source.count - start))
            for source in sources
            for start in range(0, source.count, SHARD)
        ]

    def _build(self, folder: Path, sources: Sequence[Source], seed: int, parallel: Parallel) -> None:
        build = functools.partial(_build_strings, settings=self, seed=seed, folder=folder)
        with (folder / "strings.tsv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE)
            writer.writerow(("utterance", "path", "seconds", "speaker", "text", "split", "recordings"))
            for rows in parallel(build, sources, "Joining digits"):
                writer.writerows(rows)


@dataclass(frozen=True)
class Source:
    """Strings `first` to `first + count - 1` of a talker in a split, and the takes that they are joined from."""

    split: str
    talker: str
    takes: Takes
    count: int
    first: int = 0


def recordings(root: Path | None) -> dict[str, Takes]:
    """Speaker -> take -> paths of the digits 0 to 9, from `recordings/{digit}_{speaker}_{take}.wav` (or .flac); ValueError for gaps."""
    folder = corpus_root(root, "recordings/, or the recordings themselves (0_jackson_0.wav, ...)")
    folder = folder / "recordings" if (folder / "recordings").is_dir() else folder
    found: dict[tuple[str, int], dict[int, str]] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".wav", ".flac"):
            continue
        name = re.fullmatch(r"(\d)_([^_]+)_(\d+)", path.stem)
        if name is None:
            raise ValueError(f"{path}: must be named digit_speaker_take, as 7_jackson_32.wav: rename or remove it")
        digits = found.setdefault((name[2], int(name[3])), {})
        if int(name[1]) in digits:
            raise ValueError(f"{path}: the same recording is there as {Path(digits[int(name[1])]).name}: remove one")
        digits[int(name[1])] = str(path)
    if not found:
        raise ValueError(f"{folder} holds no recordings (0_jackson_0.wav, ...): correct data.root")
    speakers: dict[str, Takes] = {}
    for (speaker, take), digits in sorted(found.items()):
        if missing := [f"{digit}_{speaker}_{take}" for digit in range(10) if digit not in digits]:
            raise ValueError(f"{folder}: {', '.join(missing)} are missing: fetch them, or remove take {take} of {speaker}")
        speakers.setdefault(speaker, {})[take] = [digits[digit] for digit in range(10)]
    return speakers


def change_tempo(signal: np.ndarray, rate: float) -> np.ndarray:
    """`rate` times as fast, pitch and formants kept: WSOLA (Verhelst and Roelands, 1993)."""
    window = scipy.signal.get_window("hann", 2 * HOP)
    padded = np.pad(signal, (SEARCH, SEARCH + 3 * HOP))
    length = round(len(signal) / rate)
    total, place = np.zeros(length + 2 * HOP), SEARCH
    for start in range(0, length, HOP):
        region = padded[round(start * rate) :][: 2 * (SEARCH + HOP)]
        if start:  # the piece most like what would have come next
            likeness = np.correlate(region, padded[place + HOP : place + 3 * HOP])
            likeness /= np.sqrt(np.correlate(np.square(region), np.ones(2 * HOP)) + 1e-12)
            place = round(start * rate) + int(np.argmax(likeness))
        total[start : start + 2 * HOP] += window * padded[place : place + 2 * HOP]
    return total[:length]


def equalise(signal: np.ndarray, gains: np.ndarray) -> np.ndarray:
    """Gains in dB at frequencies evenly spaced in octaves from 100 to 4000 Hz, straight lines between them, no phase."""
    size = scipy.fft.next_fast_len(len(signal), real=True)
    octaves = np.log2(np.maximum(scipy.fft.rfftfreq(size, 1 / RATE), 1))
    curve = np.interp(octaves, np.linspace(np.log2(100), np.log2(RATE / 2), len(gains)), gains)
    return scipy.fft.irfft(scipy.fft.rfft(signal, size) * 10 ** (curve / 20), size)[: len(signal)]


def reverberate(signal: np.ndarray, t60: float, generator: np.random.Generator) -> np.ndarray:
    """Heard in a room: the direct sound, and a tail of noise of the same energy that falls by 60 dB in `t60` seconds."""
    samples = round(t60 * RATE)
    tail = generator.standard_normal(samples) * 10 ** (-3 * np.arange(samples) / samples)
    tail /= np.sqrt(np.square(tail).sum())
    return scipy.signal.fftconvolve(signal, np.concatenate([[1.0], tail]))[: len(signal)]


def add_noise(signal: np.ndarray, snr: float, generator: np.random.Generator) -> np.ndarray:
    """White noise `snr` dB below the mean power of the whole signal."""
    level = np.sqrt(np.mean(np.square(signal)) / 10 ** (snr / 10))
    return signal + level * generator.standard_normal(len(signal))


def _build_strings(source: Source, settings: ConnectedDigits, seed: int, folder: Path) -> list[tuple[str, ...]]:
    """Writes the strings of a source; returns their rows of strings.tsv, which also names the recordings of each."""
    takes = sorted(source.takes)
    sounds = {take: [audio.read(path, RATE).numpy().astype(np.float64) for path in source.takes[take]] for take in takes}
    rows = []
    for index in range(source.first, source.first + source.count):
        generator = numpy_generator(seed, "connected digits", source.split, source.talker, index)
        digits = generator.integers(10, size=generator.integers(*settings.digits, endpoint=True))
        chosen = [(takes[generator.integers(len(takes))], digit) for digit in digits]
        signal = _join([sounds[take][digit] for take, digit in chosen], settings.pause, generator)
        if source.split == "server" and settings.augment_server:
            warp, tempo = generator.uniform(*settings.warp), generator.uniform(*settings.tempo)
            # Played `warp` times as fast, to the nearest hundredth; then the tempo is brought from there to where it should be.
            hundredths = round(100 * warp)
            signal = change_tempo(scipy.signal.resample_poly(signal, 100, hundredths), 100 * tempo / hundredths)
            signal = equalise(signal, generator.uniform(-settings.equaliser, settings.equaliser, 7))
            signal = add_noise(signal, generator.uniform(*settings.server_snr), generator)
        if settings.rooms and source.split in ("clients", "dev", "test"):
            room = numpy_generator(seed, "connected digits", "room", source.talker)
            signal = reverberate(signal, room.uniform(*settings.t60), room)
            signal = add_noise(signal, generator.uniform(*settings.client_snr), generator)
        utterance = f"{source.split}-{source.talker}-{index:05d}"
        path = f"{utterance}.flac"
        samples = np.rint(signal * (0.7 * 32767 / np.abs(signal).max())).astype(np.int16)
        soundfile.write(folder / path, samples, RATE, subtype="PCM_16")
        words = " ".join(WORDS[digit] for digit in digits)
        recordings = " ".join(Path(source.takes[take][digit]).stem for take, digit in chosen)
        rows.append((utterance, path, repr(len(samples) / RATE), source.talker, words, source.split, recordings))
    return rows


def _join(sounds: list[np.ndarray], pause: Range, generator: np.random.Generator) -> np.ndarray:
    """The recordings with pauses around them. Pauses hold noise as faint as the quietest 20 ms of the recordings: digital silence,
    which no microphone knows, would stand out in log-mels."""
    loudness = np.sqrt(np.mean(np.square(np.concatenate(sounds))))
    quiet = min(np.sqrt(np.mean(np.square(part))) for sound in sounds for part in np.array_split(sound, max(1, len(sound) // (RATE // 50))))
    level = max(quiet, loudness / 1000)
    pauses = [level * generator.standard_normal(round(generator.uniform(*pause) * RATE)) for _ in range(len(sounds) + 1)]
    return np.concatenate([piece for pair in zip(pauses, [*sounds, pauses[-1][:0]], strict=True) for piece in pair])


def _chosen(speakers: dict[str, Takes], name: str, takes: tuple[int, int]) -> Takes:
    chosen = {take: paths for take, paths in speakers[name].items() if takes[0] <= take <= takes[1]}
    if not chosen:
        raise ValueError(
            f"{name} has no takes {takes[0]} to {takes[1]}, only {min(speakers[name])} to {max(speakers[name])}: correct data.options"
        )
    return chosen


def _disjoint(ranges: dict[str, tuple[int, int]]) -> None:
    """Raises ValueError when two ranges of takes overlap: a recording would be on both sides."""
    named = sorted(ranges.items(), key=lambda item: item[1])
    for (name, (low, high)), (next_name, (next_low, _)) in zip(named, [*named[1:], ("", (10**9, 10**9))], strict=True):
        if low > high:
            raise ValueError(f"{name} must be a range of takes (first, last), not [{low}, {high}]")
        if high >= next_low:
            raise ValueError(
                f"{name} and {next_name} overlap at take {next_low}: give each its own, or the same recordings are on both sides"
            )
