"""Find the clients whose data differ most from the others': in length, labels or rate of speech."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fedray.data.analysis.inspection import label_distances
from fedray.data.manifest import Manifest, Rows

Values = npt.NDArray[np.float64]


def unusual(manifest: Manifest, clients: Mapping[str, Rows]) -> list[tuple[str, str]]:
    """List (client, what is unusual about it), the most unusual first.

    A client is ranked by the measure in which it lies most standard deviations from the mean client. Clients with less
    than half of the median number of utterances are left out, because their means vary by chance.
    """
    names, sizes = list(clients), np.array([len(rows) for rows in clients.values()])
    measures = _measures(manifest, clients)
    whole = {words: (float(np.nanmean(values)), float(np.nanstd(values))) for words, values in measures.items()}
    ranked: list[tuple[float, str, str]] = []
    for place in np.flatnonzero(sizes >= np.median(sizes) / 2).tolist():
        found = []
        for words, values in measures.items():
            mean, deviation = whole[words]
            if deviation > 1e-9 and not np.isnan(values[place]):
                reason = words.format(values[place], mean)
                found.append((abs(float(values[place]) - mean) / deviation, reason))
        if found:
            far, reason = max(found)
            ranked.append((-far, names[place], reason))
    return [(name, reason) for _, name, reason in sorted(ranked)]


def _measures(manifest: Manifest, clients: Mapping[str, Rows]) -> dict[str, Values]:
    """Format string for (a client's value, the mean client's value) -> the values, float64 [clients]; NaN: none."""
    rows = np.concatenate(list(clients.values()))
    owners = np.repeat(np.arange(len(clients)), [len(mine) for mine in clients.values()])
    sizes = np.bincount(owners, minlength=len(clients))
    seconds = np.bincount(owners, manifest.array("seconds")[rows], len(clients))
    measures = {"{:.1f} s an utterance, the mean client {:.1f} s": seconds / np.maximum(sizes, 1)}
    characters = pc.fill_null(pc.utf8_length(manifest.table["text"].combine_chunks()), 0).to_numpy(zero_copy_only=False)
    if characters.any():
        written = np.bincount(owners, characters[rows], len(clients))
        measures["{:.1f} characters a second, the mean client {:.1f}"] = written / seconds
    labels = manifest.table["label"].combine_chunks().take(pa.array(rows))
    codes = pc.dictionary_encode(labels).indices.fill_null(-1).to_numpy()
    distances = np.full(len(clients), np.nan)
    known, values = label_distances(owners, codes)
    distances[known] = values
    if len(known):
        measures["label distance {:.2f} (0 alike, 1 disjoint), the mean client {:.2f}"] = distances
    return measures
