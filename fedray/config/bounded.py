"""YAML that may come from anybody: aliases of aliases make a few lines stand for more values than memory holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml
from omegaconf.errors import OmegaConfBaseException

LARGEST = 4_000_000  # characters
VALUES = 100_000  # with aliases written out


def compose(text: str) -> yaml.Node | None:
    """Parse a text. YAMLError: it is not YAML, or too large for a configuration. RecursionError: it is too deep."""
    if len(text) > LARGEST:
        raise yaml.YAMLError(f"it has more than {LARGEST:,} characters")
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if node is not None and _values(node, {}) > VALUES:
        raise yaml.YAMLError(f"it stands for more than {VALUES:,} values once its aliases are written out")
    return node


def plain(text: str) -> Any:
    """The values in a text, with the errors of `compose`. Interpolations (`${...}`) stay as they are."""
    compose(text)
    with constructed():
        return yaml.safe_load(text)


@contextmanager
def constructed() -> Iterator[None]:
    """Raise YAMLError for a value that is not of the type that its tag names, such as `!!int ''`."""
    try:
        yield
    except OmegaConfBaseException:  # says more
        raise
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise yaml.YAMLError(f"a value is not of the type that its tag names ({error})") from error


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node stands for. A node that contains itself stands for infinitely many."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in known:
        known[id(node)] = VALUES + 1  # what an alias inside the node finds
        inner = [one for pair in node.value for one in pair] if isinstance(node, yaml.MappingNode) else node.value
        known[id(node)] = 1 + sum(_values(one, known) for one in inner)
    return known[id(node)]
