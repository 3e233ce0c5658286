"""How much clients differ in what their recordings sound like, within a client and between them.

Gao et al. (ICASSP 2022, section 3.2), for any federation:

    v_iu    a measure of utterance u of client i                            # fedray.data.acoustics
    between <- SD over clients of mean_u v_iu                               # and its excess kurtosis: how far outliers lie
    within  <- SD over clients of SD_u v_iu
    purity  <- share of utterances that are of the commonest client of their k-means cluster, k = clients
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
from fedray.data import acoustics, audio
from fedray.data.acoustics import MEASURES, Waveform
from fedray.data.manifest import Manifest, Utterance

Embed = Callable[[Waveform], npt.NDArray[np.float32]]  # a waveform at 16 kHz -> what tells speakers apart

SHARD = 10  # utterances a work item
NEIGHBOURS = 30.0  # t-SNE's perplexity
SHOWN = 8  # clients of a picture: as many as there are colours


@dataclass(frozen=True)
class Sounds:
    """A sample of a federation, measured: `names[clients[i]]` is the client of utterance i."""

    names: Sequence[str]
    clients: npt.NDArray[np.int64]  # [utterances]
    values: npt.NDArray[np.float64]  # [utterances, MEASURES]; NaN where a measure does not exist
    embeddings: npt.NDArray[np.float32]  # [utterances, dimensions]
    left_out: Sequence[str]  # utterances that could not be measured, each with the reason

    @property
    def population(self) -> int:
        return len(np.unique(self.clients))

    def means(self, measure: str) -> npt.NDArray[np.float64]:
        """Of each client that has a value."""
        return np.array([one.mean() for one in self._known(measure)])

    def deviations(self, measure: str) -> npt.NDArray[np.float64]:
        """SDs of each client that has two values."""
        return np.array([one.std(ddof=1) for one in self._known(measure) if len(one) > 1])

    def _known(self, measure: str) -> list[npt.NDArray[np.float64]]:
        values = self.values[:, MEASURES.index(measure)]
        found = (values[(self.clients == client) & ~np.isnan(values)] for client in np.unique(self.clients))
        return [one for one in found if len(one)]


@dataclass(frozen=True)
class Spread:
    """Of a measure over the clients."""

    mean: float
    between: float
    within: float
    kurtosis: float  # excess, of the clients' means


def spread(sounds: Sounds, measure: str) -> Spread:
    """NaN where too few clients have a value."""
    means, deviations = sounds.means(measure), sounds.deviations(measure)
    between, within = (values.std(ddof=1) if len(values) > 1 else np.nan for values in (means, deviations))
    excess = kurtosis(means) if len(means) > 1 and between > 0 else np.nan
    return Spread(means.mean() if len(means) else np.nan, *map(float, (between, within, excess)))


def sample(rows: Mapping[str, npt.NDArray[np.int64]], clients: int, utterances: int, seed: int) -> dict[str, npt.NDArray[np.int64]]:
    """At most `clients` clients (id -> rows of the manifest) with at most `utterances` of each, drawn at random."""
    generator = numpy_generator(seed, "data study")
    names = sorted(rows)
    chosen = sorted(generator.permutation(len(names))[:clients].tolist())
    return {names[place]: np.sort(generator.permutation(rows[names[place]])[:utterances]) for place in chosen}


def measure(manifest: Manifest, rows: Mapping[str, npt.NDArray[np.int64]], embed: Embed, parallel: Parallel, what: str) -> Sounds:
    """Measure the clients' utterances (id -> rows of the manifest), in parallel; what cannot be used is left out and named.

    Raises ValueError when nothing is left, or of fewer than two clients.
    """
    owners = np.repeat(np.arange(len(rows)), [len(mine) for mine in rows.values()])
    utterances = [manifest[row] for mine in rows.values() for row in mine.tolist()]
    shards = [utterances[start : start + SHARD] for start in range(0, len(utterances), SHARD)]
    found = [one for shard in parallel(partial(_measure, embed=embed), shards, f"listening to {what}") for one in shard]
    left_out = [one for one in found if isinstance(one, str)]
    kept = [(owner, *one) for owner, one in zip(owners, found, strict=True) if not isinstance(one, str)]
    if len({owner for owner, *_ in kept}) < 2:
        why = f": {left_out[0]}" if left_out else ""
        raise ValueError(f"{what}: a study compares clients, and speech of fewer than two could be measured{why}")
    clients, values, embeddings = map(np.array, zip(*kept, strict=True))
    return Sounds(list(rows), clients, values, embeddings, left_out)


def _measure(utterances: Sequence[Utterance], embed: Embed) -> list[tuple[tuple[float, ...], npt.NDArray[np.float32]] | str]:
    found: list[tuple[tuple[float, ...], npt.NDArray[np.float32]] | str] = []
    for one in utterances:
        try:
            waveform = audio.read(one.path, acoustics.SAMPLE_RATE, one.offset, one.seconds).numpy()
            found.append((acoustics.measure(waveform), embed(waveform)))
        except ValueError as error:  # AudioError, or too short
            found.append(f"utterance {one.utterance}: {error}")
    return found


def purity(sounds: Sounds, seed: int) -> float:
    """0..1; chance is about 1 / (utterances of a client) to 1 / clients."""
    from sklearn.cluster import KMeans  # in the extra `study`

    clusters = KMeans(sounds.population, n_init=4, random_state=seed).fit_predict(scaled(sounds.embeddings))
    counts = np.zeros((sounds.population, sounds.clients.max() + 1))
    np.add.at(counts, (clusters, sounds.clients), 1)
    return float(counts.max(axis=1).sum() / len(sounds.clients))


def picture(sounds: Sounds, seed: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Clients [points] and places [points, 2] by t-SNE, of the clients with most utterances."""
    from sklearn.manifold import TSNE  # in the extra `study`

    names, counts = np.unique(sounds.clients, return_counts=True)
    shown = np.isin(sounds.clients, names[np.argsort(-counts, kind="stable")[:SHOWN]])
    points = scaled(sounds.embeddings[shown])
    if len(points) < 4:  # nothing to lay out
        return sounds.clients[shown], np.zeros((len(points), 2), np.float32)
    places = TSNE(perplexity=min(NEIGHBOURS, (len(points) - 1) / 3), random_state=seed).fit_transform(points)
    return sounds.clients[shown], places


def scaled(embeddings: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Each dimension with mean 0 and variance 1 over the sample."""
    return (embeddings - embeddings.mean(axis=0)) / (embeddings.std(axis=0) + 1e-6)
