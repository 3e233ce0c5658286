"""Fixtures for testing algorithms without Ray, on corpora that all tests share and none changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import keywords, speech


@pytest.fixture(scope="module", autouse=True)
def everywhere(no_ray: None) -> None:
    """No test of this folder starts Ray."""


@pytest.fixture(scope="session")
def tones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a recognition corpus."""
    return speech.write_corpus(tmp_path_factory.mktemp("tones")).parent


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a classification corpus."""
    return keywords.write_corpus(tmp_path_factory.mktemp("keywords")).parent


@pytest.fixture
def folder(tones: Path) -> Path:
    return tones
