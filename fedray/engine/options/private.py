"""Private rounds: lanes get bounds, clients send clipped updates, and the driver releases their sum with noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from fedray.core.packing import Packing
from fedray.core.privacy import audits
from fedray.core.privacy.clipping import Bounds, Clipping, Flags
from fedray.core.privacy.guarantee import Guarantee
from fedray.core.privacy.mechanism import Gathered, Mechanism
from fedray.core.privacy.secure_aggregation import Traffic
from fedray.core.privacy.settings import Private, Skellam
from fedray.core.privacy.skellam import Encoding
from fedray.core.types import Broadcast, Layer, RunError
from fedray.engine.jobs.soundness import sizes
from fedray.engine.lane.guard import Guard
from fedray.engine.lane.guarded import Guarded
from fedray.engine.lane.lane import Lane, LaneResult
from fedray.engine.round.option import Option
from fedray.engine.round.outcome import Outcome
from fedray.runs.folder import Progress, RunFolder

NOISE, BOUND = "noise", "bound|"  # keys in the progress of a run: z, and the prefix to a group's name for its bound


def _secure_traffic(settings: Private, encoding: Encoding | None) -> Traffic | None:
    """The bytes of a client under secure aggregation; None: updates are sent as they are."""
    if encoding is None or not isinstance(settings, Skellam):
        return None
    return settings.secure(encoding.cohort).traffic(encoding.length, settings.bits)


class PrivateRounds(Option):
    """Clips and encodes updates on the lanes, and releases their sum with noise."""

    def __init__(self, mechanism: Mechanism, layers: Sequence[Layer], seed: int) -> None:
        self.mechanism, self.layers, self.seed = mechanism, layers, seed
        self._clipping: Clipping | None = None

    def words(self) -> str | None:
        """What the run guarantees."""
        return None if self.mechanism.guarantee is None else self.mechanism.guarantee.words()

    def guard(self, lanes: Sequence[Lane], progress: Progress, broadcast: Broadcast, cohort: int) -> list[Lane]:
        """The lanes with the privacy settings that they follow."""
        guard = self.settings(progress, broadcast, cohort)
        return [replace(lane, guard=guard) for lane in lanes]

    def settings(self, progress: Progress, broadcast: Broadcast, cohort: int) -> Guard:
        """The privacy settings of the next round, of `cohort` clients."""
        clipping, mechanism = self._clipping_for(broadcast), self._mechanism(progress)
        bounds, settings, size = tuple(self._bounds(progress, clipping).tolist()), mechanism.settings, clipping.size
        try:
            mechanism.simulated_noise(len(bounds))
            encoding = mechanism.encoding(size, cohort)
        except ValueError as error:
            raise RunError(str(error)) from error
        traffic = _secure_traffic(settings, encoding)
        sent = None if traffic is None else traffic.sent
        return Guard(settings.clip, bounds, size, encoding, sent, self.seed, progress.round)

    def insert(
        self,
        canaries: Sequence[str],
        progress: Progress,
        outcome: Outcome,
        broadcast: Broadcast,
        log_weight: Callable[[Mapping[str, float]], float],
    ) -> None:
        """Add what these canaries send to the round's sum, under the rules for any other client."""
        guard = self.settings(progress, broadcast, outcome.cohort)
        guarded = Guarded(guard, self.layers)
        bound, flags = float(np.sqrt(np.square(guard.bounds).sum())), list[Flags]()
        for name in canaries:
            update = audits.sent(name, guard.size, bound, self.seed)
            delta, clipped = guarded.protect(update, name)
            outcome.partial.updates.add(delta, log_weight(update.report))
            flags.append(clipped)
        outcome.lanes.append(LaneResult(counted=len(flags), clipped=np.sum(flags, axis=0, dtype=np.int64)))

    def noise(self, progress: Progress, broadcast: Broadcast) -> float:
        """Standard deviation of the noise in each number of the next round's sum; local: of one client's own."""
        mechanism, clipping = self._mechanism(progress), self._clipping_for(broadcast)
        return mechanism.deviation(self._bounds(progress, clipping), 1) * mechanism.growth(progress.round)

    def size(self, broadcast: Broadcast) -> int:
        """How many numbers an update has."""
        return self._clipping_for(broadcast).size

    def claimed(self, progress: Progress) -> float | None:
        """The epsilon of the run as simulated, whatever `as_if` says; None: there is no account, or it is infinite."""
        guarantee = self._guarantee(progress)
        spent = math.inf if guarantee is None else guarantee.simulated.guarantee(progress.round)
        return spent if math.isfinite(spent) else None

    def finish(self, progress: Progress, outcome: Outcome, broadcast: Broadcast) -> None:
        """Replace the plain mean with the noisy mean. Noise is released even if no client answered."""
        clipping = self._clipping_for(broadcast)
        bounds = self._bounds(progress, clipping)
        counts = [lane.clipped for lane in outcome.lanes if lane.clipped is not None]
        clipped = reduce(add, counts, np.zeros(len(bounds), np.int64))
        answered = sum(lane.counted for lane in outcome.lanes)
        mechanism = self._mechanism(progress)
        gathered = Gathered(outcome.partial.updates.total, clipped, answered, outcome.cohort)
        released = mechanism.release(gathered, clipping, bounds, self.seed, progress.round)
        encoding = mechanism.encoding(clipping.size, outcome.cohort)
        if (traffic := _secure_traffic(mechanism.settings, encoding)) is not None:
            outcome.down_bytes += outcome.cohort * traffic.received  # keys and shares of others
        outcome.aggregate.mean, outcome.aggregate.packing = released.mean, Packing(clipping.size)
        outcome.row |= {**self._spent(progress), **released.row}
        bounds_after = zip(clipping.names, released.bounds, strict=True)
        after = {NOISE: mechanism.noise} | {f"{BOUND}{name}": float(bound) for name, bound in bounds_after}
        outcome.progress["private"] = after

    def results(self, progress: Progress, folder: RunFolder) -> Mapping[str, Any]:
        """The privacy that was spent."""
        guarantee = self._guarantee(progress)
        return {} if guarantee is None else {"privacy": guarantee.summary(progress.round)}

    def _guarantee(self, progress: Progress) -> Guarantee | None:
        """The account for the noise that the run adds, the noise of its first round."""
        account = self.mechanism.guarantee
        return None if account is None else account.of_noise(self._mechanism(progress).noise)

    def _spent(self, progress: Progress) -> dict[str, float]:
        """Epsilon after this round, as a column of the round's row; {} if it is infinite."""
        guarantee = self._guarantee(progress)
        spent = math.inf if guarantee is None else guarantee.claimed.epsilon(progress.round + 1)
        return {"privacy/epsilon": spent} if math.isfinite(spent) else {}

    def _clipping_for(self, broadcast: Broadcast) -> Clipping:
        if self._clipping is None:
            size = min(sizes(self.layers, broadcast))  # without what no round changes
            self._clipping = Clipping(self.mechanism.settings.clip, self.layers, size)
        return self._clipping

    def _bounds(self, progress: Progress, clipping: Clipping) -> Bounds:
        if not progress.private:
            return clipping.first
        return np.array([progress.private[f"{BOUND}{name}"] for name in clipping.names])

    def _mechanism(self, progress: Progress) -> Mechanism:
        """The mechanism with the z of the run's first round: another version of the accountant does not change it."""
        return replace(self.mechanism, noise=progress.private.get(NOISE, self.mechanism.noise))
