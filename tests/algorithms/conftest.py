"""Algorithms are tested without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedray.core.parallel import serial
from fedray.engine import session
from tests import speech


@pytest.fixture(scope="module", autouse=True)
def no_ray(cache: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "parallel", serial)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tones")
    speech.write_corpus(folder)
    return folder
