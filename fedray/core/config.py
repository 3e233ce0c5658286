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
from typing import Any, TypeVar, get_args, get_origin

import yaml
from omegaconf import DictConfig, OmegaConf, ValueNode
from omegaconf.errors import OmegaConfBaseException

from fedray.core.typed import converted, type_hints

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
    top, names = _from_overrides(overrides)
    for name in names:
        origins = {key: place for key, place in origins.items() if not key.startswith(f"{name}.")} | {name: "command line"}
    return _resolved(_merge(config, top), origins | {"": str(path)})


def from_mapping(values: Mapping[str, Any], overrides: Iterable[str] = ()) -> Source:
    """The same from a mapping in Python."""
    top, names = _from_overrides(overrides)
    return _resolved(_merge(OmegaConf.create(dict(values)), top), dict.fromkeys(names, "command line"))


def _from_overrides(overrides: Iterable[str]) -> tuple[DictConfig, list[str]]:
    """All overrides as one tree, so that their order does not matter where a kind and its keys are set, and the keys they set."""
    top, names = OmegaConf.create({}), []
    for override in overrides:
        name = override.partition("=")[0]
        if "=" not in override or not all(name.split(".")):
            raise ConfigError(f"command line: {override!r} is not of the form key=value, such as rounds=50")
        try:
            top = _merge(top, OmegaConf.from_dotlist([override]))
        except (yaml.YAMLError, OmegaConfBaseException) as error:
            raise ConfigError(f"command line: {override!r}: the value is not valid YAML: {_problem(error)}") from error
        names.append(name)
    return top, names


def _resolved(config: DictConfig, origins: dict[str, str]) -> Source:
    try:
        values = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        key = error.full_key or ""
        raise ConfigError(f"{Source({}, origins).where(key)}: {key}: {_problem(error)}") from error
    assert isinstance(values, dict)
    return Source({str(key): value for key, value in values.items()}, origins)


def _problem(error: Exception) -> str:
    """What is wrong, without the parser's drawing of where."""
    return str(error.problem) if isinstance(error, yaml.MarkedYAMLError) else str(error).splitlines()[0]


def _merge(base: DictConfig, top: DictConfig) -> DictConfig:
    """Merge, but let a section of another kind replace the one below it: the keys of one kind mean nothing to another.

    In the same way another corpus leaves nothing of the options and the root of the one below it.
    A word where the other has a section (`strategy: by_loss`, `strategy.temperature=2`) is that section's kind.
    """
    base = base.copy()
    for key in list(top):
        here: Any = top._get_node(key)
        there: Any = base._get_node(key)
        if OmegaConf.is_dict(here):
            there = _section(there)
        elif OmegaConf.is_dict(there) and "kind" in there:
            here = _section(here)
        if OmegaConf.is_dict(here) and OmegaConf.is_dict(there):
            if _differ(here, there, "corpus"):
                there = OmegaConf.masked_copy(there, [name for name in there if name not in ("options", "root")])
            base[key] = here if _differ(here, there, "kind") else _merge(there, here)
        else:
            base[key] = here
    return base


def _differ(here: DictConfig, there: DictConfig, name: str) -> bool:
    return name in here and name in there and here[name] != there[name]


def _section(node: Any) -> Any:
    """A word as the section of that kind; anything else as it is."""
    word = node._value() if isinstance(node, ValueNode) else None
    return OmegaConf.create({"kind": word}) if isinstance(word, str) else node


