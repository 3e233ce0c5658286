"""Ten city sounds, the classes of UrbanSound8K (Salamon et al., 2014): models of the sources, not recordings.

A source stands for one recording (a Freesound id in UrbanSound8K). Its slices share the horn, dog or engine, the
background and the microphone. Therefore all slices of a source belong in one split, and the source is the `speaker`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedray.core import seeds
from fedray.data.corpora.synthesis.rooms import GRID, SAMPLE_RATE
from fedray.data.corpora.synthesis.sounds import (
    add,
    bands,
    drift,
    envelope,
    falling,
    gain,
    noise,
    ringing,
    struck,
    tone,
    unit,
    voiced,
)  # fmt: skip
from fedray.data.corpora.synthesis.speakers import Conditions, Place, draw_place

Generator = np.random.Generator
LONGEST = 4.0  # s, the longest slice
BEHIND = (-22.0, -4.0)  # dB, level of a second sound in the background
ACCOMPANIED = 0.6  # share of sources with a second sound in the background


@dataclass(frozen=True)
class Source:
    """One recording: `event` at a place, with or without another event in the background."""

    id: str
    event: str
    place: Place
    behind: str | None
    distance: float  # dB, level of `behind` relative to the event
    seed: int

    @property
    def names(self) -> tuple[int, str, str]:
        """The names that seed the source's generators."""
        return self.seed, "source", self.id


def draw(id: str, event: str, conditions: Conditions, seed: int) -> Source:
    """A random source of `event`."""
    generator = seeds.numpy_generator(seed, "source", id)
    place = draw_place(conditions, generator)
    accompanied, other = generator.random() < ACCOMPANIED, EVENTS[int(generator.integers(len(EVENTS)))]
    behind = other if accompanied and other != event else None
    return Source(id, event, place, behind, float(generator.uniform(*BEHIND)), seed)


def slice_of(source: Source, position: int) -> np.ndarray:
    """A slice without room or noise: float32 [samples] at 16 kHz, up to 4 s. Other slices do not change the draws."""
    take = seeds.numpy_generator(*source.names, "take", position)
    shortest, whole = LENGTHS.get(source.event, USUAL)
    seconds = LONGEST if take.random() < whole else take.uniform(shortest, LONGEST)
    samples = int(seconds * SAMPLE_RATE) // GRID * GRID
    sound = unit(SOUNDS[source.event](samples, seeds.numpy_generator(*source.names, "habits"), take))
    if source.behind is not None:
        far = SOUNDS[source.behind](samples, seeds.numpy_generator(*source.names, "habits behind"), take)
        sound = sound + unit(far) * gain(source.distance)
    return sound


# Each sound takes two generators. `who` gives every slice of a source the same draws (the dog), `take` differs between
# slices (the barks). All draws from `who` come first, so they depend on no draw from `take`.


def air_conditioner(samples: int, who: Generator, take: Generator) -> np.ndarray:
    """Rushing air, the hum of a fan, and a slow beat."""
    corner, slope, hum = who.uniform(80, 500), who.uniform(0.8, 1.6), who.uniform(45, 190)
    level, depth, beat = who.uniform(-18, -2), who.uniform(0.02, 0.3), who.uniform(0.3, 7)
    harmonics = who.uniform(0.1, 1, 12) / np.arange(1, 13)
    motor = tone(hum * (1 + drift(samples, 1, 0.003, take)), samples, harmonics, take.random())
    times = np.arange(samples, dtype=np.float32) / SAMPLE_RATE
    swell = 1 + np.float32(depth) * np.sin(np.float32(2 * np.pi * beat) * times + np.float32(take.uniform(0, 6.3)))
    return (noise(samples, falling(corner, slope), take) + motor * gain(level)) * swell


