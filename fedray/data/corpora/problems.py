"""All problems of a corpus in one error, so that a user can mend them together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

MOST = 20  # that an error lists


class Problems(ValueError):
    """Several problems, each with its place and remedy."""

    def __init__(self, found: Sequence[str]) -> None:
        self.found = list(found)
        more = [f"and {len(found) - MOST:,} more"] if len(found) > MOST else []
        super().__init__("\n  ".join([f"{len(found):,} problems:", *found[:MOST], *more]))


@contextmanager
def gathered(problems: list[str]) -> Iterator[None]:
    """Inside, a ValueError is added to the problems, and ends the block."""
    try:
        yield
    except Problems as error:
        problems += error.found
    except ValueError as error:
        problems.append(str(error))


def refuse(problems: Sequence[str]) -> None:
    """Raise ValueError if there are problems: a single one as it is."""
    if problems:
        raise ValueError(problems[0]) if len(problems) == 1 else Problems(problems)
