"""`fedray data`: what the model of a configuration cannot learn, by part and by client, before audio is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from rich.console import Console
from rich.table import Table

from fedray.cli.tables import titled
from fedray.core.texts import rich_text
from fedray.data.analysis.inspection import Problem
from fedray.data.features.dataset import Utterances
from fedray.data.features.settings import FeatureSettings
from fedray.data.federation.speech_data import SpeechData
from fedray.data.manifest import Manifest, Mask, Rows
from fedray.experiment import Config
from fedray.experiment.learnable import survey
from fedray.training.speech_to_text import SpeechToText
from fedray.training.survey import CLIENTS, SERVER, Survey
from fedray.training.tasks import TASKS

SHOWN = 5  # clients in the table


class ExpectedFeatures:
    """The lengths of features that are not computed: what the manifest's seconds give."""

    def __init__(self, manifest: Manifest, settings: FeatureSettings) -> None:
        self.bins = settings.bins
        self.frames: Rows = np.fromiter(map(settings.frames, manifest.array("seconds").tolist()), np.int64)


def unlearnable(
    config: Config,
    parts: Mapping[str, Manifest],
    clients: Mapping[str, Rows],
    labelled: Mask | None,
    console: Console,
) -> list[Problem]:
    """Print a table of what the model cannot learn, if there is any; returns the problem, or what stops the task."""
    if not issubclass(TASKS[config.task.kind], SpeechToText):
        return []

    def heard(name: str) -> Utterances:
        manifest = parts[name]
        features: Any = ExpectedFeatures(manifest, config.features)
        return Utterances(manifest, features, np.arange(len(manifest)), labelled if name == CLIENTS else None)

    splits = {name: heard(name) for name in parts if name not in (SERVER, CLIENTS)}
    server = heard(SERVER) if SERVER in parts else None
    data = SpeechData(heard(CLIENTS), clients, splits, server, text=config.data.text)
    try:
        task = TASKS[config.task.kind](config.task.settings, config.model, config.features, data)
        found = cast(Survey, survey(config, task, data))
    except ValueError as error:  # as a run does: tokens that cannot be made, a checkpoint that is not there
        return [Problem(str(error), stops=True)]
    if (problem := found.problem()) is None:
        return []
    console.print(_table(found))
    text, stops = problem
    return [Problem(text, stops)]


def _table(found: Survey) -> Table:
    table = titled("Cannot be learnt", "", "utterances", "of", "share")
    counts = {name: (int(part.lost.sum()), len(part.data)) for name, part in found.parts.items()}
    worst = sorted(found.counts().items(), key=lambda item: (-item[1][0] / item[1][1], -item[1][0], item[0]))[:SHOWN]
    counts |= {f"client {name}": pair for name, pair in worst if pair[0]}
    for name, (lost, of) in counts.items():
        table.add_row(rich_text(name), f"{lost:,}", f"{of:,}", f"{100 * lost / max(1, of):.1f} %")
    return table
