"""Sweeps: Ray Tune over whole runs.

A file in sweeps/ asks one question: it names a base configuration, a search space, a metric and figures.
"""

from __future__ import annotations

import os

# A trial's checkpoint is a pointer of a few bytes: writing it after every round is cheap.
os.environ.setdefault("TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "0")

from fedray.engine.cluster.ray_auth import show_token

show_token()  # before Ray is imported

from ray import tune  # noqa: E402

from fedray.sweep.command import main  # noqa: E402
from fedray.sweep.study import Sweep  # noqa: E402

__all__ = ["Sweep", "main", "tune"]
