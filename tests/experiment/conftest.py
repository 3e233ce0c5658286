"""The corpora that several test files use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import keywords, speech


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tones")
    speech.write_corpus(folder, speakers=9)
    return folder


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keywords")
    keywords.write_corpus(folder)
    return folder
