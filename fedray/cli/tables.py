"""Tables of the command line."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rich.table import Table


def titled(title: str, *columns: str, left: Collection[str] = ("",), **options: Any) -> Table:
    """A table without rows: `left` names the columns of words, the others hold numbers. `options`: of rich's Table."""
    found = Table(title=title, title_justify="left", caption_justify="left", **options)
    for name in columns:
        found.add_column(name, justify="left" if name in left else "right")
    return found
