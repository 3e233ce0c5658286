"""What the studies share: runs that go on where they were cut off, paired bootstrap intervals, and the pages that hold their numbers."""

from __future__ import annotations

import csv
import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
import yaml

import fedray
from fedray import experiment
from fedray.core.cache import write_atomically

ROOT = Path(__file__).resolve().parents[1]
DRAWS = 5000  # of the bootstrap
Counts = Mapping[str, tuple[int, int]]  # unit that is resampled (an utterance, a recording) -> words and errors


def run(config: str, overrides: Sequence[str], out: Path) -> dict[str, Any]:
    """The results of a run of `config` (relative to the repository) in the folder `out`: made, gone on with, or found finished.

    Ends the program when the run was stopped by Ctrl-C; raises ValueError when `out` holds a run with other settings.
    """
    settings = yaml.safe_dump(experiment.plain(experiment.with_absolute_paths(experiment.load(ROOT / config, overrides)[0])))
    if not (out / "config.yaml").exists():
        results = experiment.run(ROOT / config, overrides, out=out).results
    elif yaml.safe_load((out / "config.yaml").read_text(encoding="utf-8")) != yaml.safe_load(settings):
        raise ValueError(f"{out} holds a run with other settings than {config} {' '.join(overrides)}: move it away")
    elif (out / "results.json").exists():
        results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    else:
        results = experiment.resume(out).results
    if "stopped" in results:
        sys.exit(f"stopped after round {results['stopped']} of {out}; the same command goes on")
    return results


def rounds(out: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl."""
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def predictions(out: Path, model: str, split: str = "test") -> list[dict[str, str]]:
    """The rows of predictions.tsv of a model (seed | best) on a split."""
    with (out / "predictions.tsv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [row for row in rows if row["model"] == model and row["split"] == split]


def by_utterance(rows: Sequence[Mapping[str, str]], column: str = "errors") -> dict[str, tuple[int, int]]:
    """Counts of utterances; `column` is errors (greedy), errors_lm or errors_lexicon."""
    return {row["utterance"]: (int(row["words"]), int(row[column])) for row in rows}


@dataclass(frozen=True)
class Change:
    """The change of the word error rate, mean over runs, with its 95 % interval; `runs` are each run's own."""

    mean: float
    low: float
    high: float
    runs: tuple[float, ...]
    unit: str  # "%": relative to before; "points": of the rate in percent

    def __str__(self) -> str:
        return f"{self.mean:+.1f} {self.unit} [{self.low:+.1f}, {self.high:+.1f}]"


def change(before: Sequence[Counts], after: Sequence[Counts], unit: str = "%", seed: int = 0) -> Change:
    """Paired bootstrap of one or more runs (seeds, splits): units are drawn with replacement, the same for both models and all runs.

    Take the unit "points" where a run may have had next to no errors before.
    """
    units = sorted({unit for counts in before for unit in counts})
    pairs = list(zip(before, after, strict=True))
    if any(one.keys() != other.keys() for one, other in pairs):
        raise ValueError("before and after must have scored the same units")
    # [units, runs, (words, errors before, errors after)]; a unit that is not in a run's test set counts nothing there.
    table = np.array([[(*one.get(unit, (0, 0)), other.get(unit, (0, 0))[1]) for one, other in pairs] for unit in units], dtype=np.float64)
    generator = np.random.default_rng(seed)
    weights = generator.multinomial(len(units), np.full(len(units), 1 / len(units)), size=DRAWS)
    drawn = np.tensordot(np.concatenate([np.ones((1, len(units))), weights]), table, axes=1)
    changes = 100 * (drawn[..., 2] - drawn[..., 1]) / drawn[..., 1 if unit == "%" else 0]
    low, high = np.quantile(changes[1:].mean(axis=1), [0.025, 0.975])
    return Change(float(changes[0].mean()), float(low), float(high), tuple(changes[0].tolist()), unit)


def machine() -> dict[str, Any]:
    """What the numbers were measured on, and when."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "ray": ray.__version__,
        "fedray": fedray.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown; columns are the keys of the first row, numbers get one digit after the point."""
    columns = list(rows[0])
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1)]
    lines += [[f"{row[name]:.1f}" if isinstance(row[name], float) else str(row[name]) for name in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(study: str, text: str, numbers: Mapping[str, Any], command: str, seeds: Sequence[int]) -> None:
    """benchmarks/<study>.md, which is `text` and where it comes from, and benchmarks/<study>.json."""
    here = machine()
    source = f"`{command}`, seeds {', '.join(map(str, seeds))}; {here['cpu']}, {here['cores']} cores, Python {here['python']}, "
    source += f"torch {here['torch']}, Ray {here['ray']}, fedray {here['fedray']}; {here['date']}."
    described = {"command": command, "seeds": list(seeds), "machine": here, **numbers}
    contents = {f"{study}.md": f"{text.rstrip()}\n\n{source}\n", f"{study}.json": json.dumps(described, indent=1) + "\n"}
    for name, content in contents.items():
        write_atomically(ROOT / "benchmarks" / name, lambda path, content=content: path.write_text(content, encoding="utf-8"))
