"""Gauges of a run for Prometheus, `ray_fedray_*`: the driver sets them once a round on Ray's metrics agent.

Totals are gauges too, not counters: a resumed run continues a total from its checkpoint, and a total may be 0. Gauges
end with their driver, while Ray keeps the counters of dead processes as long as the node lives.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ray.util.metrics import Gauge

from fedray.runs.folder import Progress

VIRTUAL = {  # of runs with devices: gauge -> its value in metrics.jsonl
    "fedray_virtual_hours": "virtual/hours",
    "fedray_staleness": "virtual/staleness",
    "fedray_wasted_share": "virtual/wasted_share",
}
PRIVATE = {  # of private runs; columns of layers are KEY|LAYER
    "fedray_privacy_epsilon": "privacy/epsilon",
    "fedray_privacy_snr": "privacy/snr",
    "fedray_privacy_clipped": "privacy/clipped",
}
REPEAT_SECONDS = 5.0  # Ray drops a gauge that is not set for about 20 s, and rounds may be longer
GAUGES = {  # name -> tag besides `run` (or none), description
    "fedray_round": ("", "rounds done"),
    "fedray_rounds": ("", "rounds of the run"),
    "fedray_clients_per_second": ("", "clients that succeeded in the last round, divided by its seconds"),
    "fedray_dev": ("metric", "dev scores of the model that was scored last"),
    "fedray_best": ("metric", "the best dev score so far, of the metric by which the model is chosen"),
    "fedray_idle_share": (
        "actor",
        "share of the last round (0..1) in which the client actor at this place of the pool had nothing to do",
    ),
    "fedray_failures": ("", "clients that failed, since the run began"),
    "fedray_replacements": ("", "client actors that died and were replaced, since the driver started"),
    "fedray_traffic_bytes": ("direction", "bytes up to the server and down to the clients, since the run began"),
    "fedray_phase_seconds": (
        "phase",
        "seconds of the last round by phase as in metrics.jsonl; those of actors (..._actors) are summed",
    ),
    "fedray_virtual_hours": ("", "virtual hours since the run began (runs with devices only)"),
    "fedray_staleness": (
        "",
        "mean number of rounds that the models of the last arrivals were behind (runs with devices only)",
    ),
    "fedray_wasted_share": (
        "",
        "share of the devices' time (0..1) wasted since the run began (runs with devices only)",
    ),
    "fedray_privacy_epsilon": (
        "",
        "epsilon after the rounds done, at the configuration's delta (private runs only)",
    ),
    "fedray_privacy_snr": (
        "",
        "norm of the signal over that of the noise in the last round's mean (private runs only)",
    ),
    "fedray_privacy_clipped": (
        "layer",
        "share of the last round's clients (0..1) whose update was clipped (private runs only)",
    ),
    "fedray_cache_hits": (
        "cache",
        "initial models and first client states found in the cache, since the driver started",
    ),
    "fedray_cache_misses": (
        "cache",
        "initial models and first client states that had to be made, since the driver started",
    ),
}


class Gauges:
    """The gauges of a run. The last parts of its folder `place` are their tag `run`.

    Without a metrics agent nothing happens. An error here does not reach the run: `warn` gets it once, and the gauges
    are no longer set.
    """

    def __init__(self, place: str, warn: Callable[[str], None] = lambda text: None) -> None:
        self.run, self._warn = "/".join(place.split("/")[-3:]), warn  # three parts distinguish trials of two sweeps
        self._made: dict[str, Gauge] = {}
        self._values: dict[tuple[str, str], float] = {}  # by gauge and tag
        self._cached: Counter[str] = Counter()
        self._well = True

    def begin(self, round: int, rounds: int) -> None:
        """Start to repeat all gauges for as long as this process lives."""
        threading.Thread(target=self._repeat, daemon=True).start()
        self._set("fedray_round", round)
        self._set("fedray_rounds", rounds)

    def cached(self, cache: str, hits: int, of: int) -> None:
        """Count `hits` among `of` look-ups in a cache. `cache`: init | prepared."""
        self._cached += Counter({f"hits {cache}": hits, f"misses {cache}": of - hits})
        for outcome in ("hits", "misses"):
            self._set(f"fedray_cache_{outcome}", self._cached[f"{outcome} {cache}"], cache)

    def scored(self, metrics: Mapping[str, Any]) -> None:
        """Set the dev scores among these metrics."""
        for name, value in metrics.items():
            if name.startswith("dev/"):
                self._set("fedray_dev", value, name)

    def round(self, row: Mapping[str, Any], after: Progress, best: str, idle: Sequence[float], replaced: int) -> None:
        """Set the gauges of a round.

        `row`: of metrics.jsonl. `best`: the metric that picks the best round. `idle`: the idle share of each actor.
        `replaced`: actors that were replaced since the driver started.
        """
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
        for name, key in (VIRTUAL | PRIVATE).items():
            for column, value in row.items():
                if column.partition("|")[0] == key:
                    self._set(name, value, column.partition("|")[2])
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
        # Ray sends tags as ASCII.
        tags = {"run": self.run.encode("ascii", "backslashreplace").decode()} | ({key: tag} if key else {})
        try:
            if name not in self._made:
                self._made[name] = Gauge(name, description, tuple(tags))
            self._made[name].set(value, tags)
        except Exception as error:  # noqa: BLE001 - no dashboard is worth a run
            self._well = False
            self._warn(f"dashboards no longer show this run: {error!r}")
