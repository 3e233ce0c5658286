"""The contents of one run folder: configuration, rounds, results, predictions and personal scores."""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fedray.config.merging import dotted
from fedray.core.metrics import ALONE
from fedray.report import files
from fedray.report.files import Json
from fedray.report.predictions import NAME, Predictions
from fedray.report.words import of_a_cohort, rising
from fedray.runs import trips_table
from fedray.runs.folder import TRIPS, RunFolder
from fedray.runs.scores import check_results
from fedray.runs.strangers import check_files, parquet_table, read_config

# Metrics that count one round in a row, and all rounds in results.json.
SUMS = ("clients/failed", "engine/killed", "traffic/up_bytes", "traffic/down_bytes")
# Prefixes of metrics whose value in the last row is the total of all rounds.
TOTALS = ("traffic/total", "virtual/hours", "virtual/device_hours", "virtual/energy_wh", "virtual/wasted_share")


@dataclass(frozen=True, eq=False)
class Run:
    """A run folder's contents. `results` is None while the run is not finished; `rows` has a row per finished round."""

    folder: RunFolder
    name: str  # of the folder, without the beginning that the names of all runs share
    config: Mapping[str, Any]
    rows: Sequence[Json]
    results: Json | None
    versions: Json
    failures: Sequence[Json]
    drawn: Json  # the values that Tune drew for the trial

    @classmethod
    def read(cls, folder: RunFolder, name: str, trial: RunFolder | None = None) -> Run:
        """Read a run folder; `trial` is Tune's folder around it, which has params.json.

        Raises ValueError with the name of a damaged file.
        """
        check_files(folder, files.FILES)
        if trial is not None:
            check_files(trial, ["params.json"])
        config = read_config(folder)
        results, versions = files.read_json(folder, "results.json"), files.read_json(folder, "run.json") or {}
        files.check_changes(versions, folder.storage.shown("run.json"))
        if results is not None:
            check_results(results, folder.storage.shown("results.json"))
        return cls(
            folder,
            name,
            config,
            files.rows(folder, "metrics.jsonl"),
            results,
            versions,
            files.rows(folder, "failures.jsonl"),
            files.read_json(trial, "params.json") or {} if trial else {},
        )

    @functools.cached_property
    def settings(self) -> Json:
        """The configuration by dotted keys, lists being values, and the values that Tune drew under other names."""
        return dict(self.drawn) | dotted(self.config)

    @property
    def finished(self) -> bool:
        return self.results is not None

    def still_improving(self, metric: str) -> bool:
        """Whether the best round is in the last tenth of a finished run's, so that more rounds might be better.

        If `metric` is a personal score, the scores of the rounds' cohorts count instead. False if there is only one
        score.
        """
        if not self.finished:
            return False
        if name := self.of_cohorts(metric):
            scores = self.column(name)
            known = np.flatnonzero(~np.isnan(scores))
            at = int(known[(scores if rising(metric) else -scores)[known].argmax()])
            return len(known) > 1 and 10 * self.rows[at]["round"] > 9 * self.rounds
        scored = [row for row in self.rows if any(row[name] is not None for name in row if name.startswith(self.judge))]
        return bool(self.judge) and len(scored) > 1 and 10 * self.best["round"] > 9 * self.rounds

    @property
    def judge(self) -> str:
        """What chooses the best round: the score of `evaluation.best`, else "dev/", or "" without dev."""
        names = [*self.best, *(self.rows[0] if self.rows else ())]
        return self.settings.get("evaluation.best") or "dev/" * any(name.startswith("dev/") for name in names)

    def of_cohorts(self, metric: str) -> str:
        """The column with the personal scores of the rounds' cohorts, "" without one.

        Its name is personal/own_<score> for personal/own/<score>, and personal/<score> for another split, such as dev.
        """
        parts = metric.split("/")
        name = f"personal/{'own_' * (parts[1:-1] == ['own'])}{parts[-1]}"
        known = parts[0] == "personal" and any(row.get(name) is not None for row in self.rows)
        return name if known else ""

    @property
    def rounds(self) -> int:
        """The number of finished rounds."""
        return int(self.rows[-1]["round"]) if self.rows else 0

    @property
    def signatures(self) -> Mapping[str, str]:
        """Score -> how it was computed, for BLEU and the like."""
        signatures: Mapping[str, str] = (self.results or {}).get("signatures", {})
        return signatures

    @functools.cached_property
    def predictions(self) -> Predictions | None:
        """The table of predictions.tsv; None if the run is not finished, or nothing was scored."""
        if not self.finished or not self.folder.exists(NAME):
            return None
        return Predictions.read(self.folder, self.signatures.get("bleu", ""))

    @functools.cached_property
    def clients(self) -> pa.Table | None:
        """A row per client that took part: client, rounds, failures, last_round, report/*. None before the run ends."""
        return files.table(self.folder, "clients.parquet", parquet_table, "client", "rounds")

    @functools.cached_property
    def personal(self) -> pa.Table | None:
        """A row per client and split: client, split, and personal scores. None without `evaluation.personal_final`."""
        return files.table(self.folder, "personal.tsv", files.tsv, "client", "split")

    def of_clients(self, metric: str) -> dict[str, float]:
        """Client -> its score, for a metric personal/<split>/<score>; a client without a score is missing."""
        _, split, name = metric.split("/")
        if self.personal is None or name not in self.personal.column_names:
            return {}
        columns = (self.personal[each].to_pylist() for each in ("client", "split", name))
        return {
            client: float(value)
            for client, where, value in zip(*columns, strict=True)
            if where == split and value is not None and np.isfinite(value)
        }

    @functools.cached_property
    def trips(self) -> pa.Table | None:
        """A row per trip: round, client, class, model, start_s, end_s, fate, used, ... None without devices."""
        found = files.table(self.folder, trips_table.NAME, trips_table.read_parquet) if self.finished else None
        if found is None and self.folder.exists(TRIPS):
            found = trips_table.read_lines(self.folder)
        return found

    @property
    def devices(self) -> Mapping[str, int]:
        """Class of devices -> the number of clients that have one; empty without devices, or before the run ends."""
        clients: Mapping[str, int] = (self.results or {}).get("devices", {})
        return clients

    @functools.cached_property
    def audit(self) -> pa.Table | None:
        """A row per candidate of the audit: client, inside (0 or 1), score. None without candidates.

        None before the run ends too: only results.json tells whether audit.tsv is of an audit with candidates.
        """
        found = (self.results or {}).get("audit")
        if self.results is None or (isinstance(found, dict) and "inside" not in found):
            return None
        return files.table(self.folder, "audit.tsv", files.tsv, "client", "inside", "score")

    def column(self, metric: str) -> np.ndarray:
        """A metric over the rounds, float64 [len(rows)]; NaN where it was not measured."""
        values = [row.get(metric) for row in self.rows]
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    @functools.cached_property
    def best(self) -> Mapping[str, float]:
        """Scores of the best round, its "round", and under personal/ the clients' mean scores after the last round.

        An unfinished run has dev scores only, or those of `evaluation.best`'s split: of its best round so far.
        """
        if self.results is not None:
            scores: dict[str, float] = dict(self.results["best"])
            for name, value in self.results.get("personal", {}).items():
                if "/" in name and not name.endswith("_sd"):
                    scores[f"personal/{name}"] = value
            return scores
        asked = self.settings.get("evaluation.best")
        part = (asked or "dev/").partition("/")[0]
        names = [name for name in (self.rows[0] if self.rows else ()) if name.startswith(f"{part}/")]
        judged = next((name for name in (asked, "dev/wer", "dev/accuracy", "dev/bleu", *names) if name in names), None)
        if judged is None or np.isnan(column := self.column(judged)).all():
            return {}
        row = self.rows[int(np.nanargmax(column) if rising(judged) else np.nanargmin(column))]
        return {"round": row["round"]} | {name: row[name] for name in names}

    @property
    def seed_model(self) -> Mapping[str, float]:
        """The seed model's scores that are numbers, and "round", which is 0; empty while the run is not finished.

        A personal score starts from that of the shared model alone (`ALONE`) if the run has both.
        """
        scores: dict[str, float | None] = dict(self.results["seed"]) if self.results is not None else {}
        scores |= {name.removesuffix(ALONE): value for name, value in self.best.items() if name.endswith(ALONE)}
        return {name: value for name, value in scores.items() if value is not None and not math.isnan(value)}

    def value(self, metric: str) -> float | None:
        """The best round's score, else a total of the run, else one of the cohorts', else the mean over the rounds.

        A personal score is that of the best round's cohort if such a score chose the round, else that of the last
        cohort that was scored. None if the value is missing or NaN.
        """
        known = {**self._totals(metric), **self.best}
        found = known.get(metric)
        if metric not in known and not np.isnan(column := self.column(metric)).all():
            found = self._of_cohort(column) if of_a_cohort(metric) else float(np.nanmean(column))
        return None if found is None or math.isnan(found) else float(found)

    def rounds_of(self, metric: str) -> str:
        """Whose rounds `value` is from, in words; "" for a score of the best round and for a total of the run."""
        if metric in {**self._totals(metric), **self.best} or np.isnan(self.column(metric)).all():
            return ""
        if not of_a_cohort(metric):
            return "the mean over the rounds"
        return f"of the cohort of the {'best' if of_a_cohort(self.judge) else 'last scored'} round"

    def _totals(self, metric: str) -> Mapping[str, Any]:
        """What may hold the total of a metric over all rounds."""
        if self.results is None and self.rows and metric.startswith(TOTALS):
            return self.rows[-1]
        if self.results is None and self.rows and metric in SUMS:
            return {metric: float(np.nansum(self.column(metric)))}
        return self.results or {}

    def _of_cohort(self, column: np.ndarray) -> float:
        """A personal score of the cohort of the best round if such a score chose it, else of the last scored one."""
        known = np.flatnonzero(~np.isnan(column)).tolist()
        best = [at for at in known if of_a_cohort(self.judge) and self.rows[at]["round"] == self.best.get("round")]
        return float(column[(best or known)[-1]])

    @property
    def metrics(self) -> list[str]:
        """All metrics that `value` knows."""
        names = [*self.best, *(self.results or {}), *(self.rows[0] if self.rows else ())]
        return [name for name in dict.fromkeys(names) if "/" in name]


def known_metric(metric: str, runs: Iterable[Run]) -> str:
    """The metric if a run has it. Raises ValueError with the nearest name, or with all names."""
    names = list(dict.fromkeys(name for run in runs for name in run.metrics))
    if metric not in names:
        near = difflib.get_close_matches(metric, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names) or 'none yet'}"
        raise ValueError(f"no run has the metric {metric}; {hint}")
    return metric
