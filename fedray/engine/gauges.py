"""What a run tells Ray's metrics agents, where Prometheus finds it under `ray_fedray_*`: the driver sets these gauges once a round.

Gauges all of them, totals too: a total goes on from a checkpoint, nought is a value, and what a run has set goes with its driver, where
the counters of dead processes stay as long as their node.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ray.util.metrics import Gauge

from fedray.engine.folder import Progress

REPEAT_SECONDS = 5.0  # Ray forgets within some 20 s what is not said again, and rounds may be longer
GAUGES = {  # name -> its tag beside `run` (or none), what it is
    "fedray_round": ("", "rounds done"),
    "fedray_rounds": ("", "rounds in all"),
    "fedray_clients_per_second": ("", "clients that succeeded in the last round, by its seconds"),
    "fedray_dev": ("metric", "dev scores of the model that was scored last"),
    "fedray_best": ("metric", "the best dev score so far, of the metric by which the model is chosen"),
    "fedray_idle_share": ("actor", "share of the last round (0..1) in which the client actor at this place of the pool had nothing to do"),
    "fedray_failures": ("", "clients that failed, since the run began"),
    "fedray_replacements": ("", "client actors that died and were replaced, since the driver started"),
    "fedray_traffic_bytes": ("direction", "bytes up to the server and down to the clients, since the run began"),
    "fedray_phase_seconds": ("phase", "seconds of the last round by phase as in metrics.jsonl; those of actors (..._actors) are summed"),
    "fedray_cache_hits": ("cache", "initial models and first client states found in the cache, since the driver started"),
    "fedray_cache_misses": ("cache", "initial models and first client states that had to be made, since the driver started"),
}


class Gauges:
    """Those of the run in the folder `place`, whose end is their tag `run`. Where no agent listens nothing happens.

    Nothing that goes wrong here reaches the run: it is said once to `warn`, and the gauges stay as they are.
    """

    def __init__(self, place: str, warn: Callable[[str], None] = lambda text: None) -> None:
        self.run, self._warn = "/".join(place.split("/")[-3:]), warn  # three parts tell the trials of two sweeps apart
        self._made: dict[str, Gauge] = {}
        self._values: dict[tuple[str, str], float] = {}  # by gauge and tag
        self._cached: Counter[str] = Counter()
        self._well = True

    def begin(self, round: int, rounds: int) -> None:
        """From here on all that was set is repeated, for as long as this process lives."""
        threading.Thread(target=self._repeat, daemon=True).start()
        self._set("fedray_round", round)
        self._set("fedray_rounds", rounds)

    def cached(self, cache: str, hits: int, of: int) -> None:
        """Of `of` entries that were asked for, `hits` were there. `cache`: init | prepared."""
        self._cached += Counter({f"hits {cache}": hits, f"misses {cache}": of - hits})
        for outcome in ("hits", "misses"):
            self._set(f"fedray_cache_{outcome}", self._cached[f"{outcome} {cache}"], cache)

    def scored(self, metrics: Mapping[str, Any]) -> None:
        """The dev scores among these metrics."""
        for name, value in metrics.items():
            if name.startswith("dev/"):
                self._set("fedray_dev", value, name)

    def round(self, row: Mapping[str, Any], after: Progress, best: str, idle: Sequence[float], replaced: int) -> None:
        """A round is done: its row of metrics.jsonl, the metric of the best model, the idle share of each actor, replacements so far."""
        self._set("fedray_round", row["round"])
        self._set("fedray_clients_per_second", row["clients/ok"] / row["time/round_s"])
        self._set("fedray_failures", after.totals["failed"])
        self._set("fedray_replacements", replaced)
        for direction in ("up", "down"):
            self._set("fedray_traffic_bytes", after.totals[f"{direction}_bytes"], direction)
        for actor, share in enumerate(idle):
            self._set("fedray_idle_share", share, str(actor))
        for key, seconds in row.items():
            if key.startswith("time/") and key.endswith("_s"):
                self._set("fedray_phase_seconds", seconds or 0.0, key.removeprefix("time/").removesuffix("_s"))
        self.scored(row)
        if after.best is not None:
            self._set("fedray_best", after.best["value"], best)

    def _set(self, name: str, value: float | None, tag: str = "") -> None:
        if value is not None:
            self._values[name, tag] = float(value)
            self._say(name, tag, float(value))

    def _repeat(self) -> None:
        while self._well:
            time.sleep(REPEAT_SECONDS)
            for (name, tag), value in list(self._values.items()):
                self._say(name, tag, value)

    def _say(self, name: str, tag: str, value: float) -> None:
        if not self._well:
            return
        key, description = GAUGES[name]
        tags = {"run": self.run} | ({key: tag} if key else {})
        try:
            if name not in self._made:
                self._made[name] = Gauge(name, description, tuple(tags))
            self._made[name].set(value, tags)
        except Exception as error:  # noqa: BLE001 - whatever it is, no dashboard is worth a run
            self._well = False
            self._warn(f"dashboards show no more of this run: {error!r}")
