"""How similar reconstructed log-mels are to the true ones, and to those of other utterances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedray.core.privacy.inference import DRAWS, ENDS
from fedray.core.seeds import numpy_generator

Features = npt.NDArray[np.float32]  # [frames, bins]
Row = dict[str, Any]
MODELS = ("first", "last")  # of a run: from which clients train for the audit


@dataclass(frozen=True)
class Reconstruction:
    """An utterance under attack. `match`: how similar gradient and update are that the attacker reached, -1 .. 1."""

    utterance: str
    target: str
    true: Features
    made: Features
    match: float


Found = list[tuple[str, Reconstruction]]  # of clients under attack, by name


def correlation(one: Features, other: Features) -> float:
    """Pearson's correlation of two utterances' features without each bin's mean, over the frames of the shorter one.

    The highest over all circular shifts in time: sums over frames, as the gradients of convolutions are, hardly tell
    when something was said, and who hears it does not mind.
    """
    frames = min(len(one), len(other))
    first, second = (part[:frames] - part[:frames].mean(0) for part in (one.astype(np.float64), other))
    size = np.sqrt(np.sum(first**2) * np.sum(second**2))
    spectrum = np.fft.rfft(first, axis=0) * np.conj(np.fft.rfft(second, axis=0))
    return float(np.fft.irfft(spectrum.sum(1), frames).max() / size) if size > 0 else 0.0


def in_order(made: Sequence[Features], true: Sequence[Features], targets: Sequence[str]) -> list[Features]:
    """The reconstructions of a batch in the order of its utterances: those of one target and length may be swapped."""
    from scipy.optimize import linear_sum_assignment  # here: few actors need it, and it takes a while to import

    same = [[a == b and len(m) == len(t) for b, t in zip(targets, true, strict=True)]
            for a, m in zip(targets, made, strict=True)]  # fmt: skip
    gain = np.array([[correlation(m, t) if same[i][j] else -2.0 * len(true) for j, t in enumerate(true)]
                     for i, m in enumerate(made)])  # fmt: skip
    rows, columns = linear_sum_assignment(gain, maximize=True)
    return [made[row] for row in rows[np.argsort(columns)]]


def findings(found: Found) -> tuple[dict[str, Any], list[Row]]:
    """How good the reconstructions are, as results.json has it, and a row for each; at least two.

    `likeness`: the mean correlation with the true utterance, with a 95 % interval of a bootstrap over clients;
    `others`: that with other utterances, of the same target if there are any. `first`: how often no other utterance is
    as similar as the true one; `chance`: one in all of them.
    """
    clients, parts = [client for client, _ in found], [one for _, one in found]
    alike = np.array([[correlation(one.made, other.true) for other in parts] for one in parts])
    rows = list[Row]()
    for place, (client, one) in enumerate(found):
        others = [number for number in range(len(found)) if number != place]
        rivals = [number for number in others if parts[number].target == one.target] or others
        rows.append({
            "client": client, "utterance": one.utterance, "target": one.target, "match": one.match,
            "likeness": float(alike[place, place]), "others": float(alike[place, rivals].mean()),
            "first": int(alike[place, place] > alike[place, others].max()),
        })  # fmt: skip
    names = list(dict.fromkeys(clients))
    of_client = np.array([names.index(client) for client in clients])
    sums = np.stack([np.bincount(of_client, np.diagonal(alike)), np.bincount(of_client)], 1)
    generator = numpy_generator("audit", "bootstrap")
    drawn = sums[generator.integers(0, len(sums), (DRAWS, len(sums)))].sum(1)
    low, high = np.percentile(drawn[:, 0] / drawn[:, 1], ENDS)
    means = {name: float(np.mean([row[name] for row in rows])) for name in ("likeness", "others", "first", "match")}
    return {
        "utterances": len(rows), **means, "likeness_low": float(low), "likeness_high": float(high),
        "chance": 1 / len(rows),
    }, rows  # fmt: skip
