"""`fedray data`: a table of what the normalisation of texts changed."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from fedray.cli.tables import titled
from fedray.core.texts import rich_text
from fedray.data.analysis.cleaning import Cleaning, Cleanings


def tables(cleanings: Cleanings) -> Iterator[Table]:
    """A table for each normaliser: splits and joins, and its commonest changes."""
    for cleaning in cleanings.found.values():
        title, words = f"Texts: {rich_text(cleaning.by.name)}", ("change", "such as")
        table = titled(title, "change", "times", "such as", left=words)
        for change, count, example in cleaning.commonest():
            table.add_row(rich_text(change), f"{count:,}", rich_text(example))
        table.caption = summary(cleaning)
        yield table


def summary(cleaning: Cleaning) -> str:
    """Splits and joins per thousand words, in words."""
    thousands = max(cleaning.before, 1) / 1000
    of = f"{cleaning.compared:,} of {cleaning.texts:,} texts" if cleaning.compared < cleaning.texts else "all texts"
    told = f"{cleaning.splits / thousands:.1f} splits and {cleaning.joins / thousands:.1f} joins in a thousand words"
    if cleaning.by.in_characters:
        told += "; the language writes no spaces between words: read cer, or set task.scoring=characters"
    return f"{told} ({cleaning.before:,} words of {of})"
