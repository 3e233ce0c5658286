"""The audio of utterances as data URIs, small enough for a page."""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import soundfile

from fedray.config import schema
from fedray.config.source import Source
from fedray.data.features import audio
from fedray.data.features.kinds import FEATURES
from fedray.data.features.packed import file_of
from fedray.data.manifest import Manifest
from fedray.runs.folder import RunFolder
from fedray.runs.strangers import CONFIG, read_config
from fedray.storage.cache import cache_root

PATIENCE = 20.0  # seconds allowed for reading a corpus; synthesising one takes minutes
SYNTHETIC = "embedded"  # the corpus that is made in the cache
LONGEST = 20.0  # seconds; longer clips are cut

Item = TypeVar("Item")
Found = TypeVar("Found")


class NotNamed(ValueError):
    """The reader of a report has not named the folder of the audio."""


def embedded(folder: RunFolder, utterances: Sequence[str], folders: Sequence[Path]) -> dict[str, str]:
    """Utterance -> data URI of 16-bit mono FLAC at the features' sample rate, for those in the run's corpus.

    The run folder may come from anybody. So its `imports` are not imported, its interpolations not resolved, and files
    are read only below `folders`, or below the cache for a synthetic corpus. If `data.root` is elsewhere, the corpus is
    taken to be in the first of `folders`. NotNamed: there are none. ValueError or OSError: the corpus or one of its
    files is not on this machine, or the corpus would have to be synthesised first. Does not start Ray.
    """
    from fedray import experiment  # imports torch and Ray, which a report without audio does not need

    given = read_config(folder)
    data = given.get("data")
    if not isinstance(data, dict):
        raise ValueError("config.yaml has no section data")
    data = dict(data)
    if data.get("corpus", SYNTHETIC) == SYNTHETIC:
        inside, data["root"] = [cache_root().resolve()], None
    elif not folders:
        raise NotNamed(
            "a run folder may come from anybody, so its page contains audio only from folders that you name: add "
            "--audio DIR with the folder of the corpus, or set FEDRAY_AUDIO"
        )
    else:
        inside = [one.resolve() for one in folders]
        root = Path(str(data.get("root"))).resolve()
        data["root"] = str(root if _is_below(root, inside) else inside[0])
    for text in _texts(data.get("options")):
        if not _is_below(Path(data["root"] or inside[0], text).resolve(), inside):
            raise ValueError("data.options names a file outside the folders of --audio")
    features = given.get("features")
    if isinstance(features, dict) and features.get("kind", "logmel") not in FEATURES:  # a user's, not imported
        features = {name: value for name, value in features.items() if name == "sample_rate"}
    source = Source({"data": data, "features": features}, {"": folder.storage.shown(CONFIG)})
    config = schema.build(experiment.Audible, source)
    wanted = pa.array(utterances, pa.large_string())
    clips = {}
    for manifest in experiment.read_corpus(config.data, source, briefly).values():
        rows = manifest.table.filter(pc.is_in(manifest.table["utterance"], value_set=wanted))
        for row in Manifest(rows):
            if not _is_below(Path(file_of(row.path)).resolve(), inside):
                raise ValueError("the corpus names a recording outside the folders of --audio")
            wave = audio.read(row.path, config.features.sample_rate, row.offset, min(row.seconds, LONGEST))
            clips[row.utterance] = as_uri(wave.numpy(), config.features.sample_rate)
    return clips


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _texts(values: object) -> Iterator[str]:
    """All texts in nested values."""
    if isinstance(values, str):
        yield values
    elif isinstance(values, Mapping | list):
        for value in values.values() if isinstance(values, Mapping) else values:
            yield from _texts(value)


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
