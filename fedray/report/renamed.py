"""Former names in run folders: files, metrics and figures used to call personal scores "own"."""

from __future__ import annotations

from collections.abc import Mapping

from fedray.runs.folder import RunFolder

FORMER_FILES = {"personal.tsv": "own.tsv"}
FORMER_KEYS = {
    "own": "personal",
    "time/own_s": "time/personal_s",
    "time/own_actors_s": "time/personal_actors_s",
}
FORMER_SETTINGS = {
    "own_every": "personal_every",
    "own_utterances": "personal_utterances",
    "own_final": "personal_final",
    "own_final_utterances": "personal_final_utterances",
}


def file_name(folder: RunFolder, name: str) -> str:
    """The name under which the folder holds the file: the former one if only that exists."""
    former = FORMER_FILES.get(name, name)
    return former if folder.exists(former) and not folder.exists(name) else name


def metric(name: str) -> str:
    """The metric's present name: `own/test/wer` -> `personal/test/wer`."""
    name = FORMER_KEYS.get(name, name)
    return f"personal/{name.removeprefix('own/')}" if name.startswith("own/") else name


def metrics(row: Mapping[str, object]) -> dict[str, object]:
    """A row of metrics.jsonl, or the object of results.json, with the present names of its metrics."""
    return {metric(name): value for name, value in row.items()}


def settings(values: Mapping[str, object]) -> dict[str, object]:
    """A configuration, with the present names of the keys in its section `evaluation`."""
    section = values.get("evaluation")
    if not isinstance(section, Mapping):
        return dict(values)
    return dict(values) | {"evaluation": {FORMER_SETTINGS.get(key, key): value for key, value in section.items()}}


def sweep(values: Mapping[str, object]) -> dict[str, object]:
    """The object of sweep.json, with present names in its metric and in the descriptions of its figures."""
    found = dict(values)
    if isinstance(judged := found.get("metric"), str):
        found["metric"] = metric(judged)
    if isinstance(figures := found.get("figures"), list):
        found["figures"] = [_figure(figure) if isinstance(figure, Mapping) else figure for figure in figures]
    return found


def _figure(description: Mapping[str, object]) -> dict[str, object]:
    found = dict(description)
    if found.get("kind") == "own":
        found["kind"] = "personal"
    if isinstance(drawn := found.get("metric"), str):
        found["metric"] = metric(drawn)
    if isinstance(drawn := found.get("metrics"), list):
        found["metrics"] = [metric(name) if isinstance(name, str) else name for name in drawn]
    return found
