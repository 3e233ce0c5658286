"""The tables of private and audited runs: what was spent, what an attacker finds, and the bounds of layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fedray.core.privacy.likeness import MODELS
from fedray.report.groups import Group
from fedray.report.recorded import Run

AUDIT = (
    "A fair coin put each candidate inside the federation or outside. AUROC: the probability that the attacker tells "
    "one of each apart. The rate at 1 % false positives and the lower bounds on epsilon hold with 95 % confidence. A "
    "bound above the claimed epsilon refutes it; one below proves nothing."
)
SPENT = (
    "Epsilon is the guarantee of each client at the delta next to it: that of the larger federation where `as_if` "
    "claims one, and that of the simulated clients. Signal to noise and the share of clients whose update was "
    "longer than its bound are means over the rounds. Choosing among several private runs spends more than one run."
)
UPDATES = (
    "An attacker sees the updates of clients, or their sums, and knows the data of auxiliary clients. Chance: the "
    "accuracy of the most frequent value among these. AUROC: each value against the others, or updates of the same "
    "client against those of two; 0.5 is guessing. Intervals hold 95 % of a bootstrap over clients."
)
INVERSIONS = (
    "An attacker reconstructs log-mels from the update of a client that trained on one or a few utterances, from the "
    "run's first model and from its last. Likeness: the highest correlation with the true ones over shifts in time, "
    "with a 95 % interval of a bootstrap over clients; beside it that with other utterances of the same words, which a "
    "guess would reach. Recognised: no other utterance is as similar."
)
LAYERS = "Means over the rounds: the bound of a client's update, and the share of clients whose update was longer."
Row = dict[str, str]


def spent(groups: Sequence[Group]) -> list[Row]:
    """A row for each finished private run."""
    return [_spent(group, run) for group in groups for run in group.finished if part(run, "privacy")]


def audits(groups: Sequence[Group]) -> list[Row]:
    """A row for each run with an audit of who took part."""
    return [_audit(group, run) for group, run in _audited(groups) if "inside" in part(run, "audit")]


def updates(groups: Sequence[Group]) -> list[Row]:
    """A row for each attribute that an audit of updates attacked, in each of its runs."""
    return [
        row
        for group, run in _audited(groups)
        if part(run, "audit").get("kind") == "updates"
        for row in _updates(group, run)
    ]


def inversions(groups: Sequence[Group]) -> list[Row]:
    """A row for each model from which an audit inverted updates, in each of its runs."""
    return [
        _inverted(group, run, model)
        for group, run in _audited(groups)
        if part(run, "audit").get("kind") == "inversion"
        for model in MODELS
    ]


def layers(groups: Sequence[Group]) -> list[Row]:
    """A row for each layer with its own bound, in each group of private runs."""
    return [row for group in groups for row in _layers(group)]


def _spent(group: Group, run: Run) -> Row:
    found = part(run, "privacy")
    shares = [_mean([run], name) for name in _columns([run], "privacy/clipped")]
    clipped = [share for share in shares if share is not None]
    simulated = _epsilon(found["epsilon_simulated"]) if "epsilon_simulated" in found else ""
    return {
        "": group.label,
        "seed": str(run.settings.get("seed", "")),
        "epsilon": _epsilon(found.get("epsilon")),
        "epsilon as simulated": simulated,
        "delta": f"{found['delta']:g}",
        "noise multiplier": _number(found.get("noise"), 3),
        "signal to noise": _number(_mean([run], "privacy/snr"), 2),
        "clipped (%)": _percent(float(np.mean(clipped))) if clipped else "",
    }


def _audit(group: Group, run: Run) -> Row:
    found = part(run, "audit")
    rate, low, high = (_percent(found.get(f"true_positives{end}")) for end in ("", "_low", "_high"))
    return {
        "": group.label,
        "seed": str(run.settings.get("seed", "")),
        "candidates": str(found.get("kind", "")),
        "inside, outside": f"{found.get('inside')}, {found.get('outside')}",
        "AUROC": _number(found.get("auroc"), 3),
        "true positives at 1 % false ones (%)": f"{rate} ({low} to {high})",
        "epsilon at least": _number(found.get("epsilon_low"), 2),
        "epsilon claimed": _number(found.get("epsilon_claimed"), 2) or "none",
        "refuted": "yes" if found.get("refuted") else "no",
    }


def _updates(group: Group, run: Run) -> Iterator[Row]:
    for count, found in part(run, "audit").get("sums", {}).items():
        for name, one in {**found.get("attributes", {}), "same client": found.get("same_client")}.items():
            if one is None:
                continue
            yield {
                "": group.label,
                "seed": str(run.settings.get("seed", "")),
                "updates in a sum": count,
                "attribute": name,
                "clients": str(one.get("clients", "")),
                "accuracy (%)": _percent(one.get("accuracy", one.get("first"))),
                "chance (%)": _percent(one.get("chance")),
                "AUROC": "{} ({} to {})".format(*(_number(one.get(f"auroc{end}"), 2) for end in ("", "_low", "_high"))),
            }


def _inverted(group: Group, run: Run, model: str) -> Row:
    found = part(run, "audit").get(model, {})
    return {
        "": group.label,
        "seed": str(run.settings.get("seed", "")),
        "model": model,
        "utterances in an update": str(run.settings.get("audit.utterances", "")),
        "likeness": "{} ({} to {})".format(*(_number(found.get(f"likeness{end}"), 2) for end in ("", "_low", "_high"))),
        "likeness to others": _number(found.get("others"), 2),
        "recognised (%)": _percent(found.get("first")),
        "chance (%)": _percent(found.get("chance")),
    }


def _audited(groups: Sequence[Group]) -> list[tuple[Group, Run]]:
    return [(group, run) for group in groups for run in group.finished if part(run, "audit")]


def _layers(group: Group) -> Iterator[Row]:
    for layer in filter(None, (name.partition("|")[2] for name in _columns(group.runs, "privacy/bound"))):
        bound, clipped = (_mean(group.runs, f"privacy/{what}|{layer}") for what in ("bound", "clipped"))
        yield {"": group.label, "layer": layer, "bound": _number(bound, 4), "clipped (%)": _percent(clipped)}


def part(run: Run, name: str) -> dict[str, Any]:
    """A section of results.json; empty where there is none."""
    found = (run.results or {}).get(name)
    return found if isinstance(found, dict) else {}


def _columns(runs: Sequence[Run], metric: str) -> list[str]:
    """The columns of a metric: its own, or METRIC|LAYER for each layer."""
    names = (name for run in runs for row in run.rows for name in row if name.partition("|")[0] == metric)
    return list(dict.fromkeys(names))


def _mean(runs: Sequence[Run], metric: str) -> float | None:
    values = np.concatenate([run.column(metric) for run in runs])
    return float(np.nanmean(values)) if np.isfinite(values).any() else None


def _number(value: object, digits: int) -> str:
    return f"{value:.{digits}f}" if isinstance(value, int | float) else ""


def _epsilon(value: object) -> str:
    if not isinstance(value, int | float):
        return "no guarantee"
    return f"{value:.3f}" if value < 1000 else f"{value:,.0f}"


def _percent(value: object) -> str:
    return f"{100 * value:.0f}" if isinstance(value, int | float) else ""