def _read_file(path: Path, seen: tuple[Path, ...]) -> tuple[DictConfig, dict[str, str]]:
    if path.resolve() in seen:
        raise ConfigError(f"{path}: extends itself, by way of {' -> '.join(str(p) for p in seen)}")
    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(node, yaml.MappingNode | None):
            raise ConfigError(f"{path}: a configuration is a mapping of keys to values")
        config = OmegaConf.create({}) if node is None else OmegaConf.create(text)
        assert isinstance(config, DictConfig)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}{f' ({seen[-1]} extends it)' if seen else ''}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text: {error}") from error
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        raise ConfigError(f"{path}{f':{mark.line + 1}' if mark else ''}: is not valid YAML: {_problem(error)}") from error
    origins = dict(_lines(node, "", str(path)))
    parent = config.pop("extends", None)
    if parent is None:
        return config, origins
    below, places = _read_file(path.parent / str(parent), (*seen, path.resolve()))
    return _merge(below, config), places | origins


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
    hints = type_hints(cls)
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
    if not isinstance(values, Mapping | None):
        raise ConfigError(f"{source.where(dotted)}: {dotted} must be a section of keys, or a kind alone, not {values!r}")
    values = dict(values or {})
    kind = values.pop("kind", default)
    if kind is None:
        raise ConfigError(f"{source.where(dotted)}: {dotted}.kind is missing; known kinds: {', '.join(registry)}")
    if not isinstance(kind, str) or kind not in registry:
        close = difflib.get_close_matches(str(kind), registry, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(
            f"{source.where(f'{dotted}.kind')}: {dotted}.kind: {kind!r} is not known; {hint}known kinds: {', '.join(registry)}"
        )
    return build(settings_class(registry[kind]), source, dotted, values)


def _over_default(f: Field[Any], values: Any) -> Any:
    """The section's values over those of the field's own default, which need not be the defaults of its class."""
    default = f.default_factory() if f.default_factory is not MISSING else f.default
    values = {} if values is None else values
    return {**plain(default), **values} if is_dataclass(default) and isinstance(values, Mapping) else values


def settings_class(registered: type) -> type:
    return getattr(registered, "Settings", registered)


def _leaf(hint: Any, value: Any, dotted: str, source: Source) -> Any:
    """One value, converted and checked by OmegaConf against its type hint."""
    words = value if isinstance(value, list) else [value]
    if "str" in str(hint) and "bool" not in str(hint) and any(isinstance(word, bool) for word in words):
        raise ConfigError(
            f"{source.where(dotted)}: {dotted}: {value!r} holds a truth value where a word is meant: write 'yes', 'no', 'on' in quotes"
        )
    try:
        if hint is Any or hint == dict[str, Any] and isinstance(value, Mapping):
            return value
        if type(value) is int and float in get_args(hint) and int not in get_args(hint):
            value = float(value)  # OmegaConf does so for a float, but not for one of several types
        return converted(hint, value)
    except OmegaConfBaseException as error:
        name = getattr(hint, "__name__", None) if get_origin(hint) is None else None
        raise ConfigError(
            f"{source.where(dotted)}: {dotted}: {value!r} is not of type {name or str(hint).replace('typing.', '')}"
        ) from error


def kind_of(settings: Any, registry: Registry) -> str:
    """The name under which a registry has what these settings belong to; ValueError where two entries share one class of settings."""
    kind, *others = [kind for kind, registered in registry.items() if settings_class(registered) is type(settings)]
    if others:
        raise ValueError(f"{kind} and {others[0]} share their settings, {type(settings).__name__}: give one of them a dataclass of its own")
    return kind


def plain(instance: Any) -> dict[str, Any]:
    """The plain data that `build` makes the same instance from again, every default written out."""
    result: dict[str, Any] = {}
    for f in dataclasses.fields(instance):
        value = getattr(instance, f.name)
        if "kinds" in f.metadata and value is not None:
            value = {"kind": kind_of(value, f.metadata["kinds"]), **plain(value)}
        elif is_dataclass(value):
            value = plain(value)
        elif isinstance(value, tuple):
            value = list(value)
        if f.init:
            result[f.name] = value
    return result


def positive(**values: float | None) -> None:
    """A check for a dataclass' own: each must be above 0, or null."""
    for name, value in values.items():
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be above 0, not {value}")


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


def _nearest(key: str, known: Iterable[str], prefix: str) -> str:
    known = list(known)
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {_join(prefix, close[0])}?"
    return f"; known here: {', '.join(known)}" if known else "; this section has no keys"
