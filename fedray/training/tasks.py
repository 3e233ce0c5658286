"""The tasks, by their names in `task.kind`."""

from __future__ import annotations

from fedray.training.classification import Classification
from fedray.training.recognition import Recognition
from fedray.training.task import Task
from fedray.training.translation import Translation

TASKS: dict[str, type[Task]] = {
    "recognition": Recognition,
    "translation": Translation,
    "classification": Classification,
}
