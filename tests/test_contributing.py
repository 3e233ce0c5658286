"""The examples in CONTRIBUTING.md run as they are shown, and the files it names exist."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedray.core.parallel import Parallel
from fedray.core.strategies import OnePass
from fedray.data.corpora import CORPORA
from fedray.data.manifest import Manifest

TEXT = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
NAMES = {
    "dataclass": dataclass,
    "Mapping": Mapping,
    "math": math,
    "OnePass": OnePass,
    "Path": Path,
    "Parallel": Parallel,
    "Manifest": Manifest,
}


def test_its_examples_run() -> None:
    names: dict[str, Any] = dict(NAMES)
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(block, names)
    rule = names["BySqrtExamples"]()
    assert rule.log_weight({"examples": 9}) - rule.log_weight({"examples": 1}) == math.log(3)
    assert rule.log_weight({"examples": 0}) == -math.inf
    shown, real = names["MyCorpus"].read.__code__, CORPORA["tsv"].read.__code__
    assert shown.co_varnames[: shown.co_argcount] == real.co_varnames[: real.co_argcount]


def test_the_files_it_names_are_there() -> None:
    root = Path(__file__).parent.parent
    named = re.findall(r"`((?:fedray|tests)/[\w/.]+)`", TEXT)
    assert named and not [path for path in named if not (root / path).exists()]
