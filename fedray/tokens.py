"""Ray's token, which must be shown before Ray is imported: this module imports nothing of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def show_token() -> None:
    """Ray guards what it starts with a token kept at home, but shows it to an address only if told so before it is imported."""
    names = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    if "ray" not in sys.modules and (any(name in os.environ for name in names) or (Path.home() / ".ray" / "auth_token").is_file()):
        os.environ.setdefault("RAY_AUTH_MODE", "token")
