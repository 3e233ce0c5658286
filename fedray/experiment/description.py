"""run.json: all that the bits of a run depend on, and what has changed when the run is resumed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import ray

import fedray
from fedray.config.merging import dotted
from fedray.config.schema import plain
from fedray.config.source import Source
from fedray.config.written import recorded
from fedray.core import environment
from fedray.data.federation.speech_data import SpeechData
from fedray.engine.cluster.resources import Share
from fedray.engine.driver import session
from fedray.engine.jobs.work import Program
from fedray.experiment.cache_keys import model_files, source_of
from fedray.experiment.config import Config
from fedray.experiment.devices import fingerprint
from fedray.experiment.fitted import together
from fedray.experiment.private import paced_by
from fedray.models.checkpoint import hashes
from fedray.runs.folder import METRICS, RunFolder
from fedray.runs.places import RESUMABLE

ON_CPU = "the same bits for any number of actors, on one type of CPU with these versions"
ON_GPU = "up to what CUDA does deterministically; the backward passes of CTC and of reflection padding are not"
# Keys of a configuration that no bit depends on. A corpus may move: run.json has the fingerprint of its data.
FREE = (*RESUMABLE, "name", "imports", "data.text", "evaluation.patience")
# Keys that the account of a private run depends on.
COVERED = ("privacy.", "cohort.", "strategy.", "audit.", "seed ", "rounds ")
SAID = {  # what is compared, in words
    "code": "fedray's code",
    "algorithm": "the file of the algorithm",
    "devices": "a file of devices",
    "checkpoint": "the checkpoint of model.folder",
    "texts": "the normalisation of texts",
    "together": "clients trained side by side (engine.vectorise, engine.placement)",
}
HASHES = ("code", "algorithm", "devices", "checkpoint")  # whose values mean nothing to people
MOVED = "the corpus: its files are in another folder or have other modification times, with the same names and sizes"
NODES = ("nodes", "mixed")  # which the driver writes: see fedray.engine.cluster.mixed
NO_MATTER = ("fedray", "ray", "deterministic", "changes", "data_copied", *NODES)
APART = ("data", "imports", "files", "settings")  # not compared as a whole
# What every run.json has; later versions of fedray may record more.
SHAPE = {"data": str, "data_copied": str, "texts": list, "imports": dict, "files": dict, "settings": dict}

Description = dict[str, Any]


def description(config: Config, source: Source, program: Program, shares: Share) -> Description:
    """Versions, processor, device, hashes of code and data, settings, and how far the run is deterministic."""
    assert isinstance(program.data, SpeechData)
    return {
        "fedray": fedray.__version__,
        "code": environment.code(),
        "imports": {name: source_of(sys.modules[name]) for name in config.imports},
        "files": model_files(config.model.settings),
        **checkpoint(config.model.settings),
        "algorithm": source_of(type(program.algorithm)),
        **environment.versions(environment.LEARNING),
        "ray": ray.__version__,
        "python": environment.python(),
        "processor": environment.processor(),
        "device": session.device(shares.gpus),
        "data": program.data.fingerprint(),
        "texts": list(program.data.rules),
        "data_copied": program.data.fingerprint(copied=True),
        **fingerprint(config.devices),
        "together": together(config, shares.gpus > 0),
        "deterministic": ON_GPU if shares.gpus else ON_CPU,
        "settings": settings(config, source, program),
    }


def checkpoint(model: object) -> dict[str, Any]:
    """The revision and the hashes of the files of a checkpoint that the model starts from. `model`: its settings."""
    files = hashes(model)
    return {"checkpoint": {"revision": getattr(model, "revision", None), "files": files}} if files else {}


def settings(config: Config, source: Source, program: Program) -> dict[str, Any]:
    """The settings that bits depend on, by dotted keys. `rounds` is one of them if the algorithm is paced by it."""
    free = [name for name in FREE if name != "rounds" or not paced_by(config, program.algorithm)]
    values = dotted(recorded(plain(config), source))
    return {key: value for key, value in values.items() if not any(f"{key}.".startswith(f"{name}.") for name in free)}


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What has changed, one difference per entry. What an older version of fedray did not record is not compared."""
    compared = [name for name in before if name not in (*NO_MATTER, *APART) and before[name] != now.get(name)]
    changes = [_difference(name, before[name], now.get(name, "not installed")) for name in compared]
    if before["data"] != now["data"]:
        changes.append(MOVED)
    then, modules = before["imports"], now["imports"]
    changes += [f"the module {name} of `imports` has changed" for name in modules if then.get(name) != modules[name]]
    then, files = before["files"], now["files"]
    changes += [f"the file that {name} names has changed, or is gone" for name in then if then[name] != files.get(name)]
    old, new = before["settings"], json.loads(json.dumps(now["settings"]))  # as the file has it
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    changes += [f"{name} in config.yaml: {_shown(old.get(name))} -> {_shown(new.get(name))}" for name in names]
    return changes


