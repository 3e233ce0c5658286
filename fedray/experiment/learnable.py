"""Before a run: what its model cannot learn, or learns slowly, is told; a run that would learn little is refused."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fedray.algorithms import ALGORITHMS
from fedray.core.algorithm import Algorithm
from fedray.data.features.dataset import Utterances
from fedray.data.federation.speech_data import SpeechData
from fedray.data.manifest import Rows
from fedray.experiment.config import Config
from fedray.training.speech_to_text import SpeechToText
from fedray.training.survey import CLIENTS, SERVER, Survey


def survey(config: Config, task: Any, data: SpeechData) -> Survey | None:
    """Count what the model cannot learn of a federation; None: the task has no texts."""
    if not isinstance(task, SpeechToText):
        return None
    everyone, server = data.training()[-1], data.server()
    parts = ({} if server is None else {SERVER: server}) | {CLIENTS: everyone}
    parts |= {split: data.evaluation(split) for split in data.splits()}
    return Survey.of(task, parts, read(config, everyone, data.positions()))


def read(config: Config, everyone: Utterances, clients: Mapping[str, Rows]) -> dict[str, Rows]:
    """Client -> the positions of the utterances whose texts training reads."""
    algorithm, settings = ALGORITHMS[config.algorithm.kind], config.algorithm.settings
    if not (algorithm.makes_labels or getattr(settings, "labelled_only", False)):
        return dict(clients)
    labelled = np.zeros(len(everyone), bool) if everyone.labelled is None else everyone.labelled
    return {client: rows[labelled[rows]] for client, rows in clients.items()}


def check_learnable(config: Config, algorithm: Algorithm, data: SpeechData) -> str | None:
    """What the model cannot learn, in words; None: nothing. ValueError: that is most of a client's or of all speech."""
    surveyed = survey(config, algorithm.task, data)
    problem = surveyed.problem() if surveyed is not None else None
    if problem is None:
        return None
    text, stops = problem
    if stops:
        raise ValueError(text)
    return text


def tell_unlearnable(config: Config, algorithm: Algorithm, data: SpeechData) -> None:
    """Print what the model cannot learn. ValueError: as `check_learnable`."""
    if (text := check_learnable(config, algorithm, data)) is not None:
        print(f"warning: {text}", file=sys.stderr)


def tell_slow(config: Config, gpus: float) -> None:
    """Warn of bfloat16 on a processor that lacks instructions for it. `gpus`: of a client actor."""
    asked = getattr(getattr(config.algorithm.settings, "client", None), "precision", None)
    if asked == "bf16" and not gpus and torch.backends.cpu.get_cpu_capability() in ("NO AVX", "AVX2"):
        print(
            "warning: algorithm.client.precision=bf16 is several times slower than float32 on this processor, which "
            "lacks AVX-512",
            file=sys.stderr,
        )
