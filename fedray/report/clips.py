"""The audio of utterances as data URIs, small enough for a page."""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import soundfile
import yaml

from fedray.data.features import audio
from fedray.data.manifest import Manifest
from fedray.runs.folder import RunFolder

PATIENCE = 20.0  # seconds allowed for reading a corpus; synthesising one takes minutes
LONGEST = 20.0  # seconds; longer clips are cut

Item = TypeVar("Item")
Found = TypeVar("Found")


def embedded(folder: RunFolder, utterances: Sequence[str]) -> dict[str, str]:
    """Utterance -> data URI of 16-bit mono FLAC at the features' sample rate, for those in the run's corpus.

    Raises ValueError or OSError if the corpus or one of its files is not on this machine, or the corpus would have to
    be synthesised first. Does not start Ray.
    """
    from fedray import experiment  # imports torch and Ray, which a report without audio does not need

    given = yaml.safe_load(folder.read_text("config.yaml"))
    # The folder may come from anybody, so the modules that its `imports` names are not imported.
    config, source = experiment.load_as(
        experiment.Audible, {name: given[name] for name in ("data", "features") if name in given}
    )
    wanted = pa.array(utterances, pa.large_string())
    clips = {}
    for manifest in experiment.read_corpus(config.data, source, briefly).values():
        rows = manifest.table.filter(pc.is_in(manifest.table["utterance"], value_set=wanted))
        for row in Manifest(rows):
            wave = audio.read(row.path, config.features.sample_rate, row.offset, min(row.seconds, LONGEST))
            clips[row.utterance] = as_uri(wave.numpy(), config.features.sample_rate)
    return clips


def as_uri(wave: np.ndarray, sample_rate: int) -> str:
    """The data URI of 16-bit mono FLAC; `wave`: float [samples] in -1..1."""
    file = io.BytesIO()
    soundfile.write(file, wave, sample_rate, format="FLAC", subtype="PCM_16")
    return f"data:audio/flac;base64,{base64.b64encode(file.getvalue()).decode()}"


def briefly(function: Callable[[Item], Found], items: Sequence[Item], what: str = "") -> Iterator[Found]:
    """A `Parallel` that runs serially in this process.

    Raises ValueError once all items seem to take longer than `PATIENCE` seconds: the corpus is not in the cache.
    """
    since = time.monotonic()
    for done, item in enumerate(items, 1):
        yield function(item)
        if (seconds := (time.monotonic() - since) / done * len(items)) > PATIENCE:
            work = what.lower() or "reading it"
            raise ValueError(f"it is not in the cache, and {work} would take about {seconds:.0f} s")
