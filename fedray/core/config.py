"""Configuration: YAML is data only, checked by OmegaConf against frozen dataclasses.

`extends: base.yaml` starts from another file, `a.b=c` on the command line beats every file. A field whose metadata has `kinds` (a registry:
kind -> dataclass, or a class with a `Settings` dataclass) is a section whose `kind` picks the dataclass that the rest is checked against.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

T = TypeVar("T")
Registry = Mapping[str, type]


class ConfigError(ValueError):
    """The user's configuration is wrong; the message says where and what to do."""


def kinds(registry: Registry, default: str | None) -> Any:
    """A field that holds one of the registry's dataclasses, chosen by the section's `kind`."""
    make = (lambda: None) if default is None else (lambda: settings_class(registry[default])())
    return field(default_factory=make, metadata={"kinds": registry, "default": default})


@dataclass(frozen=True)
class Source:
    """Merged values, and for each dotted key where it was set ("configs/a.yaml:12")."""

    values: dict[str, Any]
    origins: dict[str, str]

    def where(self, key: str) -> str:
        """The place of the key, or of the nearest section around it."""
        while key and key not in self.origins:
            key = key.rpartition(".")[0]
        return self.origins.get(key, "configuration")


def read(path: Path, overrides: Iterable[str] = ()) -> Source:
    """A YAML file with all that it extends, and dotted overrides on top."""
    config, origins = _read_file(path, ())
    for override in overrides:
        if "=" not in override or override.startswith("="):
            raise ConfigError(f"command line: {override!r} is not of the form key=value, such as rounds=50")
        name = override.split("=", 1)[0]
        config = _merge(config, OmegaConf.from_dotlist([override]), "command line")
        origins = {key: place for key, place in origins.items() if not key.startswith(f"{name}.")} | {name: "command line"}
    return Source(_plain(config, str(path)), origins)


def from_mapping(values: Mapping[str, Any], overrides: Iterable[str] = ()) -> Source:
    """The same from a mapping in Python."""
    config = OmegaConf.create(dict(values))
    for override in overrides:
        config = _merge(config, OmegaConf.from_dotlist([override]), "overrides")
    return Source(_plain(config, "configuration"), {})


def _plain(config: DictConfig, where: str) -> dict[str, Any]:
    try:
        values = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{where}: {error}") from error
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def _merge(base: DictConfig, top: DictConfig, where: str) -> DictConfig:
    """Merge, but let a section of another kind replace the one below it: the keys of one kind mean nothing to another."""
    base = base.copy()
    for key in list(top):
        if OmegaConf.is_dict(top._get_node(key)) and OmegaConf.is_dict(base._get_node(key)):
            here, there = top[key], base[key]
            other_kind = "kind" in here and "kind" in there and here["kind"] != there["kind"]
            base[key] = here if other_kind else _merge(there, here, where)
        else:
            base[key] = top._get_node(key)
    return base


def _read_file(path: Path, seen: tuple[Path, ...]) -> tuple[DictConfig, dict[str, str]]:
    if path.resolve() in seen:
        raise ConfigError(f"{path}: extends itself, by way of {' -> '.join(str(p) for p in seen)}")
    try:
        text = path.read_text(encoding="utf-8")
        config = OmegaConf.create(text) if text.strip() else OmegaConf.create({})
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"{path}: is not valid YAML: {error}") from error
    if not isinstance(config, DictConfig):
        raise ConfigError(f"{path}: a configuration is a mapping of keys to values")
    origins = dict(_lines(node, "", str(path)))
    parent = config.pop("extends", None)
    if parent is None:
        return config, origins
    below, places = _read_file(path.parent / str(parent), (*seen, path.resolve()))
    return _merge(below, config, str(path)), places | origins


