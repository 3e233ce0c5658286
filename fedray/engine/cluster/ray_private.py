"""All private names of Ray that fedray uses, each with the reason. A new Ray may change them: look here first."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray._private import ray_constants, state
from ray._raylet import Config  # type: ignore[attr-defined]


def process_of(actor: Any) -> tuple[int, str]:
    """The process id of a live actor, and the IP address of its node.

    Ray's public state API (`ray.util.state.get_actor`) needs the dashboard, which a local Ray of fedray does not have,
    and an actor that hangs cannot be asked.
    """
    found = state.actors(actor._actor_id.hex())
    return int(found["Pid"]), str(found["Address"]["IPAddress"])


def use_token() -> None:
    """Turn Ray's token mode on in a process that has imported Ray without it; a mode that the user set stays.

    Ray 2.60 does this for a local Ray, and then advises in a warning to turn it off. Ray 2.55 does not do it.
    """
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"] = "token"
        Config.initialize("")


@contextmanager
def on_loopback() -> Iterator[None]:
    """A Ray that is started while open listens on the loopback only, and one that listens there can be joined.

    Ray has no argument for this: it replaces the loopback by the machine's address unless this switch is off. The
    environment tells the processes that Ray starts.
    """
    name, constant = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR, ray_constants.ENABLE_RAY_CLUSTER
    before = os.environ.get(name)
    os.environ[name], ray_constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = constant
        if before is None:
            os.environ.pop(name)
        else:
            os.environ[name] = before


class RestoredLog:
    """A mixin for Tune's loggers that write a file. Their public hooks come after the file has been restored."""

    def _restore_from_remote(self, file_name: str, trial: Any) -> None:
        """Restore the file without an incomplete last row; a local file is newer, and stays."""
        path = Path(trial.local_path, file_name)
        if path.exists():
            return
        super()._restore_from_remote(file_name, trial)  # type: ignore[misc]
        if path.exists():
            text = path.read_text(encoding="utf-8")
            path.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")


def open_table(logger: Any, trial: Any) -> bool:
    """Open a trial's progress.csv now, before Tune's logger writes its first row. False: it is open already."""
    if trial in logger._trial_files:
        return False
    logger._setup_trial(trial)
    return True


def keep_columns(logger: Any, trial: Any, columns: Sequence[str]) -> None:
    """Have Tune's logger write these columns to a trial's progress.csv: it would take those of the next row."""
    logger._trial_csv[trial] = csv.DictWriter(logger._trial_files[trial], columns)