def car_horn(samples: int, who: Generator, take: Generator) -> np.ndarray:
    """Two reeds, up to a fourth apart, blown once or several times, above traffic."""
    low, interval = who.uniform(280, 520), (1.0, 1.19, 1.26, 1.33)[int(who.integers(4))]
    bright, peak, traffic = who.uniform(0.1, 0.7), who.uniform(1200, 3200), who.uniform(-26, -6)
    signal = noise(samples, falling(200, 1.2), take) * gain(traffic)
    start, end = take.uniform(0, 0.5), samples / SAMPLE_RATE
    while start < end:
        length = take.uniform(0.12, 0.5) if take.random() < 0.6 else take.uniform(0.5, 2.0)
        part = envelope(length, 0.015, 0.05)
        # A reed reaches its pitch after a moment.
        bend = 1 + 0.02 * np.minimum(np.arange(len(part)) / (0.03 * SAMPLE_RATE), 1) - 0.02
        for pitch in sorted({low, low * interval}):
            harmonics = np.arange(1, 25) ** -bright * bands([peak], 1.3)(
                np.float32(pitch) * np.arange(1, 25, dtype=np.float32)
            )
            add(signal, tone(pitch * bend, len(part), harmonics, take.random()) * part, start)
        start += length + (take.uniform(0.06, 0.3) if take.random() < 0.7 else take.uniform(0.3, 2.0))
    return signal


def children_playing(samples: int, who: Generator, take: Generator) -> np.ndarray:
    """Near and far shouts above the murmur of a crowd."""
    crowd, high, murmur = who.uniform(1.5, 6), who.uniform(260, 420), who.uniform(-16, -4)
    signal = noise(samples, bands([500, 1400, 2800], 0.5), take) * gain(murmur)
    signal *= 10 ** (drift(samples, 5, 5, take) / 20)
    end = samples / SAMPLE_RATE
    for _ in range(max(int(take.poisson(crowd * end)), 2)):
        length, start = take.uniform(0.12, 0.9), take.uniform(-0.1, end - 0.1)
        pitch = high * take.uniform(0.85, 1.9)
        part = np.hanning(max(int(length * SAMPLE_RATE), 2)).astype(np.float32) ** np.float32(0.6)
        melody = np.interp(np.linspace(0, 3, len(part)), range(4), pitch * (1 + take.normal(0, 0.15, 4)).clip(0.6, 1.6))
        formants = [take.uniform(500, 1100), take.uniform(1500, 2800), 3600]
        add(signal, tone(melody, len(part), voiced(pitch, formants)) * part * gain(-take.exponential(7)), max(start, 0))
    return signal


def dog_bark(samples: int, who: Generator, take: Generator) -> np.ndarray:
    """Groups of barks, half tone and half noise, with rising and falling pitch."""
    pitch, length, pause = np.exp(who.uniform(np.log(220), np.log(950))), who.uniform(0.07, 0.2), who.uniform(0.12, 0.5)
    rough, formants = who.uniform(-10, 2), [who.uniform(600, 1300), who.uniform(1500, 2800)]
    signal = np.zeros(samples, np.float32)
    start, end = take.uniform(0, 0.4), samples / SAMPLE_RATE
    while start < end:
        lasts, tuned = length * take.uniform(0.8, 1.3), pitch * take.uniform(0.9, 1.1)
        part = envelope(lasts, 0.008, 0.7 * lasts)
        course = tuned * np.interp(np.linspace(0, 1, len(part)), [0, 0.3, 1], [0.75, 1.1, 0.7])
        bark = tone(course, len(part), voiced(tuned, formants)) + noise(len(part), bands(formants, 0.5), take) * gain(
            rough
        )
        add(signal, bark * part * gain(take.uniform(-6, 0)), start)
        start += lasts + (pause * take.uniform(0.8, 1.3) if take.random() < 0.75 else take.uniform(0.6, 1.8))
    return signal


def drilling(samples: int, who: Generator, take: Generator) -> np.ndarray:
    """The whine of a motor and its gears, slower under load, the hiss of the cut, and for some drills a hammer."""
    turns, gears, hiss = who.uniform(70, 260), int(who.integers(5, 16)), who.uniform(-8, 6)
    cut, hammer, rate = [who.uniform(1500, 5500)], who.random() < 0.4, who.uniform(35, 60)
    harmonics = who.uniform(0.2, 1, 40) * np.arange(1, 41) ** -0.5
    harmonics[gears - 1 :: gears] *= 3
    pressed = np.repeat(take.uniform(0.82, 1.05, 3), 2)  # three loads with short transitions
    load = np.interp(np.arange(samples) / samples, [0, 0.32, 0.345, 0.65, 0.675, 1], pressed)
    speed = turns * load * (1 + drift(samples, 12, 0.01, take))
    signal: np.ndarray = tone(speed, samples, harmonics) + noise(samples, bands(cut, 0.9), take) * gain(hiss)
    if hammer:
        beats = np.cumsum(rate * (1 + drift(samples, 8, 0.02, take))) / SAMPLE_RATE
        signal *= 1 - np.float32(0.8) * (beats % 1).astype(np.float32)
    if take.random() < 0.4:  # the drill starts or stops within the slice
        running = envelope(samples / SAMPLE_RATE * take.uniform(0.5, 0.9), 0.15, 0.3)
        signal = np.pad(signal[: len(running)] * running, (0, samples - len(running)))
        signal = signal + noise(samples, falling(300, 1), take) * gain(-25)
        signal = signal if take.random() < 0.5 else signal[::-1]
    return np.ascontiguousarray(signal)


