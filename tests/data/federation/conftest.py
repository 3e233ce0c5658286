"""The corpus that several test files divide."""

from __future__ import annotations

import pytest

from fedray.data.manifest import Manifest
from tests import speech


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Manifest]:
    return speech.splits(tmp_path_factory.mktemp("tones"), speakers=10, utterances=3)
