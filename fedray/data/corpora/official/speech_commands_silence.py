"""The silence of Speech Commands: cuts of one second from the files of background noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedray.core.parallel import Parallel
from fedray.core.seeds import numpy_generator
from fedray.data.corpora.assembly import Column, measure
from fedray.data.corpora.official.layout import names_in
from fedray.data.corpora.official.speech_commands_clips import SILENCE
from fedray.data.manifest import Manifest

NOISE = "_background_noise_"
CUT = 1.0  # seconds of a cut
SHORTEST = 11.0  # seconds of a noise file: a tenth of it is longer than a cut (the corpus' files last a minute or more)


def find_noises(home: Path, parallel: Parallel) -> dict[str, float]:
    """Find the files of background noise: path -> length in seconds. Raises ValueError for missing and short files."""
    folder = home / NOISE
    paths = [str(folder / name) for name in names_in(folder) if name.endswith(".wav")] if folder.is_dir() else []
    if not paths:
        raise ValueError(
            f"{folder} holds no .wav files to cut silence from: unpack speech_commands_v0.02.tar.gz, or set classes=35"
        )
    lengths, problems = measure(paths, parallel)
    for path, problem in problems.items():
        raise ValueError(f"{path}: {problem}. Restore the file")
    for path, length in lengths.items():
        if length < SHORTEST:
            rule = f"a tenth of it must be longer than the cuts of {CUT:.0f} s"
            raise ValueError(f"{path} lasts {length:.2f} s, but {rule}: restore the file")
    return lengths


def draw_silence(
    noises: Mapping[str, float], times: tuple[float, float], speakers: Sequence[str], count: int, split: str, seed: int
) -> Manifest:
    """Draw `count` random cuts of one second, each assigned to a random one of `speakers`.

    `times` are two shares of a file's length: cuts come from the part of every file between them.
    """
    generator = numpy_generator(seed, "speech commands", "silence", split)
    paths, lengths = list(noises), np.array(list(noises.values()))
    rooms = (times[1] - times[0]) * lengths - CUT  # seconds of each file in which a cut can begin
    owners = generator.choice(len(speakers), count, replace=count > len(speakers))
    files = generator.choice(len(paths), count, p=rooms / rooms.sum())
    offsets = times[0] * lengths[files] + generator.random(count) * rooms[files]
    columns: dict[str, Column] = {
        "utterance": [f"{SILENCE}/{split}-{index:05d}" for index in range(count)],
        "path": [paths[file] for file in files],
        "offset": offsets.tolist(),
        "seconds": [CUT] * count,
        "speaker": [speakers[owner] for owner in owners],
        "label": [SILENCE] * count,
    }
    return Manifest.from_columns(columns, NOISE)
