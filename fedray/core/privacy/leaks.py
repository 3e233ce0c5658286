"""What the updates of clients give away: attributes, and which of them come from one client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedray.core.privacy import inference, recognition
from fedray.core.privacy.inference import guess
from fedray.core.privacy.observations import Numbers, Observations, companions, views
from fedray.core.privacy.recognition import recognise
from fedray.core.privacy.sketches import Layout, Places, Sketch
from fedray.core.seeds import Name, numpy_generator

FEWEST = 4  # known clients with a value, or an attacker cannot learn it
MODELS = ("first model", "last model")
REPEATS, OBSERVATIONS = 4, 400  # sums that an attacker draws around each known client, and about how many in all
Row = dict[str, Any]


@dataclass(frozen=True)
class Observed:
    """What was seen of a client: its updates from the first and the last model, and those on halves of its data.

    `halves`: from the first model on one half, from the last on the other; None: it has a single utterance.
    """

    client: str
    whole: tuple[Sketch, Sketch]
    halves: tuple[Sketch, Sketch] | None


@dataclass(frozen=True)
class Sums:
    """How updates are added up before they are seen: `count` of them, with noise of a standard deviation by model."""

    count: int = 1
    deviations: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Leaks:
    """An attacker that knows some clients, and attacks others. `layout`: of the sketches."""

    known: Sequence[Observed]
    attacked: Sequence[Observed]
    layout: Layout
    sums: Sums
    seed: Name

    def attribute(self, name: str, values: Mapping[str, str]) -> tuple[dict[str, Any], list[Row]]:
        """How well an attribute is guessed, and a row for each attacked client. `values`: client -> its value.

        Clients without a value, and values of fewer than `FEWEST` known clients, are left out. ValueError: fewer than
        two values are left, or no attacked client has one of them.
        """
        kinds = learnable(values[one.client] for one in self.known if one.client in values)
        if len(kinds) < 2:
            raise ValueError(few(name, kinds))
        known, attacked = (
            [one for one in side if values.get(one.client) in kinds] for side in (self.known, self.attacked)
        )
        if not attacked:
            raise ValueError(f"none of the attacked clients has a value of {name} that an attacker can learn")
        repeats = 1 if self.sums.count == 1 else max(1, min(REPEATS, OBSERVATIONS // len(known)))
        # Others in a sum may lack the attribute: they are any clients of the same side.
        fitted = _named([self._views(self.known, known, "known", repeat) for repeat in range(repeats)])
        seen = _named([self._views(self.attacked, attacked, "attacked", 0)])
        codes = {kind: code for code, kind in enumerate(kinds)}
        learnt = np.array([codes[values[one.client]] for one in known])
        truth = np.array([codes[values[one.client]] for one in attacked])
        clients = np.tile(np.arange(len(known)), repeats)
        guesses = guess(fitted, np.tile(learnt, repeats), clients, seen)
        own = guesses.scores[np.arange(len(truth)), truth]
        others = guesses.scores.copy()
        others[np.arange(len(truth)), truth] = -np.inf
        rows = [
            {"client": one.client, "attribute": name, "value": kinds[value], "guess": kinds[guessed], "score": margin}
            for one, value, guessed, margin in zip(
                attacked, truth.tolist(), guesses.values.tolist(), (own - others.max(1)).tolist(), strict=True
            )
        ]
        return {"values": len(kinds), **inference.findings(guesses, truth)}, rows

    def same_client(self) -> tuple[dict[str, Any] | None, list[Row]]:
        """How well a client is recognised from two updates, and a row for each of those with two utterances or more.

        None: there are too few of them among known or attacked clients.
        """
        sides = []
        for side, words in ((self.known, "known"), (self.attacked, "attacked")):
            halved = [one for one in side if one.halves is not None]
            if len(halved) < max(2, self.sums.count):
                return None, []
            models = [self._halves(halved, model, words) for model in (0, 1)]
            parts = zip(views(models[:1], self.layout), views(models[1:], self.layout), strict=True)
            sides.append({name: (first, second) for (name, first), (_, second) in parts})
        found = recognise(*sides)
        rows = [
            {"client": one.client, "attribute": "same client", "value": one.client,
             "guess": halved[int(row.argmax())].client, "score": float(row[place])}
            for place, (one, row) in enumerate(zip(halved, found.likeness, strict=True))
        ]  # fmt: skip
        return recognition.findings(found), rows

    def _views(
        self, side: Sequence[Observed], chosen: Sequence[Observed], words: str, repeat: int
    ) -> dict[str, Numbers]:
        """The views of what is seen of chosen clients of a side."""
        places = {one.client: place for place, one in enumerate(side)}
        rows = np.array([places[one.client] for one in chosen])
        models = [self._seen(side, rows, model, f"{words} {repeat}") for model in (0, 1)]
        found = dict[str, Numbers]()
        for seen, which in ((models[:1], MODELS[0]), (models[1:], MODELS[1]), (models, "both models")):
            found |= {f"{which}, {name}": numbers for name, numbers in views(seen, self.layout)}
        return found

    def _seen(self, side: Sequence[Observed], rows: Places, model: int, words: str) -> Observations:
        whole = Observations.of([one.whole[model] for one in side])
        if self.sums.count == 1:
            return whole.take(rows)
        return self._summed(whole, whole, model, words).take(rows)

    def _halves(self, halved: Sequence[Observed], model: int, words: str) -> Observations:
        half = Observations.of([one.halves[model] for one in halved if one.halves is not None])
        if self.sums.count == 1:
            return half
        return self._summed(half, Observations.of([one.whole[model] for one in halved]), model, f"{words} halves")

    def _summed(self, own: Observations, others: Observations, model: int, words: str) -> Observations:
        generator = numpy_generator(self.seed, "audit", "sums", words, model)
        drawn = companions(len(own.buckets), self.sums.count - 1, generator)
        return own.summed(others, drawn, self.layout, self.sums.deviations[model], generator)


def learnable(values: Any) -> list[str]:
    """The values that an attacker can learn from those of known clients, sorted."""
    return sorted(value for value, count in Counter(values).items() if count >= FEWEST)


def few(name: str, kinds: Sequence[str]) -> str:
    """Why an attribute cannot be attacked, in words. `kinds`: the values that can be learnt."""
    some = f"only one value, {kinds[0]}, of" if kinds else "no value of"
    return (
        f"audit.attributes: {some} {name} has {FEWEST} auxiliary clients, and an attacker needs them of two values: "
        f"raise audit.auxiliary, or leave {name} out"
    )


def _named(parts: Sequence[Mapping[str, Numbers]]) -> dict[str, Numbers]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
