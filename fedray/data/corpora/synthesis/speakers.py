"""Speakers and their rooms. Names seed all draws, so adding or removing a speaker leaves the others unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedray.core import seeds

# espeak-ng's accents of each language, the most common first
ACCENTS: Mapping[str, tuple[str, ...]] = {
    "en": ("en-us", "en", "en-gb-x-rp", "en-us-nyc", "en-gb-scotland", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-029"),
    "fr": ("fr", "fr-be", "fr-ch"),
    "it": ("it",),
    "es": ("es", "es-419"),
    "de": ("de",),
    "ru": ("ru", "ru-lv"),
}
# espeak-ng's variants, except those that whisper, croak, drawl or imitate machines
VARIANTS = (
    *("Alex", "Alicia", "Andrea", "Andy", "Annie", "Denis", "Diogo", "Gene", "Gene2", "Henrique", "Hugo"),
    *("Jacky", "Lee", "Mario", "Michael", "Mike", "Nguyen", "Storm", "anika", "antonio", "aunty"),
    *("belinda", "boris", "ed", "f1", "f2", "f3", "f4", "f5", "grandma", "grandpa", "gustave"),
    *("ian", "iven2", "iven3", "iven4", "john", "kaukovalta", "linda", "m1", "m2", "m3", "m4"),
    *("m5", "m6", "m7", "m8", "marcelo", "max", "michel", "miguel", "norbert", "pablo", "paul"),
    *("pedro", "quincy", "rob", "robert", "shelby", "steph", "steph2", "steph3", "travis", "victor", "zac"),
)
BANDS = (125, 250, 500, 1000, 2000, 4000, 8000)  # Hz, the equaliser's centre frequencies
NOISES = ("white", "pink", "babble")
LOUDEST = 100  # dB, the largest ratio of two sounds


@dataclass(frozen=True)
class Conditions:
    """How speakers sound and where they are, which makes the corpus easy or hard. Two numbers are a range."""

    accents: int = 0  # how many of the language's accents, the most common first; 0: all
    words_per_minute: list[int] = field(default_factory=lambda: [130, 180])  # espeak-ng's speed, drawn for each speaker
    warp: list[float] = field(
        default_factory=lambda: [0.9, 1.12]
    )  # above 1: a shorter vocal tract with higher formants
    equaliser: float = 4.0  # dB, the largest gain or loss of a band
    t60: list[float] = field(default_factory=lambda: [0.25, 0.6])  # s, reverberation time; [0, 0]: no room
    direct: list[float] = field(
        default_factory=lambda: [10.0, 16.0]
    )  # dB, energy of the direct sound over that of the reverberation
    snr: list[float] = field(default_factory=lambda: [5.0, 20.0])  # dB, drawn for every utterance
    snr_within: float | None = None  # dB, largest distance from the speaker's SNR, which is in `snr`; null: no limit
    # kinds of background noise: each speaker has one of them
    noises: list[str] = field(default_factory=lambda: list(NOISES))

    def check(self, key: str) -> None:
        """Raise ValueError for the first impossible value; `key` is the setting that holds these conditions."""
        for name in ("words_per_minute", "warp", "t60", "direct", "snr"):
            ends = getattr(self, name)
            if len(ends) != 2 or ends[0] > ends[1]:
                raise ValueError(f"{key}.{name}: give the two ends of a range, the lower end first, not {ends}")
        for name in ("snr", "direct"):
            low, high = getattr(self, name)
            if low < -LOUDEST or high > LOUDEST:
                raise ValueError(f"{key}.{name}: give dB from -{LOUDEST} to {LOUDEST}, not {[low, high]}")
        if not 0 <= self.equaliser <= LOUDEST:
            raise ValueError(f"{key}.equaliser: give dB from 0 to {LOUDEST}, not {self.equaliser}")
        if self.accents < 0:
            raise ValueError(f"{key}.accents: give the number of accents, or 0 for all, not {self.accents}")
        if self.words_per_minute[0] < 80 or self.words_per_minute[1] > 400:
            raise ValueError(
                f"{key}.words_per_minute: choose from espeak-ng's 80 to 400 words a minute, not {self.words_per_minute}"
            )
        if self.warp[0] < 0.8 or self.warp[1] > 1.25:
            raise ValueError(f"{key}.warp: choose from 0.8 to 1.25, the range of human vocal tracts, not {self.warp}")
        if self.snr_within is not None and self.snr_within < 0:
            raise ValueError(f"{key}.snr_within: give 0 dB or more, or null, not {self.snr_within}")
        if self.t60[0] < 0 or self.t60[1] > 3:
            raise ValueError(f"{key}.t60: give seconds from 0 to 3, not {self.t60}")
        if not self.noises or not set(self.noises) <= set(NOISES):
            raise ValueError(f"{key}.noises: choose from {', '.join(NOISES)}, not {self.noises}")


def clean() -> Conditions:
    """Conditions of a quiet studio and a mild channel."""
    return Conditions(accents=2, equaliser=2.0, t60=[0.0, 0.0], snr=[20.0, 40.0], noises=["white", "pink"])


@dataclass(frozen=True)
class Place:
    """The room, microphone and noise around a speaker or another source of sound."""

    equaliser: tuple[float, ...]  # dB, one for each band in BANDS
    t60: float
    direct: float
    noise: str
    snr: tuple[float, float]


@dataclass(frozen=True)
class Speaker:
    """A synthetic speaker: a voice of espeak-ng, how it is changed, and where it is recorded."""

    id: str
    language: str
    voice: str
    rate: int  # words a minute before the warp
    pitch: int
    pitch_range: int
    warp: float
    place: Place
    seed: int
    domain: str | None = None  # the domain of the texts; None: the language's commands

    @property
    def names(self) -> tuple[int, str, str]:
        """The names that seed the speaker's generators."""
        return self.seed, "speaker", self.id

    @property
    def dialect(self) -> str:
        return self.voice.partition("+")[0]


