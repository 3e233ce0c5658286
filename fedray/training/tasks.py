"""The tasks by their names in `task.kind`."""

from __future__ import annotations

from fedray.training.classification import Classification
from fedray.training.recognition import Recognition
from fedray.training.task import Task

TASKS: dict[str, type[Task]] = {"recognition": Recognition, "classification": Classification}
