"""All private names of Ray that fedray uses, each with the reason. A new Ray may change them: look here first."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ray._private import state


def process_of(actor: Any) -> tuple[int, str]:
    """The process id of a live actor, and the IP address of its node.

    Ray's public state API (`ray.util.state.get_actor`) needs the dashboard, which a local Ray of fedray does not have,
    and an actor that hangs cannot be asked.
    """
    found = state.actors(actor._actor_id.hex())
    return int(found["Pid"]), str(found["Address"]["IPAddress"])


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
