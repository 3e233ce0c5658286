"""The section `tracker` of a configuration: MLflow or Weights & Biases, which receive what TensorBoard receives.

Both packages are imported where they are used: neither is required, and each takes seconds to import.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from fedray.core.ranges import Ranged, one_of

ANSWER_SECONDS = 5.0  # for a server to accept a connection
FOLDER = "wandb"  # of Weights & Biases, in a run folder
KIND = {"mlflow.experimentKind": "custom_model_development"}  # MLflow's pages then show training runs, not chats
STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}  # how a run ended -> MLflow's word


@dataclass(frozen=True)
class Card:
    """What a tracker is told about a run before its first round."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)  # dotted keys of the configuration
    tags: Mapping[str, str] = field(default_factory=dict)
    sweep: str | None = None  # the name of the sweep that the run is a trial of
    parent: str | None = None  # the sweep's own id in the tracker


class Tracked(Protocol):
    """A run in a tracker. Every call may raise any error."""

    id: str

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Add finite numbers of a round."""

    def close(self, status: str, results: Mapping[str, float], files: Path) -> None:
        """End the run with its results and the files in a folder. `status`: finished | stopped | failed."""


class Tracker(Protocol):
    """The settings of a tracker."""

    def checked(self, base: Path) -> Self:
        """These settings, with absolute paths. `base`: the folder that paths are relative to.

        ValueError: the package is missing, or the settings are not usable.
        """

    def open(self, card: Card, id: str | None, folder: Path) -> Tracked | None:
        """Begin a run, or continue the run `id`. `folder`: a local folder for files. None: nothing is tracked."""


@dataclass(frozen=True)
class Nothing:
    """No tracker."""

    def checked(self, base: Path) -> Self:
        return self

    def open(self, card: Card, id: str | None, folder: Path) -> None:
        return None


@dataclass(frozen=True)
class MLflow:
    """MLflow: a server, or a database file."""

    uri: str | None = None  # null: MLFLOW_TRACKING_URI, else the file mlflow.db in the working folder
    experiment: str = "fedray"  # MLflow's experiment that gets the run

    def checked(self, base: Path) -> Self:
        _check_package("mlflow", "mlflow")
        uri = self.uri or os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
        if urlsplit(uri).password:
            raise ValueError(
                "the tracker's uri holds a password, which config.yaml would show: set MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD"
            )
        if urlsplit(uri).scheme in ("", "file") and uri != "databricks":  # MLflow reads the latter from its profile
            raise ValueError(
                f"uri={uri} is a folder, which MLflow 3 does not support: name a file, sqlite:///mlflow.db"
            )
        if uri.startswith("sqlite:///"):
            uri = f"sqlite:///{(base / uri.removeprefix('sqlite:///')).resolve()}"
        return replace(self, uri=uri)

    def open(self, card: Card, id: str | None, folder: Path) -> Tracked:
        return _MLflowRun(self, card, id)


class _MLflowRun:
    def __init__(self, settings: MLflow, card: Card, id: str | None) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # otherwise MLflow sends usage data to its makers
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self.client = MlflowClient(tracking_uri=settings.uri)
        if id is not None:
            self.id = id
            self.client.set_terminated(id, "RUNNING")
            return
        tags = dict(card.tags) | ({"sweep": card.sweep} if card.sweep else {})
        tags |= {"mlflow.parentRunId": card.parent} if card.parent else {}
        self.id = self.client.create_run(_experiment(self.client, settings), tags=tags, run_name=card.name).info.run_id
        params = [Param(_name(key), str(value)[:MOST_CHARACTERS]) for key, value in card.params.items()]
        for first in range(0, len(params), MOST_PARAMS):
            self.client.log_batch(self.id, params=params[first : first + MOST_PARAMS])

    def log(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = round(time.time() * 1000)
        metrics = [Metric(_name(key), value, now, step) for key, value in values.items()]
        for first in range(0, len(metrics), MOST_METRICS):
            self.client.log_batch(self.id, metrics=metrics[first : first + MOST_METRICS])

    def close(self, status: str, results: Mapping[str, float], files: Path) -> None:
        self.log(results, 0)
        self.client.log_artifacts(self.id, str(files))
        self.client.set_terminated(self.id, STATUS[status])


MOST_PARAMS, MOST_METRICS, MOST_CHARACTERS = 100, 1000, 6000  # MLflow's limits for a request and for a value


def _experiment(client: Any, settings: MLflow) -> str:
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(settings.experiment)
    if experiment is None:
        # Files go next to the database; by default MLflow would put them into each process's working folder.
        database = (settings.uri or "").removeprefix("sqlite:///")
        artifacts = Path(database).parent / "mlartifacts" / settings.experiment if database.startswith("/") else None
        try:
            return str(client.create_experiment(settings.experiment, artifacts.as_uri() if artifacts else None, KIND))
        except MlflowException:  # another run has just made it, or the tracker says below what is wrong
            experiment = client.get_experiment_by_name(settings.experiment)
            if experiment is None:
                raise
    return str(experiment.experiment_id)


def _name(key: str) -> str:
    """A name with the characters that MLflow refuses replaced by _."""
    return re.sub(r"[^\w\-. :/]", "_", key, flags=re.ASCII)


@dataclass(frozen=True)
class WandB(Ranged):
    """Weights & Biases."""

    project: str = "fedray"  # project of Weights & Biases that gets the run
    entity: str | None = None  # user or team that owns the project; null: the default of the account
    mode: str = one_of(("offline", "online"))  # offline: files in the run folder, for `wandb sync` | online

    def checked(self, base: Path) -> Self:
        _check_package("wandb", "wandb")
        return self

    def open(self, card: Card, id: str | None, folder: Path) -> Tracked:
        return _WandBRun(self, card, id, folder)


class _WandBRun:
    def __init__(self, settings: WandB, card: Card, id: str | None, folder: Path) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        silent = wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True, init_timeout=60
        )
        self.run = wandb.init(
            project=settings.project,
            entity=settings.entity,
            mode=settings.mode,  # type: ignore[arg-type]  # checked above
            dir=folder,
            id=id,
            resume="allow",
            reinit="create_new",  # other runs of this process continue
            name=card.name,
            group=card.sweep,
            config=dict(card.params),
            tags=[f"{key}={value}"[:64] for key, value in card.tags.items()],
            settings=silent,
        )
        self.id: str = self.run.id

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.run.log(dict(values), step=step)

    def close(self, status: str, results: Mapping[str, float], files: Path) -> None:
        self.run.summary.update({**results, "status": status})
        for path in sorted(files.iterdir()):
            kept = Path(self.run.dir) / path.name
            kept.write_bytes(path.read_bytes())
            self.run.save(str(kept), base_path=self.run.dir, policy="now")
        self.run.finish(exit_code=int(status == "failed"))


def silent(tracker: Tracker) -> str | None:
    """Why the server of a tracker cannot be reached, with its address; None: it can be, or there is none to ask."""
    if isinstance(tracker, WandB):
        address = os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai" if tracker.mode == "online" else ""
    else:
        address = (tracker.uri or "") if isinstance(tracker, MLflow) else ""
    asked = urlsplit(address)
    host, port = asked.hostname, {"http": 80, "https": 443}.get(asked.scheme)
    if host is None or port is None or (getproxies().get(asked.scheme) and not proxy_bypass(host)):
        return None
    port = asked.port or port
    try:
        socket.create_connection((host, port), ANSWER_SECONDS).close()
    except OSError as error:
        return f"{asked.scheme}://{host}:{port} does not answer ({error.strerror or error})"
    return None


TRACKERS: dict[str, type[Tracker]] = {"none": Nothing, "mlflow": MLflow, "wandb": WandB}


def _check_package(package: str, extra: str) -> None:
    if find_spec(package) is None:
        raise ValueError(f'tracker.kind {extra} needs {package}: pip install "fedray[{extra}]", or set tracker=none')
