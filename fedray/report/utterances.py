"""`fedray data CONFIG --show DIR`: a page with spectrograms and audio of some utterances of splits and clients."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import torch
from matplotlib.image import imsave

import fedray
from fedray import experiment
from fedray.core.seeds import numpy_generator
from fedray.data.analysis.unusual import unusual
from fedray.data.features import audio
from fedray.data.features.log_mel import LogMelSettings, log_mels
from fedray.data.features.settings import FeatureSettings
from fedray.data.manifest import Manifest, Rows, Utterance
from fedray.report.clips import LONGEST, as_uri
from fedray.report.page import ENVIRONMENT, STYLESHEET
from fedray.storage.claims import claim
from fedray.storage.files import write_whole
from fedray.storage.local import LocalStorage

CLIENTS = 3  # of each sort: largest, smallest and most unusual
BINS = 64
RANGE = 16.0  # natural logarithm of the power: 70 dB below the loudest bin is black


@dataclass(frozen=True)
class Clip:
    """An utterance as the page shows it. `why_not`: why its audio cannot be played."""

    row: Utterance
    speaker: str
    picture: str = ""  # data URI
    sound: str = ""  # data URI
    why_not: str = ""


@dataclass(frozen=True)
class Group:
    """Some utterances of a split or a client."""

    name: str
    described: str
    clips: list[Clip]


def save(
    config_path: str | os.PathLike[str],
    overrides: Iterable[str],
    out: Path,
    each: int = 3,
    only: Sequence[str] | None = None,
) -> Path:
    """Write the page to `out`, with at most `each` utterances of a split or client; returns its path.

    `only`: the utterances and clients to show; None: some of each split, and of some clients.
    Raises ValueError if a run would refuse the configuration or the corpus, and for an unknown name. Utterances whose
    audio is broken are shown with the reason.
    """
    if each < 1:
        raise ValueError(f"--utterances must be at least 1, not {each}")
    claim(LocalStorage(out), "a page of utterances")
    config, source = experiment.load(config_path, overrides)
    parts, clients = experiment.read_federation(config, source)
    anonymous = Manifest.concat(list(parts.values())).anonymous

    def group(name: str, described: str, manifest: Manifest, rows: Rows) -> Group:
        drawn = numpy_generator(config.data.seed, "shown", name).permutation(rows)[:each]
        return Group(name, described, [clip(row, config.features, anonymous) for row in manifest.take(np.sort(drawn))])

    def of_client(name: str, reason: str = "") -> Group:
        rows = clients[name]
        return group(name, amount(parts["clients"].take(rows)) + reason, parts["clients"], rows)

    def of_utterance(name: str) -> Group:
        for part, manifest in parts.items():
            if (row := pc.index(manifest.table["utterance"], name).as_py()) >= 0:
                return group(name, f"of {part}", manifest, np.array([row]))
        raise ValueError(f"--only: {name!r} is neither a client nor an utterance of this configuration")

    if only is None:
        whole = [group(name, amount(manifest), manifest, np.arange(len(manifest))) for name, manifest in parts.items()]
        sections = {"Splits": whole}
        for title, names in choose(parts["clients"], clients).items():
            sections |= {title: [of_client(name, reason) for name, reason in names.items()]} if names else {}
    else:
        sections = {"Chosen": [of_client(name) if name in clients else of_utterance(name) for name in only]}
    template = ENVIRONMENT.from_string(files("fedray.report").joinpath("utterances.html").read_text(encoding="utf-8"))
    page = template.render(
        config=config,
        clients=len(clients),
        anonymous=anonymous,
        sections=sections,
        longest=LONGEST,
        style=STYLESHEET,
        version=fedray.__version__,
    )
    path = out / "utterances.html"
    write_whole(path, page)
    return path


def choose(manifest: Manifest, clients: Mapping[str, Rows]) -> dict[str, dict[str, str]]:
    """Title of a section -> client -> the reason why it is there. No client is in two sections."""
    by_size = sorted(clients, key=lambda name: (-len(clients[name]), name))
    largest = dict.fromkeys(by_size[:CLIENTS], "")
    rest = [name for name in by_size if name not in largest]
    smallest = dict.fromkeys(rest[::-1][:CLIENTS], "")
    odd = [(name, f"; {why}") for name, why in unusual(manifest, clients) if name not in largest | smallest]
    return {"Largest clients": largest, "Smallest clients": smallest, "Most unusual clients": dict(odd[:CLIENTS])}


def clip(row: Utterance, features: FeatureSettings, anonymous: bool) -> Clip:
    """The spectrogram and the audio of an utterance, or the reason why it cannot be read."""
    speaker = "unknown" if anonymous else row.speaker
    try:
        wave = audio.read(row.path, features.sample_rate, row.offset, min(row.seconds, LONGEST))
    except audio.AudioError as problem:
        return Clip(row, speaker, why_not=str(problem))
    return Clip(row, speaker, spectrogram(wave, features), as_uri(wave.numpy(), features.sample_rate))


def spectrogram(wave: torch.Tensor, features: FeatureSettings) -> str:
    """A data URI of a PNG with a pixel per frame and mel bin, low frequencies below; `wave`: float32 [samples]."""
    given = features if isinstance(features, LogMelSettings) else LogMelSettings(sample_rate=features.sample_rate)
    mels = log_mels(wave, replace(given, bins=BINS, normalise="none")).numpy()
    file = io.BytesIO()
    top = float(mels.max())
    imsave(file, mels.T, cmap="magma", origin="lower", vmin=top - RANGE, vmax=top, format="png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def amount(manifest: Manifest) -> str:
    """The size of a manifest in words: `1,200 utterances, 3.20 h, 40 speakers`."""
    speakers = len(set(manifest.column("speaker")))
    length = f"{manifest.hours:,.2f} h" if manifest.hours >= 1 else f"{60 * manifest.hours:.1f} min"
    told = f"{len(manifest):,} utterance{'s' * (len(manifest) != 1)}, {length}"
    return told if manifest.anonymous else f"{told}, {speakers:,} speaker{'s' * (speakers != 1)}"
