"""Frozen dataclasses built from a configuration's values, and written back to plain data.

An unknown key or a wrong type is an error that names the key and its place. A field made by `choice` or `kinds`
(fedray.core.settings) is a section whose `kind` picks the dataclass that the section's other keys are checked against.
A field of type `dict[str, SomeDataclass]` is a section whose keys are names that the user gives, each for a section.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, is_dataclass
from typing import Any, TypeVar, get_args

import yaml
from omegaconf.errors import OmegaConfBaseException

from fedray.config import shipped
from fedray.config.merging import Values
from fedray.config.source import ConfigError, Source, read
from fedray.config.typed import converted, named_sections, shown, type_hints, type_words
from fedray.core.ranges import Range, is_number, ranges
from fedray.core.settings import Choice, kind_of, settings_class
from fedray.core.texts import unusable

T = TypeVar("T")


def build(cls: type[T], source: Source) -> T:
    """An instance of a frozen dataclass from the source's values; every key must be known and of the right type."""
    return build_section(cls, source, "", source.values)


def build_section(cls: type[T], source: Source, prefix: str, values: object) -> T:
    """An instance of a frozen dataclass from the values of a section; `prefix` is the section's dotted key."""
    if values is None:
        values = {}
    if not isinstance(values, Mapping):
        raise ConfigError(f"{source.where(prefix)}: {prefix} must be a section of keys, not {values!r}")
    assert is_dataclass(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}
    for key in values:
        if key not in fields:
            dotted = _join(prefix, key)
            raise ConfigError(f"{source.where(dotted)}: unknown key {dotted}{_nearest(str(key), fields, prefix)}")
    hints = type_hints(cls)
    arguments: Values = {}
    for name, f in fields.items():
        dotted = _join(prefix, name)
        if "kinds" in f.metadata:
            arguments[name] = _build_kind(f, source, dotted, values.get(name))
        elif name not in values:
            if f.default is MISSING and f.default_factory is MISSING:
                missing = source.again(dotted) or f"{dotted} is missing and has no default{_example(dotted)}"
                raise ConfigError(f"{source.where(prefix)}: {missing}")
        elif isinstance(hints[name], type) and is_dataclass(hints[name]):
            arguments[name] = build_section(hints[name], source, dotted, _over_default(f, values[name]))
        elif (inner := named_sections(hints[name])) is not None:
            arguments[name] = _build_named(inner, source, dotted, values[name])
        else:
            arguments[name] = _leaf(hints[name], values[name], dotted, source)
            _check_numbers(arguments[name], ranges(cls)[name], dotted, source)
    try:
        return cls(**arguments)
    except ConfigError:
        raise
    except ValueError as error:  # a check in the dataclass' __post_init__
        named = [_join(prefix, name) for name in fields if re.search(rf"\b{name}\b", str(error))]
        place = next((key for key in named if key in source.origins), prefix)
        again = "".join(f" ({words})" for words in [*filter(None, map(source.again, named))][:1])
        raise ConfigError(f"{source.where(place)}: {prefix or cls.__name__}: {error}{again}") from error


