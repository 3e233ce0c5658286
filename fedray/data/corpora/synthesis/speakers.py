"""Who speaks, and where: every draw is by the speaker's name, so nobody changes when others come or go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fedray.core import seeds

# espeak-ng's accents of each language, the most usual first
ACCENTS: Mapping[str, tuple[str, ...]] = {
    "en": ("en-us", "en", "en-gb-x-rp", "en-us-nyc", "en-gb-scotland", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-029"),
    "fr": ("fr", "fr-be", "fr-ch"),
    "it": ("it",),
    "es": ("es", "es-419"),
    "de": ("de",),
    "ru": ("ru", "ru-lv"),
}
# espeak-ng's variants less those that whisper, croak, drawl or imitate machines
VARIANTS = (
    *("Alex", "Alicia", "Andrea", "Andy", "Annie", "Denis", "Diogo", "Gene", "Gene2", "Henrique", "Hugo"),
    *("Jacky", "Lee", "Mario", "Michael", "Mike", "Nguyen", "Storm", "anika", "antonio", "aunty"),
    *("belinda", "boris", "ed", "f1", "f2", "f3", "f4", "f5", "grandma", "grandpa", "gustave"),
    *("ian", "iven2", "iven3", "iven4", "john", "kaukovalta", "linda", "m1", "m2", "m3", "m4"),
    *("m5", "m6", "m7", "m8", "marcelo", "max", "michel", "miguel", "norbert", "pablo", "paul"),
    *("pedro", "quincy", "rob", "robert", "shelby", "steph", "steph2", "steph3", "travis", "victor", "zac"),
)
BANDS = (125, 250, 500, 1000, 2000, 4000, 8000)  # Hz, of the equaliser
NOISES = ("white", "pink", "babble")


@dataclass(frozen=True)
class Conditions:
    """How speakers sound and where they are; two numbers are the ends of a range. The difficulty of the corpus is in here."""

    accents: int = 0  # how many of the language's accents, the most usual first; 0: all
    words_per_minute: list[int] = field(default_factory=lambda: [130, 180])
    warp: list[float] = field(default_factory=lambda: [0.9, 1.12])  # above 1: a shorter vocal tract, so higher formants
    equaliser: float = 4.0  # dB, the largest gain or loss of each of the seven bands
    t60: list[float] = field(default_factory=lambda: [0.25, 0.6])  # s, the room's reverberation time; [0, 0]: no room
    direct: list[float] = field(default_factory=lambda: [10.0, 16.0])  # dB, energy of the direct sound over that of the room's answer
    snr: list[float] = field(default_factory=lambda: [5.0, 20.0])  # dB, drawn anew for every utterance
    snr_within: float | None = None  # dB: a speaker has an SNR of his own in `snr`, and his utterances are so near to it; null: anywhere
    noises: list[str] = field(default_factory=lambda: list(NOISES))

    def check(self, key: str) -> None:
        """Raise ValueError, naming the key under `key`, for values that make no sense."""
        for name in ("words_per_minute", "warp", "t60", "direct", "snr"):
            ends = getattr(self, name)
            if len(ends) != 2 or ends[0] > ends[1]:
                raise ValueError(f"{key}.{name}: write the two ends of a range, the lower one first, not {ends}")
        if self.accents < 0:
            raise ValueError(f"{key}.accents: give the number of accents, or 0 for all, not {self.accents}")
        if self.words_per_minute[0] < 80 or self.words_per_minute[1] > 400:
            raise ValueError(f"{key}.words_per_minute: espeak-ng speaks 80 to 400 words a minute, not {self.words_per_minute}")
        if self.warp[0] < 0.8 or self.warp[1] > 1.25:
            raise ValueError(f"{key}.warp: human vocal tracts stay within 0.8 and 1.25, not {self.warp}")
        if self.snr_within is not None and self.snr_within < 0:
            raise ValueError(f"{key}.snr_within: give dB of 0 or more, or null, not {self.snr_within}")
        if self.t60[0] < 0 or self.t60[1] > 3:
            raise ValueError(f"{key}.t60: give seconds between 0 and 3, not {self.t60}")
        if not self.noises or not set(self.noises) <= set(NOISES):
            raise ValueError(f"{key}.noises: choose from {', '.join(NOISES)}, not {self.noises}")


def clean() -> Conditions:
    """A quiet studio and a mild channel."""
    return Conditions(accents=2, equaliser=2.0, t60=[0.0, 0.0], snr=[20.0, 40.0], noises=["white", "pink"])


@dataclass(frozen=True)
class Place:
    """Where a speaker or another source of sound is heard: room, microphone and noise."""

    equaliser: tuple[float, ...]  # dB at BANDS
    t60: float
    direct: float
    noise: str
    snr: tuple[float, float]


@dataclass(frozen=True)
class Speaker:
    id: str
    language: str
    voice: str
    rate: int  # words a minute before the warp
    pitch: int
    pitch_range: int
    warp: float
    place: Place
    seed: int
    domain: str | None = None  # what is talked about; null: the commands of the language

    @property
    def names(self) -> tuple[int, str, str]:
        """What the speaker's generators are named after."""
        return self.seed, "speaker", self.id

    @property
    def dialect(self) -> str:
        return self.voice.partition("+")[0]


def draw(id: str, language: str, conditions: Conditions, seed: int, dialect: str | None = None, domain: str | None = None) -> Speaker:
    """`dialect`: an accent instead of a drawn one."""
    generator = seeds.numpy_generator(seed, "speaker", id)
    accent = _one_of(ACCENTS[language][: conditions.accents or None], generator)
    variant = _one_of(VARIANTS, generator)
    warp = float(generator.uniform(*conditions.warp))
    return Speaker(
        id=id,
        language=language,
        voice=f"{dialect or accent}+{variant}",
        rate=round(float(generator.uniform(*conditions.words_per_minute)) / warp),  # the warp makes speech faster by as much
        pitch=int(generator.integers(20, 81)),
        pitch_range=int(generator.integers(20, 81)),
        warp=warp,
        place=draw_place(conditions, generator),
        seed=seed,
        domain=domain,
    )


def draw_place(conditions: Conditions, generator: np.random.Generator) -> Place:
    place = Place(
        equaliser=tuple(np.round(generator.uniform(-conditions.equaliser, conditions.equaliser, len(BANDS)), 2).tolist()),
        t60=float(generator.uniform(*conditions.t60)),
        direct=float(generator.uniform(*conditions.direct)),
        noise=_one_of(conditions.noises, generator),
        snr=(conditions.snr[0], conditions.snr[1]),
    )
    if conditions.snr_within is None:
        return place
    own = float(generator.uniform(*place.snr))  # drawn last: places without it stay as they are
    return replace(place, snr=(own - conditions.snr_within, own + conditions.snr_within))


def _one_of(choices: list[str] | tuple[str, ...], generator: np.random.Generator) -> str:
    return choices[int(generator.integers(len(choices)))]
