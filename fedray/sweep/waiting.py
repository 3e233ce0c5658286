"""What a sweep says when its trials wait for room that others hold."""

from __future__ import annotations

import sys
import time
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial

from fedray.core.texts import printable
from fedray.engine.cluster import reservation

LOOK_SECONDS = 10.0  # between two looks; a trial that Ray is starting waits for less


class Waiting(Callback):
    """Tune calls it in each step, and keeps it for a resumed sweep."""

    def __init__(self, sweep: str) -> None:
        self.sweep = sweep
        self._looked, self._said = time.time(), ""

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Look, once in a while, whether trials wait."""
        if not trials or time.time() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.time()
        count, words = reservation.trials_waiting(trials[0].placement_group_factory.bundles)
        said = f"{self.sweep}: {count} trial{'s wait' if count > 1 else ' waits'} for room, {words}" if count else ""
        if said and said != self._said:
            print(printable(said), file=sys.stderr, flush=True)
        self._said = said
