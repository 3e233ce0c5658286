"""run.json: what the bits of a run depend on besides its configuration."""

from __future__ import annotations

import sys

import ray
import torch

import fedray
from fedray.data.federation.speech_data import SpeechData
from fedray.engine.resources import Share
from fedray.engine.work import Program
from fedray.experiment.cache_keys import code_version, source_of
from fedray.experiment.config import Config

ON_CPU = "the same bits for any number of actors, on one type of CPU with these versions"
ON_GPU = "up to what CUDA does deterministically; the backward pass of CTC is not"


def description(config: Config, program: Program, shares: Share) -> dict[str, str]:
    """Versions, hashes of code and data, and how far the run is deterministic."""
    assert isinstance(program.data, SpeechData)
    return {
        "fedray": fedray.__version__,
        "code": code_version(config.imports),
        "algorithm": source_of(type(program.algorithm)),
        "torch": torch.__version__,
        "ray": ray.__version__,
        "python": sys.version.split()[0],
        "data": program.data.fingerprint(),
        "deterministic": ON_GPU if shares.gpus else ON_CPU,
    }
