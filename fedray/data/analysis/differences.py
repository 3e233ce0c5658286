"""Measure how much the recordings of a federation differ between clients and within a client.

The measures of Gao et al. (ICASSP 2022, section 3.2), for any federation:

    v_iu    a measure of utterance u of client i                  # fedray.data.analysis.acoustics
    between <- SD over clients of mean_u v_iu                     # and its excess kurtosis: how far outliers lie
    within  <- SD over clients of SD_u v_iu
    purity  <- share of utterances that belong to the most frequent client of their k-means cluster, k = clients
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.stats import kurtosis

from fedray.core.parallel import Parallel
from fedray.core.seeds import numpy_generator
from fedray.data.analysis import acoustics
from fedray.data.analysis.acoustics import MEASURES, Waveform
from fedray.data.features import audio
from fedray.data.manifest import Manifest, Rows, Utterance

Embedding = npt.NDArray[np.float32]  # [dimensions], or [utterances, dimensions]
Embed = Callable[[Waveform], Embedding]  # embeds a waveform at 16 kHz, to tell speakers apart

SHARD = 10  # utterances in a work item
NEIGHBOURS = 30.0  # t-SNE's perplexity
SHOWN = 8  # clients in a picture, each in its own colour


@dataclass(frozen=True)
class Sounds:
    """Measures of a sample of a federation's utterances. `names[clients[i]]` is the client of utterance i."""

    names: Sequence[str]
    clients: Rows  # [utterances]
    values: npt.NDArray[np.float64]  # [utterances, MEASURES]; NaN where a measure is undefined
    embeddings: Embedding  # [utterances, dimensions]
    left_out: Sequence[str]  # utterances that could not be measured, each with the reason

    @property
    def population(self) -> int:
        """Number of clients with utterances in the sample."""
        return len(np.unique(self.clients))

    def means(self, measure: str) -> npt.NDArray[np.float64]:
        """The mean of each client that has a value, float64 [clients]."""
        return np.array([one.mean() for one in self._known(measure)])

    def deviations(self, measure: str) -> npt.NDArray[np.float64]:
        """The SD of each client that has two values, float64 [clients]."""
        return np.array([one.std(ddof=1) for one in self._known(measure) if len(one) > 1])

    def _known(self, measure: str) -> list[npt.NDArray[np.float64]]:
        values = self.values[:, MEASURES.index(measure)]
        found = (values[(self.clients == client) & ~np.isnan(values)] for client in np.unique(self.clients))
        return [one for one in found if len(one)]


@dataclass(frozen=True)
class Spread:
    """How a measure varies over the clients."""

    mean: float  # of the clients' means
    between: float  # SD of the clients' means
    within: float  # SD of the clients' SDs
    kurtosis: float  # excess kurtosis of the clients' means


def spread(sounds: Sounds, measure: str) -> Spread:
    """How a measure varies over the clients; NaN where too few clients have a value."""
    means, deviations = sounds.means(measure), sounds.deviations(measure)
    between, within = (values.std(ddof=1) if len(values) > 1 else np.nan for values in (means, deviations))
    excess = kurtosis(means) if len(means) > 1 and between > 0 else np.nan
    return Spread(means.mean() if len(means) else np.nan, *map(float, (between, within, excess)))


def sample(rows: Mapping[str, Rows], clients: int, utterances: int, seed: int) -> dict[str, Rows]:
    """Draw at most `clients` random clients (id -> rows of the manifest), and at most `utterances` rows of each."""
    generator = numpy_generator(seed, "data study")
    names = sorted(rows)
    chosen = sorted(generator.permutation(len(names))[:clients].tolist())
    return {names[place]: np.sort(generator.permutation(rows[names[place]])[:utterances]) for place in chosen}


def measure(manifest: Manifest, rows: Mapping[str, Rows], embed: Embed, parallel: Parallel, what: str) -> Sounds:
    """Measure the clients' utterances (id -> rows of the manifest) in parallel.

    `Sounds.left_out` names unusable utterances. Raises ValueError if fewer than two clients are there, or are left.
    """
    if len(rows) < 2:
        raise ValueError(f"{what}: a study compares clients, and there are fewer than two")
    owners = np.repeat(np.arange(len(rows)), [len(mine) for mine in rows.values()])
    utterances = [manifest[row] for mine in rows.values() for row in mine.tolist()]
    shards = [utterances[start : start + SHARD] for start in range(0, len(utterances), SHARD)]
    found = [one for shard in parallel(partial(_measure, embed=embed), shards, f"listening to {what}") for one in shard]
    left_out = [one for one in found if isinstance(one, str)]
    kept = [(owner, *one) for owner, one in zip(owners, found, strict=True) if not isinstance(one, str)]
    if len({owner for owner, *_ in kept}) < 2:
        why = f": {left_out[0]}" if left_out else ""
        raise ValueError(f"{what}: a study compares clients, and fewer than two have speech that can be measured{why}")
    clients, values, embeddings = map(np.array, zip(*kept, strict=True))
    return Sounds(list(rows), clients, values, embeddings, left_out)


def _measure(utterances: Sequence[Utterance], embed: Embed) -> list[tuple[tuple[float, ...], Embedding] | str]:
    """Return the measures and embedding of each utterance, or the reason why it cannot be used."""
    found: list[tuple[tuple[float, ...], Embedding] | str] = []
    for one in utterances:
        try:
            waveform = audio.read(one.path, acoustics.SAMPLE_RATE, one.offset, one.seconds).numpy()
            found.append((acoustics.measure(waveform), embed(waveform)))
        except ValueError as error:  # an AudioError, or an utterance that is too short
            found.append(f"utterance {one.utterance}: {error}")
    return found


def purity(sounds: Sounds, seed: int) -> float:
    """Share of utterances whose client is the most frequent one in their cluster, 0..1.

    The chance level lies between about 1 / (utterances of a client) and 1 / clients.
    """
    from sklearn.cluster import KMeans  # in the extra `study`

    clusters = KMeans(sounds.population, n_init=4, random_state=seed).fit_predict(scaled(sounds.embeddings))
    counts = np.zeros((sounds.population, sounds.clients.max() + 1))
    np.add.at(counts, (clusters, sounds.clients), 1)
    return float(counts.max(axis=1).sum() / len(sounds.clients))


def picture(sounds: Sounds, seed: int) -> tuple[Rows, npt.NDArray[np.float32]]:
    """Place the utterances of the `SHOWN` largest clients by t-SNE. Returns clients [points], places [points, 2]."""
    from sklearn.manifold import TSNE  # in the extra `study`

    names, counts = np.unique(sounds.clients, return_counts=True)
    shown = np.isin(sounds.clients, names[np.argsort(-counts, kind="stable")[:SHOWN]])
    points = scaled(sounds.embeddings[shown])
    if len(points) < 4:  # too few for t-SNE
        return sounds.clients[shown], np.zeros((len(points), 2), np.float32)
    places = TSNE(perplexity=min(NEIGHBOURS, (len(points) - 1) / 3), random_state=seed).fit_transform(points)
    return sounds.clients[shown], places


def scaled(embeddings: Embedding) -> Embedding:
    """Scale each dimension to mean 0 and variance 1 over the sample."""
    result: Embedding = (embeddings - embeddings.mean(axis=0)) / (embeddings.std(axis=0) + 1e-6)
    return result
