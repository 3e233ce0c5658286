"""The audio of utterances, small enough to be part of a page."""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import soundfile
import yaml

from fedray.data import audio
from fedray.data.manifest import Manifest
from fedray.engine.folder import RunFolder

PATIENCE = 20.0  # seconds that reading a corpus may take; making one takes minutes
LONGEST = 20.0  # seconds of a clip


def embedded(folder: RunFolder, utterances: Sequence[str]) -> dict[str, str]:
    """Utterance -> data URI of 16-bit mono FLAC at the features' sample rate, of those that the run's corpus has.

    ValueError or OSError: the corpus, or a file of it, is not on this machine, or would have to be made first. No Ray is started.
    """
    from fedray import experiment, programs  # a second to import, and most of a report does without

    config, source = experiment.load(yaml.safe_load(folder.read_text("config.yaml")))
    wanted = pa.array(utterances, pa.large_string())
    clips = {}
    for manifest in programs.read_corpus(config, source, briefly).values():
        rows = manifest.table.filter(pc.is_in(manifest.table["utterance"], value_set=wanted))
        for row in Manifest(rows):
            wave = audio.read(row.path, config.features.sample_rate, row.offset, min(row.seconds, LONGEST))
            clips[row.utterance] = as_uri(wave.numpy(), config.features.sample_rate)
    return clips


def as_uri(wave: Any, sample_rate: int) -> str:
    """`wave`: float [samples] in -1..1."""
    file = io.BytesIO()
    soundfile.write(file, wave, sample_rate, format="FLAC", subtype="PCM_16")
    return f"data:audio/flac;base64,{base64.b64encode(file.getvalue()).decode()}"


def briefly(function: Callable[[Any], Any], items: Sequence[Any], what: str = "") -> Iterator[Any]:
    """What readers do in parallel, one by one in this process; ValueError as soon as it looks like taking long: it is not in the cache."""
    since = time.monotonic()
    for done, item in enumerate(items, 1):
        yield function(item)
        if (seconds := (time.monotonic() - since) / done * len(items)) > PATIENCE:
            raise ValueError(f"it is not in the cache, and {what.lower() or 'reading it'} would take about {seconds:.0f} s")