def engine_idling(samples: int, who: Generator, take: Generator) -> np.ndarray:
    """Slow, uneven explosions in a heavy body, and the hiss of belts and fan."""
    rate, uneven, hiss = who.uniform(10, 32), who.uniform(0.02, 0.12), who.uniform(-16, -3)
    modes, decays = who.uniform([45, 90, 180, 350, 700], [90, 180, 350, 700, 1600]), who.uniform(0.006, 0.04, 5)
    gains = 10 ** (who.uniform([-3, -6, -10, -16, -24], [0, 0, -3, -6, -10]) / 20)
    corner, cylinders = who.uniform(150, 700), who.normal(0, 2.5, 4)
    gaps = take.normal(1, uneven, int(samples / SAMPLE_RATE * rate * 1.3) + 8).clip(0.3)
    times = np.cumsum(gaps / (rate * take.uniform(0.96, 1.04)))
    strengths = 10 ** ((np.resize(cylinders, len(times)) + take.normal(0, 1.5, len(times))) / 20)
    blows = unit(struck(times - 0.2, strengths, ringing(modes, gains, decays), samples))
    return blows + noise(samples, falling(corner, 1.1), take) * gain(hiss)


def gun_shot(samples: int, who: Generator, take: Generator) -> np.ndarray:
    """A crack, a decaying boom, and their echo; a single shot, a few shots, or a burst."""
    crack, boom, body = who.uniform(0.003, 0.015), who.uniform(0.05, 0.3), who.uniform(-14, 0)
    echo, far, automatic, rate = who.uniform(0.08, 0.6), who.uniform(-22, -8), who.random() < 0.3, who.uniform(7, 13)
    corner, air = who.uniform(250, 1200), who.uniform(-55, -32)
    times = np.arange(int(1.2 * SAMPLE_RATE), dtype=np.float32) / SAMPLE_RATE
    shot = noise(len(times), falling(5000, 1), take) * np.exp(-times / np.float32(crack))
    shot += noise(len(times), falling(corner, 1.5), take) * np.exp(-times / np.float32(boom)) * gain(body)
    add(shot, shot[: len(shot) // 2] * gain(far), echo)
    start = take.uniform(0.02, 0.3)
    if automatic:
        at = start + np.arange(int(take.integers(3, 12))) / rate
    else:
        at = start + np.cumsum(np.r_[0, take.uniform(0.35, 2.0, int(take.integers(0, 3)))])
    shots = struck(at, 10 ** (take.uniform(-3, 0, len(at)) / 20), shot, samples)
    return shots + noise(samples, falling(200, 1), take) * gain(air)


def jackhammer(samples: int, who: Generator, take: Generator) -> np.ndarray:
    """Blows on stone, ten to thirty a second, the ring of the chisel, and a compressor in the background."""
    rate, splash, compressor = who.uniform(9, 30), who.uniform(0.003, 0.015), who.uniform(-20, -5)
    modes, decays = np.exp(who.uniform(np.log(250), np.log(5000), 7)), who.uniform(0.003, 0.02, 7)
    gains, dust = who.uniform(0.2, 1, 7), who.uniform(1.0, 4.0)
    ring = unit(ringing(modes, gains, decays))
    times = np.arange(int(8 * splash * SAMPLE_RATE), dtype=np.float32) / SAMPLE_RATE
    burst = unit(noise(len(times), falling(4000, 1), take) * np.exp(-times / np.float32(splash))) * np.float32(dust)
    ring[: len(burst)] += burst[: len(ring)]
    pauses = take.random() < 0.4
    gaps = take.normal(1, 0.03, int(samples / SAMPLE_RATE * rate * 1.2) + 4)
    at = np.cumsum(gaps / (rate * take.uniform(0.93, 1.07)))
    blows = unit(struck(at - 0.1, 10 ** (take.normal(0, 1.2, len(at)) / 20), ring, samples))
    if pauses:  # the worker lifts the hammer
        silent = take.uniform(0.1, 0.7) * samples
        blows[int(silent) : int(silent + take.uniform(0.2, 0.9) * SAMPLE_RATE)] *= np.float32(0.02)
    return blows + engine_idling(samples, who, take) * gain(compressor)


def siren(samples: int, who: Generator, take: Generator) -> np.ndarray:
    """A wail, a yelp or two alternating tones, gliding as the car passes, above traffic."""
    style, low, high = int(who.integers(3)), who.uniform(400, 750), who.uniform(1.5, 2.7)
    rate = (who.uniform(0.12, 0.4), who.uniform(2.2, 4.5), who.uniform(0.5, 1.0))[style]
    harmonics, traffic = np.arange(1, 13) ** -who.uniform(0.6, 2.0), who.uniform(-24, -3)
    phase = rate * np.arange(samples) / SAMPLE_RATE + take.random()
    glide = high ** (0.5 - 0.5 * np.cos(2 * np.pi * phase))
    course = low * (np.where(phase % 1 < 0.5, 1.0, 1.335) if style == 2 else glide)
    passing = np.interp(np.arange(samples), [0, samples], 1 + take.normal(0, 0.03, 2))
    loudness = 10 ** (drift(samples, 0.7, 3, take) / 20)
    signal = tone(course * passing, samples, harmonics) * loudness
    return signal + noise(samples, falling(200, 1.2), take) * gain(traffic)


def street_music(samples: int, who: Generator, take: Generator) -> np.ndarray:
    """A plucked or blown tune over chords, with or without a drum, and people in the background."""
    beat, root, decay = 60 / who.uniform(70, 150), who.uniform(110, 260), who.uniform(0.15, 0.9)
    harmonics, held = np.arange(1, 21) ** -who.uniform(0.7, 2.2), who.random() < 0.4
    drum, people, minor = who.random() < 0.4, who.uniform(-24, -6), who.random() < 0.5
    scale = np.array([0, 2, 3, 5, 7, 8, 10] if minor else [0, 2, 4, 5, 7, 9, 11])
    skin = ringing(who.uniform([60, 150, 300], [110, 250, 500]), np.array([1.0, 0.6, 0.4]), who.uniform(0.02, 0.12, 3))
    signal = noise(samples, bands([500, 1500], 0.8), take) * gain(people)
    ends, shift = samples / SAMPLE_RATE, -take.uniform(0, beat)
    degree, chord = int(take.integers(7)), int(take.integers(7))
    for step in range(int((ends - shift) / (beat / 2)) + 1):
        start = shift + step * beat / 2
        degree = int(np.clip(degree + take.integers(-2, 3), 0, 13))
        notes = [degree + 7] if take.random() < 0.75 else []
        if step % 4 == 0:
            chord = int(take.integers(7))
            notes += [chord, chord + 2, chord + 4]
        for note in notes if start >= 0 else []:
            length = 2 * beat if note < 7 else beat * take.uniform(0.4, 1.0)
            pitch = root * 2 ** ((scale[note % 7] + 12 * (note // 7)) / 12)
            part = envelope(length, 0.03 if held else 0.004, 0.05)
            if not held:
                part = part * np.exp(-np.arange(len(part), dtype=np.float32) / np.float32(decay * SAMPLE_RATE))
            add(signal, tone(pitch, len(part), harmonics, take.random()) * part * gain(-6 if note < 7 else 0), start)
    if drum:
        at = shift + beat * np.arange(int((ends - shift) / beat) + 1)
        signal += struck(at, 10 ** (take.uniform(-6, 3, len(at)) / 20), skin, samples)
    return signal


SOUNDS: dict[str, Callable[[int, Generator, Generator], np.ndarray]] = {
    sound.__name__: sound
    for sound in (
        *(air_conditioner, car_horn, children_playing, dog_bark, drilling),
        *(engine_idling, gun_shot, jackhammer, siren, street_music),
    )
}
EVENTS = tuple(SOUNDS)
# (shortest slice in s, share of slices that last LONGEST); USUAL for other events
LENGTHS = {"gun_shot": (0.8, 0.3), "dog_bark": (0.8, 0.6), "car_horn": (0.8, 0.6)}
USUAL = (1.5, 0.8)
