"""What runs have left on disk: run folders found below a path, and what is in each of them."""

from __future__ import annotations

import difflib
import functools
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pyarrow.csv import ConvertOptions, ParseOptions, read_csv

from fedray.core.metrics import ALONE
from fedray.core.storage import below
from fedray.engine.folder import RunFolder
from fedray.report.predictions import MODELS, NAME, Predictions

REMEDY = "restore it, or remove it to do without"
TEXTS = {"client": pa.string(), "split": pa.string()}  # in own.tsv, whatever they look like
RISING = ("accuracy", "f1", "bleu")  # what metrics are called, at the end, that are to be large


@dataclass(frozen=True, eq=False)
class Run:
    """A run folder's contents. `results` is None while the run is not finished; `rows` are the rounds that it has played."""

    folder: RunFolder
    name: str  # of the folder, as short as it can be told from the others'
    config: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    results: Mapping[str, Any] | None
    versions: Mapping[str, Any]
    failures: Sequence[Mapping[str, Any]]
    drawn: Mapping[str, Any]  # by Tune, for the trial that the run is

    @classmethod
    def read(cls, folder: RunFolder, name: str, trial: RunFolder | None = None) -> Run:
        """`trial`: the folder around it, which has params.json if Tune made it. ValueError: a file is damaged; it is named."""
        try:
            config = yaml.safe_load(folder.read_text("config.yaml"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ValueError(f"{folder.storage.shown('config.yaml')}: is not YAML ({error}): restore it") from error
        if not isinstance(config, Mapping):
            raise ValueError(f"{folder.storage.shown('config.yaml')}: holds no configuration: restore it")
        results, versions = _json(folder, "results.json"), _json(folder, "run.json") or {}
        if results is not None and not all(isinstance(results.get(model), Mapping) for model in MODELS):
            raise ValueError(f"{folder.storage.shown('results.json')}: lacks the scores of seed or best: {REMEDY}")
        rows, failures = _rows(folder, "metrics.jsonl"), _rows(folder, "failures.jsonl")
        return cls(folder, name, config, rows, results, versions, failures, _json(trial, "params.json") or {} if trial else {})

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The configuration by dotted keys, lists being values; and what Tune drew under other names (several keys may follow from it)."""
        return dict(self.drawn) | dict(_flat(self.config, ""))

    @property
    def finished(self) -> bool:
        return self.results is not None

    @property
    def rounds(self) -> int:
        """Rounds played."""
        return int(self.rows[-1]["round"]) if self.rows else 0

    @functools.cached_property
    def predictions(self) -> Predictions | None:
        """None: the run is not finished, or nothing was scored."""
        return Predictions.read(self.folder) if self.finished and self.folder.exists(NAME) else None

    @functools.cached_property
    def clients(self) -> pa.Table | None:
        """Of each client that took part: client, rounds, failures, last_round, report/*. None: the run is not finished."""
        return self._table("clients.parquet", pq.read_table)

    @functools.cached_property
    def own(self) -> pa.Table | None:
        """Of each client's own model and split: client, split, and scores. None: they were not scored in the end."""
        return self._table("own.tsv", lambda file: read_csv(file, None, ParseOptions(delimiter="\t"), ConvertOptions(column_types=TEXTS)))

    def _table(self, name: str, read: Callable[[pa.BufferReader], pa.Table]) -> pa.Table | None:
        if not self.folder.exists(name):
            return None
        try:
            return read(pa.BufferReader(self.folder.storage.read(name)))
        except pa.ArrowInvalid as error:
            raise ValueError(f"{self.folder.storage.shown(name)}: is damaged ({error}): remove it to do without") from error

    def column(self, metric: str) -> np.ndarray:
        """A metric over the rounds, float64 [len(rows)]; NaN where it was not measured."""
        values = [row.get(metric) for row in self.rows]
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    @functools.cached_property
    def best(self) -> Mapping[str, Any]:
        """Scores of the best round, and "round"; under own/, means of the clients' own models after the last round.

        Of an unfinished run: of the best so far on dev, which is all that was scored.
        """
        if self.results is not None:
            own = {f"own/{name}": value for name, value in self.results.get("own", {}).items() if "/" in name and not name.endswith("_sd")}
            return self.results["best"] | own
        names = [name for name in (self.rows[0] if self.rows else ()) if name.startswith("dev/")]
        judged = next((name for name in ("dev/wer", "dev/accuracy", *names) if name in names), None)
        if judged is None or np.isnan(column := self.column(judged)).all():
            return {}
        row = self.rows[int(np.nanargmax(column) if rising(judged) else np.nanargmin(column))]
        return {"round": row["round"]} | {name: row[name] for name in names}

    @property
    def seed_model(self) -> Mapping[str, Any]:
        """Scores of the seed model, those that are numbers, and "round", which is 0; empty while the run is not finished.

        Own models that were scored without what is the client's own too, such as its memory, begin with that score.
        """
        scores = self.results["seed"] if self.results is not None else {}
        scores = scores | {name.removesuffix(ALONE): value for name, value in self.best.items() if name.endswith(ALONE)}
        return {name: value for name, value in scores.items() if value is not None and not math.isnan(value)}

    def value(self, metric: str) -> float | None:
        """The best round's score, else a total of the run, else the mean over the rounds; None: this run does not have it, or as NaN."""
        totals = self.results or (self.rows[-1] if self.rows and metric.startswith("traffic/total") else {})
        found = self.best.get(metric, totals.get(metric))
        if found is None and not np.isnan(column := self.column(metric)).all():
            found = float(np.nanmean(column))
        return None if found is None or math.isnan(found) else float(found)

    @property
    def metrics(self) -> list[str]:
        """All that `value` knows."""
        names = [*self.best, *(self.results or {}), *(self.rows[0] if self.rows else ())]
        return [name for name in dict.fromkeys(names) if "/" in name]


def rising(metric: str) -> bool:
    """Whether large is good."""
    return metric.endswith(RISING)


def known_metric(metric: str, runs: Iterable[Run]) -> str:
    """The metric, if a run has it; else a ValueError with those there are."""
    names = list(dict.fromkeys(name for run in runs for name in run.metrics))
    if metric not in names:
        near = difflib.get_close_matches(metric, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names) or 'none yet'}"
        raise ValueError(f"no run has the metric {metric}; {hint}")
    return metric


def find(paths: Sequence[str | Path]) -> list[Run]:
    """The runs at or below the paths, in the order of their names, unfinished ones too.

    ValueError: a path holds none, or a file is damaged.
    """
    if not paths:
        raise ValueError("name at least one run folder, or a folder that holds some")
    folders: dict[str, tuple[RunFolder, RunFolder | None]] = {}
    for path in paths:
        found = _below(path)
        if not found:
            raise ValueError(f"{path}: there is no run in it: a run folder has a config.yaml and a metrics.jsonl")
        folders |= {folder.place: (folder, trial) for folder, trial in found}
    named = [trial or folder for folder, trial in folders.values()]
    names = _short([str(folder.root.resolve()) if folder.root is not None else folder.place for folder in named])
    return [Run.read(folder, name, trial) for (folder, trial), name in zip(folders.values(), names, strict=True)]


def _below(path: str | Path) -> list[tuple[RunFolder, RunFolder | None]]:
    """The run folder at the path, or those below it; each with its trial, if it is one's.

    Of a trial's run, run-01, run-02, ... the last, which went on from another's checkpoint.
    """
    folder, place = RunFolder(path), os.fspath(path)
    if folder.exists("config.yaml"):
        return [(folder, _trial(RunFolder(folder.root.resolve().parent)) if folder.root is not None else None)]
    if folder.root is not None and not folder.root.is_dir():
        raise ValueError(f"{folder.root}: there is no such folder; name a run folder, or one that holds some, such as runs")
    around: dict[str, list[str]] = {}
    for name in _walk(folder.root, "") if folder.root is not None else _listed(folder):
        outer, _, own = name.rpartition("/")
        around.setdefault(outer, []).append(own)
    found = []
    for outer, names in around.items():
        trial = _trial(RunFolder(below(place, outer) if outer else place))
        if trial is not None:
            names = names[-1:]
        found += [(RunFolder(below(place, "/".join(filter(None, (outer, name))))), trial) for name in names]
    return found


def _trial(folder: RunFolder) -> RunFolder | None:
    """The folder, if Tune made it for a trial: then all that are in it are attempts at one run."""
    return folder if folder.exists("params.json") else None


def _walk(root: Path, name: str) -> Iterator[str]:
    """Relative names of the folders that have a config.yaml, none within another; not of Tune's checkpoints, which are copies."""
    for entry in sorted(root.iterdir()):
        if entry.is_dir() and not entry.name.startswith((".", "checkpoint")):
            if (entry / "config.yaml").is_file():
                yield f"{name}{entry.name}"
            else:
                yield from _walk(entry, f"{name}{entry.name}/")


def _listed(folder: RunFolder) -> list[str]:
    """The same on object storage."""
    names = sorted(name.removesuffix("/config.yaml") for name in folder.storage.files() if name.endswith("/config.yaml"))
    return [name for name in names if not any(name.startswith(f"{other}/") for other in names) and "/checkpoint" not in f"/{name}"]


def trials_without_a_run(paths: Sequence[str | Path]) -> list[str]:
    """Tune's trials in the folders that failed, or were ended, before their run began."""
    trials = [params.parent for path in paths if "://" not in str(path) for params in Path(path).glob("*/params.json")]
    return sorted(trial.name for trial in trials if not any(trial.glob("run*/config.yaml")))


def _short(places: Sequence[str]) -> list[str]:
    """Without what all of them begin with."""
    parts = [re.split(r"[/\\]", place.partition("?")[0].rstrip("/")) for place in places]
    common = 0
    while all(len(part) > common + 1 and part[common] == parts[0][common] for part in parts):
        common += 1
    return ["/".join(part[common:]) for part in parts]


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _rows(folder: RunFolder, name: str) -> list[dict[str, Any]]:
    rows = folder.rows(name)
    odd = next((number for number, row in enumerate(rows, 1) if not isinstance(row, dict) or not isinstance(row.get("round"), int)), None)
    if odd is not None:
        raise ValueError(f"{folder.storage.shown(name)}:{odd}: is no row of a round: remove the line to go on without it")
    return rows


def _json(folder: RunFolder, name: str) -> dict[str, Any] | None:
    """An object; None: there is no such file."""
    if not folder.exists(name):
        return None
    try:
        values = json.loads(folder.read_text(name))
    except ValueError as error:
        raise ValueError(f"{folder.storage.shown(name)}: is damaged ({error}): {REMEDY}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{folder.storage.shown(name)}: holds no object: {REMEDY}")
    return values