def _lines(node: yaml.Node | None, prefix: str, path: str) -> Iterable[tuple[str, str]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = f"{prefix}{key.value}"
            yield name, f"{path}:{key.start_mark.line + 1}"
            yield from _lines(value, f"{name}.", path)


def build(cls: type[T], source: Source, prefix: str = "", values: Any = None) -> T:
    """An instance of a frozen dataclass from the values below `prefix`; every key must be known and of the right type."""
    values = source.values if not prefix else values
    if values is None:
        values = {}
    if not isinstance(values, Mapping):
        raise ConfigError(f"{source.where(prefix)}: {prefix} must be a section of keys, not {values!r}")
    assert is_dataclass(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}
    for key in values:
        if key not in fields:
            raise ConfigError(f"{source.where(_join(prefix, key))}: unknown key {_join(prefix, key)}{_nearest(str(key), fields, prefix)}")
    hints = get_type_hints(cls)
    arguments = {}
    for name, f in fields.items():
        dotted = _join(prefix, name)
        if "kinds" in f.metadata:
            arguments[name] = _build_kind(f, source, dotted, values.get(name))
        elif name not in values:
            if f.default is MISSING and f.default_factory is MISSING:
                raise ConfigError(f"{source.where(prefix)}: {dotted} is missing, it has no default")
        elif isinstance(hints[name], type) and is_dataclass(hints[name]):
            arguments[name] = build(hints[name], source, dotted, _over_default(f, values[name]))
        else:
            arguments[name] = _leaf(hints[name], values[name], dotted, source)
    try:
        return cls(**arguments)
    except ConfigError:
        raise
    except ValueError as error:  # a dataclass' own check in __post_init__
        raise ConfigError(f"{source.where(prefix)}: {prefix or cls.__name__}: {error}") from error


def _build_kind(f: Field[Any], source: Source, dotted: str, values: Any) -> Any:
    registry, default = f.metadata["kinds"], f.metadata["default"]
    if isinstance(values, str):
        values = {"kind": values}
    if values is None and default is None:
        return None
    values = dict(values or {})
    kind = values.pop("kind", default)
    if kind is None:
        raise ConfigError(f"{source.where(dotted)}: {dotted}.kind is missing; known kinds: {', '.join(registry)}")
    if kind not in registry:
        close = _nearest(str(kind), registry, "", "")
        raise ConfigError(
            f"{source.where(f'{dotted}.kind')}: {dotted}.kind: {kind!r} is not known{close}; known kinds: {', '.join(registry)}"
        )
    return build(settings_class(registry[kind]), source, dotted, values)


def _over_default(f: Field[Any], values: Any) -> Any:
    """The section's values over those of the field's own default, which need not be the defaults of its class."""
    default = f.default_factory() if f.default_factory is not MISSING else f.default
    return {**plain(default), **values} if is_dataclass(default) and isinstance(values, Mapping) else values


def settings_class(registered: type) -> type:
    return getattr(registered, "Settings", registered)


def _leaf(hint: Any, value: Any, dotted: str, source: Source) -> Any:
    """One value, converted and checked by OmegaConf against its type hint."""
    try:
        if hint is Any or hint == dict[str, Any]:
            return value
        schema = OmegaConf.structured(dataclasses.make_dataclass("Leaf", [("value", hint)]))
        checked = OmegaConf.to_container(OmegaConf.merge(schema, {"value": value}))
        assert isinstance(checked, dict)
        return tuple(checked["value"]) if get_origin(hint) is tuple else checked["value"]
    except OmegaConfBaseException as error:
        name = getattr(hint, "__name__", None) if get_origin(hint) is None else None
        raise ConfigError(
            f"{source.where(dotted)}: {dotted}: {value!r} is not of type {name or str(hint).replace('typing.', '')}"
        ) from error


def plain(instance: Any) -> dict[str, Any]:
    """The plain data that `build` makes the same instance from again, every default written out."""
    result: dict[str, Any] = {}
    for f in dataclasses.fields(instance):
        value = getattr(instance, f.name)
        if "kinds" in f.metadata and value is not None:
            kind = next(kind for kind, registered in f.metadata["kinds"].items() if settings_class(registered) is type(value))
            value = {"kind": kind, **plain(value)}
        elif is_dataclass(value):
            value = plain(value)
        elif isinstance(value, tuple):
            value = list(value)
        if f.init:
            result[f.name] = value
    return result


def pick(values: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """The values of dotted keys; a key that is not there counts as null."""
    picked = {}
    for key in keys:
        value: Any = values
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        picked[key] = value
    return picked


def _join(prefix: str, key: Any) -> str:
    return f"{prefix}.{key}" if prefix else str(key)


def _nearest(key: str, known: Iterable[str], prefix: str, empty: str = "; this section has no keys") -> str:
    known = list(known)
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {_join(prefix, close[0])}?"
    return f"; known here: {', '.join(known)}" if known else empty