def draw(
    id: str, language: str, conditions: Conditions, seed: int, dialect: str | None = None, domain: str | None = None
) -> Speaker:
    """A random speaker; `dialect` replaces the drawn accent."""
    generator = seeds.numpy_generator(seed, "speaker", id)
    accent = _one_of(ACCENTS[language][: conditions.accents or None], generator)
    variant = _one_of(VARIANTS, generator)
    warp = _between(conditions.warp, generator)
    return Speaker(
        id=id,
        language=language,
        voice=f"{dialect or accent}+{variant}",
        rate=round(
            _between(conditions.words_per_minute, generator) / warp
        ),  # the warp speeds speech up by the same factor
        pitch=int(generator.integers(20, 81)),
        pitch_range=int(generator.integers(20, 81)),
        warp=warp,
        place=draw_place(conditions, generator),
        seed=seed,
        domain=domain,
    )


def draw_place(conditions: Conditions, generator: np.random.Generator) -> Place:
    """A random place. `snr_within` is drawn last: setting it changes no other draw."""
    place = Place(
        equaliser=tuple(
            np.round(generator.uniform(-conditions.equaliser, conditions.equaliser, len(BANDS)), 2).tolist()
        ),
        t60=_between(conditions.t60, generator),
        direct=_between(conditions.direct, generator),
        noise=_one_of(conditions.noises, generator),
        snr=(conditions.snr[0], conditions.snr[1]),
    )
    if conditions.snr_within is None:
        return place
    middle = _between(place.snr, generator)
    return replace(place, snr=(middle - conditions.snr_within, middle + conditions.snr_within))


def _between(ends: Sequence[float], generator: np.random.Generator) -> float:
    return float(generator.uniform(ends[0], ends[1]))


def _one_of(choices: Sequence[str], generator: np.random.Generator) -> str:
    return choices[int(generator.integers(len(choices)))]
