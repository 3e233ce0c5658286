"""Checks that the sections `upload` and `download` fit the rest of a configuration."""

from __future__ import annotations

from fedray.algorithms import ALGORITHMS
from fedray.core.compression.sparse import TopK
from fedray.core.privacy.settings import Private
from fedray.core.strategies import Coordinatewise, Pairwise
from fedray.experiment.config import Config


def check_code(config: Config, section: str) -> None:
    """Check `section` (upload | download). ValueError: it encodes nothing, or privacy or strategy forbids its code."""
    code = config.upload.code if section == "upload" else config.download
    if code.exact:
        return
    kind, algorithm = config.algorithm.kind, ALGORITHMS[config.algorithm.kind]
    if algorithm.central or not algorithm.sends_updates:
        why = "trains in one place" if algorithm.central else "sends no updates, and its model travels once"
        raise ValueError(f"algorithm.kind {kind} {why}: there is nothing to encode, leave out {section}")
    if section == "download":
        return
    if isinstance(config.privacy, Private):
        raise ValueError(
            "privacy clips an update before `upload` encodes it, and rounding and error feedback can exceed the bound: "
            "remove upload (privacy.kind=skellam also sends few bits; download may stay)"
        )
    if isinstance(code, TopK) and isinstance(config.strategy, Coordinatewise):
        raise ValueError(
            "with topk most clients send 0 for any one number, so the median and the trimmed mean are 0 and the model "
            "would not move: set upload.kind to half, int8 or int4, or choose a strategy that averages"
        )
    if isinstance(code, TopK) and isinstance(config.strategy, Pairwise):
        raise ValueError(
            "with topk clients send different numbers, so distances between updates reflect only their norms: "
            "set upload.kind to half, int8 or int4, or choose a strategy without distances"
        )
