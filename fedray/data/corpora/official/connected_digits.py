"""Connected digits: strings of digits, joined from the recordings of the Free Spoken Digit Dataset."""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import soundfile

from fedray.core.parallel import Parallel
from fedray.core.ranges import Amount, Count, Natural, Ranged
from fedray.core.seeds import numpy_generator
from fedray.data.corpora.formats.tsv import Tsv
from fedray.data.corpora.official.digit_strings import add_noise, equalise, join, reverberate, warp_voice
from fedray.data.corpora.official.fsdd import RATE, WORDS, Takes, check_disjoint, choose_takes, recordings
from fedray.data.features import audio
from fedray.data.manifest import Manifest
from fedray.storage.cache import cached, key

SHARD = 200  # strings in a work item
CODE = ("connected_digits.py", "digit_strings.py", "fsdd.py")  # a change to any of these makes new files
Range = tuple[float, float]


@dataclass(frozen=True)
class ConnectedDigits(Ranged):
    """Strings of digits: random recordings of one speaker, joined with pauses. The text is "three one four".

    `server`       strings by the server's speakers
    `clients`      the takes of each other speaker are dealt to `clients_per_speaker` clients ("theo#2"); the client is
                   the speaker and the label
    `dev`, `test`  strings by the same clients, from other takes
    `test-server`  strings by the server's speakers, from test takes

    A speaker can be on both sides if server_takes and client_takes do not overlap. Names seed all draws: the bits do
    not depend on the number of processes.
    """

    # speakers of `server` and `test-server`
    server_speakers: list[str] = field(default_factory=lambda: ["george", "jackson", "lucas"])
    client_speakers: list[str] = field(default_factory=list)  # speakers of `clients`; []: all others
    clients_per_speaker: Count = 4  # clients that share the takes of one speaker
    server_takes: tuple[int, int] = (10, 49)  # ranges include both ends
    client_takes: tuple[int, int] = (10, 49)  # takes of `clients`
    dev_takes: tuple[int, int] = (5, 9)  # takes of `dev`
    test_takes: tuple[int, int] = (0, 4)  # takes of `test`: the official test set; to tune settings, use other takes
    server_strings: Natural = 1500  # strings in `server`, shared by its speakers
    client_strings: Count = 60  # strings of each client in `clients`
    dev_strings: Natural = 120  # strings in `dev`
    test_strings: Natural = 300  # strings in `test`, and in `test-server`
    digits: tuple[int, int] = (3, 7)  # digits of a string, fewest and most
    pause: Range = (0.05, 0.3)  # seconds, before, between and after digits
    augment_server: bool = True  # change each string of `server` once, by the next four settings
    warp: Range = (0.84, 1.2)  # factor on formants and pitch; above 1: as in a shorter vocal tract
    tempo: Range = (0.8, 1.25)  # factor on the speed; above 1: faster
    equaliser: Amount = 6.0  # dB, the largest gain or loss at each of seven frequencies
    server_snr: Range = (8.0, 40.0)  # dB, white noise
    rooms: bool = False  # true: each client has a room and noise, in clients, dev and test
    t60: Range = (0.25, 0.6)  # seconds, reverberation time
    client_snr: Range = (5.0, 20.0)  # dB, white noise

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """Read the splits named above that have strings: 16-bit FLAC files below `cache`, made on first use.

        Raises ValueError for impossible settings and missing recordings.
        """
        self.check()
        sources = self._sources(recordings(root), seed)
        used = sorted({path for source in sources for paths in source.takes.values() for path in paths})
        files = [(Path(path).name, Path(path).stat()) for path in used]
        parts = {
            "settings": asdict(self),
            "seed": seed,
            "recordings": [[name, status.st_size, status.st_mtime_ns] for name, status in files],
            "code": [Path(__file__).with_name(name).read_text(encoding="utf-8") for name in CODE],
        }
        build = functools.partial(self._build, sources=sources, seed=seed, parallel=parallel)
        folder = cached(Path(cache) / f"connected-digits-{key(parts)}", build)
        table = Tsv(
            train=["strings.tsv"],
            id_column="utterance",
            text_column="text",
            label_column="speaker",
            split_column="split",
            split_names={name: name for name in ("server", "clients", "test-server")},
        )
        return table.read(folder, seed, cache, parallel)

    def check(self) -> None:
        """Raise ValueError for impossible settings."""
        lowest = {
            "digits": 1,
            "pause": 0,
            "warp": 0.5,
            "tempo": 0.5,
            "t60": 0.01,
            "server_snr": -100,
            "client_snr": -100,
        }
        for name, least in lowest.items():
            low, high = getattr(self, name)
            if not least <= low <= high:
                raise ValueError(
                    f"data.options.{name} must be a range (lowest, highest) from {least} upwards, not [{low}, {high}]"
                )
        if self.clients_per_speaker < 1:
            raise ValueError(f"data.options.clients_per_speaker must be at least 1, not {self.clients_per_speaker}")
        if self.equaliser < 0:
            raise ValueError(f"data.options.equaliser must be at least 0 dB, not {self.equaliser}")
        if set(self.client_speakers) & set(self.server_speakers):
            check_disjoint({"server_takes": self.server_takes, "client_takes": self.client_takes})
        held_out = {"test_takes": self.test_takes} | ({"dev_takes": self.dev_takes} if self.dev_strings else {})
        for name in ("server_takes", "client_takes"):
            check_disjoint(held_out | {name: getattr(self, name)})

    def _sources(self, speakers: Mapping[str, Takes], seed: int) -> list[Source]:
        others = self.client_speakers or [name for name in speakers if name not in self.server_speakers]
        for name in (*self.server_speakers, *others):
            if name not in speakers:
                known = ", ".join(speakers)
                remedy = "correct server_speakers and client_speakers in data.options"
                raise ValueError(f"the recordings have no speaker {name!r}, only {known}: {remedy}")
        if not self.server_speakers or not others:
            side = "clients" if self.server_speakers else "server"
            raise ValueError(
                f"data.options: there is no speaker for the {side}: correct server_speakers and client_speakers"
            )
        clients = [(name, f"{name}#{number}") for name in others for number in range(1, self.clients_per_speaker + 1)]
        servers = [(name, name) for name in self.server_speakers]
        sources = self._clients(clients, speakers, seed)
        for split, talkers, takes_range, strings in (
            ("server", servers, self.server_takes, self.server_strings),
            ("dev", clients, self.dev_takes, self.dev_strings),
            ("test", clients, self.test_takes, self.test_strings),
            ("test-server", servers, self.test_takes, self.test_strings),
        ):
            for position, (name, talker) in enumerate(talkers):
                share = len(range(position, strings, len(talkers)))
                sources.append(Source(split, talker, choose_takes(speakers, name, takes_range), share))
        return [
            replace(source, first=start, count=min(SHARD, source.count - start))
            for source in sources
            for start in range(0, source.count, SHARD)
        ]

    def _clients(self, clients: Sequence[tuple[str, str]], speakers: Mapping[str, Takes], seed: int) -> list[Source]:
        """The training strings of every client, from the takes dealt to it."""
        sources = []
        for position, (name, client) in enumerate(clients):
            takes = sorted(choose_takes(speakers, name, self.client_takes))
            if len(takes) < self.clients_per_speaker:
                raise ValueError(
                    f"data.options.clients_per_speaker: {name} has {len(takes)} takes, "
                    f"too few for {self.clients_per_speaker} clients: lower it"
                )
            shuffled = numpy_generator(seed, "connected digits", "takes", name).permutation(takes)
            dealt = sorted(shuffled[position % self.clients_per_speaker :: self.clients_per_speaker].tolist())
            sources.append(
                Source("clients", client, {take: speakers[name][take] for take in dealt}, self.client_strings)
            )
        return sources

    def _build(self, folder: Path, sources: Sequence[Source], seed: int, parallel: Parallel) -> None:
        build = functools.partial(_build_strings, settings=self, seed=seed, folder=folder)
        with (folder / "strings.tsv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE)
            writer.writerow(("utterance", "path", "seconds", "speaker", "text", "split", "recordings"))
            for rows in parallel(build, sources, "Joining digits"):
                writer.writerows(rows)


@dataclass(frozen=True)
class Source:
    """The strings `first` to `first + count - 1` of a talker in a split, and the takes to join them from."""

    split: str
    talker: str
    takes: Takes
    count: int
    first: int = 0


def _build_strings(source: Source, settings: ConnectedDigits, seed: int, folder: Path) -> list[tuple[str, ...]]:
    """Write the strings of a source. Returns their rows of strings.tsv, with the names of the joined recordings."""
    takes = sorted(source.takes)
    sounds = {
        take: [audio.read(path, RATE).numpy().astype(np.float64) for path in source.takes[take]] for take in takes
    }
    rows: list[tuple[str, ...]] = []
    for index in range(source.first, source.first + source.count):
        generator = numpy_generator(seed, "connected digits", source.split, source.talker, index)
        digits = generator.integers(10, size=generator.integers(*settings.digits, endpoint=True))
        chosen = [(takes[generator.integers(len(takes))], digit) for digit in digits]
        signal = join([sounds[take][digit] for take, digit in chosen], settings.pause, generator)
        if source.split == "server" and settings.augment_server:
            signal = warp_voice(signal, generator.uniform(*settings.warp), generator.uniform(*settings.tempo))
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
        joined = " ".join(Path(source.takes[take][digit]).stem for take, digit in chosen)
        rows.append((utterance, path, repr(len(samples) / RATE), source.talker, words, source.split, joined))
    return rows