def carried_on(
    folder: RunFolder, now: Description, paced: str | None, accept: bool, remedy: str = "accept_changes=True"
) -> Description:
    """The contents of run.json for a resumed run, with the changes that the user accepts.

    `remedy`: how the user accepts changes, in a message. ValueError: the data differ, something else that affects
    the result has changed without the user's consent, or the checkpoints are gone.
    """
    if not folder.exists("run.json"):
        raise ValueError(f"{folder.place} has no run.json, which records what the run began with: restore it")
    before: Description = folder.read_json("run.json")
    right = all(isinstance(before.get(name), kind) for name, kind in SHAPE.items())
    if not right or not isinstance(before.get("changes", []), list):
        raise ValueError(f"{folder.storage.shown('run.json')}: is not what fedray writes there: restore it")
    if before["data"] != now["data"] and before["data_copied"] != now["data_copied"]:
        raise ValueError(f"{folder.place}: {_other_data(before, now)}, so it cannot be resumed: begin a new run")
    changes, done = differences(before, now), max(folder.saved_rounds(), default=None)
    if done is None and folder.exists(METRICS) and folder.read_text(METRICS).strip():  # a checkpoint is before any row
        raise ValueError(
            f"{folder.place} has finished rounds but no checkpoint, so it would begin again: restore checkpoints/, or "
            "begin a new run"
        )
    if not changes:
        return before
    if done is None:  # no bit has been computed yet
        return now
    private = _private(before) or _private(now)
    if void := [line for line in changes if private and line.startswith(COVERED)]:
        raise ValueError(
            f"{folder.place}: the guarantee of its {done} rounds would be void:"
            + "".join(f"\n  {line}" for line in void)
            + "\nrestore this, or begin a new run"
        )
    if not accept:
        why = (
            [f"{paced} follows the number of rounds"] if paced and any("rounds in" in line for line in changes) else []
        )
        raise ValueError(
            f"{folder.place}: its bits depend on what has changed since round {done}:"
            + "".join(f"\n  {line}" for line in changes + why)
            + "\nrestore this, or accept that the result differs from that of an uninterrupted run: "
            f"{remedy}"
        )
    kept = {name: before[name] for name in NODES if name in before}
    return now | kept | {"changes": [*before.get("changes", []), {"after_round": done, "differences": changes}]}


def _other_data(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """How the data differ from those that a run began with, in words."""
    rules = (before["texts"], now["texts"])
    if rules[0] == rules[1]:
        return "the data differ from those the run began with (other rows or file sizes)"
    shown = (f"normalised by {', '.join(each)}" if each else "as the corpus has them" for each in rules)
    return "the data differ from those the run began with: texts were {}, and now {}".format(*shown)


def _private(described: Mapping[str, Any]) -> bool:
    return bool(described["settings"].get("privacy.kind", "none") != "none")


def _difference(name: str, before: Any, now: Any) -> str:
    said = SAID.get(name, name)
    return f"{said} has changed" if name in HASHES else f"{said}: {before} -> {now}"


def _shown(value: Any) -> str:
    return "nothing" if value is None else f"{value}"
