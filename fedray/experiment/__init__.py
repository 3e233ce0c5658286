"""From a configuration to a run: load it, check it, build what actors need, start or resume the run."""

from __future__ import annotations

from fedray.experiment.builders import build_algorithm, build_data, build_program, read_corpus, read_federation
from fedray.experiment.checks import check, check_setup
from fedray.experiment.config import Audible, Config, load, load_as, tell_replaced
from fedray.experiment.description import carried_on, description
from fedray.experiment.launch import assign, build, reopen, resume, run
from fedray.experiment.private import paced_by
from fedray.experiment.result import Result
from fedray.experiment.workbench import RunState, Workbench, open

__all__ = [
    "Audible",
    "Config",
    "Result",
    "RunState",
    "Workbench",
    "assign",
    "build",
    "build_algorithm",
    "build_data",
    "build_program",
    "check",
    "check_setup",
    "carried_on",
    "description",
    "load",
    "load_as",
    "open",
    "paced_by",
    "read_corpus",
    "read_federation",
    "reopen",
    "resume",
    "run",
    "tell_replaced",
]
