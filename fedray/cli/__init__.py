"""The command line."""

from __future__ import annotations

from fedray.cli.commands import main

__all__ = ["main"]
