"""Convert values and check them against type hints, with OmegaConf.

Results are cached: a sweep loads a hundred similar configurations.
"""

from __future__ import annotations

import dataclasses
import functools
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ValidationError

type_hints = functools.lru_cache(get_type_hints)


def named_sections(hint: Any) -> type | None:
    """The dataclass in a type `dict[str, SomeDataclass]`; None for other types."""
    inner = get_args(hint)[1] if get_origin(hint) is dict else None
    return inner if isinstance(inner, type) and dataclasses.is_dataclass(inner) else None


WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
SEVERAL = {int: "whole numbers", float: "numbers", str: "texts"}


def type_words(hint: Any) -> str:
    """A type of a key in words, such as "a number or null"."""
    kind, inner = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        named = [type_words(one) for one in inner if one is not type(None)]
        return " or ".join(named + ["null"] * (type(None) in inner))
    if kind in (list, tuple):
        count = f"{len(inner)} " if kind is tuple and Ellipsis not in inner else ""
        return f"a list of {count}{SEVERAL.get(inner[0], 'values')}"
    if kind is dict:
        return f"a section of {SEVERAL.get(inner[1], 'keys')}"
    return WORDS.get(hint) or str(getattr(hint, "__name__", hint))


def shown(value: object) -> str:
    """A value in a message: null, true and false as YAML writes them."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def converted(hint: Any, value: object) -> object:
    """The value converted to the type of the hint. OmegaConfBaseException: it cannot be converted."""
    return _scalar(hint, value) if isinstance(value, str | int | float | None) else _converted(hint, value)


def _converted(hint: Any, value: object) -> object:
    checked = OmegaConf.to_container(OmegaConf.merge(_schema(hint), {"value": value}), throw_on_missing=True)
    assert isinstance(checked, dict)
    if get_origin(hint) is not tuple:
        return checked["value"]
    if Ellipsis not in (inner := get_args(hint)) and len(checked["value"]) != len(inner):
        raise ValidationError(f"{checked['value']} has another length")  # which OmegaConf 2.3 takes
    return tuple(checked["value"])


_scalar = functools.lru_cache(maxsize=10_000, typed=True)(_converted)  # typed: 1 is not True


@functools.lru_cache
def _schema(hint: Any) -> DictConfig:
    schema = OmegaConf.structured(dataclasses.make_dataclass("Leaf", [("value", hint)]))
    assert isinstance(schema, DictConfig)
    return schema
