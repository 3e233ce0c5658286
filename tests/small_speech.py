"""Small sets of real speech, in the folder that the environment variable FEDRAY_SPEECH names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def small_speech(name: str) -> Path:
    """The folder of a set: fsdd, arabic-commands, common-voice-fr-mini or speechocean-mini.

    Skips the test if FEDRAY_SPEECH is not set or has no such folder.
    """
    given = os.environ.get("FEDRAY_SPEECH")
    if not given:
        pytest.skip(f"FEDRAY_SPEECH is not set: set it to the folder that holds {name}/")
    folder = Path(given) / name
    if not folder.is_dir():
        pytest.skip(f"FEDRAY_SPEECH={given} holds no {name}/")
    return folder
