"""Ray's token mode. This module does not import Ray, since the mode must be set before that import."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def show_token() -> None:
    """Set Ray's token mode if the user has a token.

    Ray protects a cluster with a token in the user's home, but sends it only if the mode is set before Ray's import.
    """
    names = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    if "ray" not in sys.modules and (
        any(name in os.environ for name in names) or (Path.home() / ".ray" / "auth_token").is_file()
    ):
        os.environ.setdefault("RAY_AUTH_MODE", "token")