def _build_named(cls: type[T], source: Source, prefix: str, values: object) -> dict[str, T]:
    """Name -> an instance of the dataclass. The user gives the names."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{source.where(prefix)}: {prefix} must be a section of names, not {values!r}")
    for name in values:
        if not isinstance(name, str) or not name or "." in name or unusable(name) is not None:
            raise ConfigError(
                f"{source.where(_join(prefix, name))}: {prefix}: {name!r} cannot be a name here: use a word without "
                "dots, and quote it if YAML reads it as something else"
            )
    return {name: build_section(cls, source, _join(prefix, name), inner) for name, inner in values.items()}


def _build_kind(f: Field[Any], source: Source, dotted: str, values: object) -> object:
    """A Choice, or an instance of the kind's own dataclass."""
    registry, default = f.metadata["kinds"], f.metadata["default"]
    if isinstance(values, str):
        values = {"kind": values}
    if not isinstance(values, Mapping | None):
        raise ConfigError(
            f"{source.where(dotted)}: {dotted} must be a section of keys, or a kind alone, not {values!r}"
        )
    values = dict(values or {})
    kind = values.pop("kind", default)
    known = f"known kinds: {', '.join(registry)}"
    if kind is None:
        raise ConfigError(f"{source.where(dotted)}: {dotted}.kind is missing; {known}{_example(f'{dotted}.kind')}")
    if not isinstance(kind, str) or kind not in registry:
        close = difflib.get_close_matches(str(kind), registry, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(f"{source.where(f'{dotted}.kind')}: {dotted}.kind: {kind!r} is not known; {hint}{known}")
    cls = settings_class(registry[kind])
    if kind == default and f.metadata.get("settings") is not None:
        values = {**plain(f.metadata["settings"]), **values}
    settings: object = build_section(cls, source, dotted, values)
    return settings if cls is registry[kind] else Choice(kind, settings)


def _over_default(f: Field[Any], values: object) -> object:
    """The section's values over those of the field's default, which may differ from the defaults of its class."""
    default = f.default_factory() if f.default_factory is not MISSING else f.default
    values = {} if values is None else values
    if is_dataclass(default) and isinstance(values, Mapping):
        return {**plain(default), **values}
    return values


def _leaf(hint: Any, value: Any, dotted: str, source: Source) -> object:
    """One value, converted and checked by OmegaConf against its type hint."""
    words = value if isinstance(value, list) else [value]
    if "str" in str(hint) and "bool" not in str(hint) and any(isinstance(word, bool) for word in words):
        raise ConfigError(
            f"{source.where(dotted)}: {dotted}: expected text, found a boolean ({value!r}): "
            "write 'yes', 'no', 'on' in quotes"
        )
    for word in words:
        if isinstance(word, str) and (problem := unusable(word)) is not None:
            raise ConfigError(f"{source.where(dotted)}: {dotted}: {word!r} holds {problem}")
    try:
        if "list[str]" in str(hint) and any(isinstance(word, list | dict) for word in words):
            raise ValueError("OmegaConf would take a list for a word")
        if hint is Any or hint == dict[str, Any] and isinstance(value, Mapping):
            return value
        if type(value) is int and float in get_args(hint) and int not in get_args(hint):
            value = float(value)  # OmegaConf converts for `float`, but not for a union with float
        return converted(hint, value)
    except (OmegaConfBaseException, TypeError, ValueError) as error:  # the last two come from a list for a mapping
        raise ConfigError(f"{source.where(dotted)}: {dotted} must be {type_words(hint)}, not {shown(value)}") from error


def _check_numbers(value: object, limits: Range | None, dotted: str, source: Source) -> None:
    """Raise ConfigError for nan and infinity, for integers of more than 64 bits, and for numbers out of their range."""
    for number in value if isinstance(value, list | tuple) else [value]:
        if not is_number(number):
            continue
        if isinstance(number, float) and not math.isfinite(number):
            wrong = "must be a finite number"
        elif isinstance(number, int) and not -(2**63) <= number < 2**63:
            wrong = "must fit into 64 bits"
        elif limits is not None and number not in limits:
            wrong = f"must be {limits}"
        else:
            continue
        raise ConfigError(f"{source.where(dotted)}: {dotted} {wrong}, not {number}")


def _example(key: str) -> str:
    """How a configuration that comes with fedray sets the key; empty if it does not."""
    name = "fednst/embedded"
    values = read(shipped.locate("configs", name)).values
    if not has(values, key):
        return ""
    shown = (
        yaml.safe_dump(pick(values, [key])[key], default_flow_style=True, width=10_000).removesuffix("...\n").strip()
    )
    return f"; {name} has {key}: {shown}"


def plain(instance: object) -> Values:
    """The plain data from which `build` makes an equal instance, with every default written out."""
    assert is_dataclass(instance)
    result: Values = {}
    for f in dataclasses.fields(instance):
        value = getattr(instance, f.name)
        if "kinds" in f.metadata:
            settings = value.settings if isinstance(value, Choice) else value
            value = {"kind": kind_of(value, f.metadata["kinds"]), **plain(settings)}
        elif is_dataclass(value):
            value = plain(value)
        elif isinstance(value, tuple):
            value = list(value)
        elif isinstance(value, dict):
            value = {name: plain(inner) if is_dataclass(inner) else inner for name, inner in value.items()}
        if f.init:
            result[f.name] = value
    return result


def pick(values: Mapping[str, Any], keys: Iterable[str]) -> Values:
    """The values of dotted keys; null for a key that is not there."""
    picked = {}
    for key in keys:
        value: Any = values
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        picked[key] = value
    return picked


def has(values: Mapping[str, Any], key: str) -> bool:
    """Whether a dotted key is there, even if its value is null."""
    for part in key.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True


def _join(prefix: str, key: object) -> str:
    return f"{prefix}.{key}" if prefix else str(key)


def _nearest(key: str, known: Iterable[str], prefix: str) -> str:
    known = list(known)
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {_join(prefix, close[0])}?"
    return f"; known here: {', '.join(known)}" if known else "; this section has no keys"
