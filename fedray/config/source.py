"""Configuration files: YAML is read as plain data, with the place of every key.

`extends: base.yaml` starts from another file, `extends: fednst/embedded` from a configuration that comes with fedray;
`a.b=c` on the command line beats every file. `schema` checks the merged values.
"""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedray.config import bounded, shipped
from fedray.config.merging import Values, differ, dotted, merged, section_of, without_empty
from fedray.core.texts import read_text

MAPPING = "the mapping"  # where a key is set that no file sets


class ConfigError(ValueError):
    """The user's configuration is wrong; the message says where, and what to do."""


@dataclass(frozen=True)
class Replaced:
    """A section that an override of its kind replaces, although the section has other keys, which are dropped."""

    section: str  # dotted
    kind: str  # the override's
    place: str  # of the section: "configs/a.yaml:12"
    keys: tuple[str, ...]  # dotted, from the top; without those that the overrides give again

    @property
    def words(self) -> str:
        """The override, and what it replaces."""
        return f"{self.section}.kind={self.kind} replaces the section {self.section} of {self.place}"


@dataclass(frozen=True)
class Source:
    """Merged values, and for each dotted key the place that sets it ("configs/a.yaml:12")."""

    values: Values
    origins: dict[str, str]
    replaced: tuple[Replaced, ...] = ()  # by overrides
    given: Values = field(default_factory=dict)  # the merged values before interpolations are resolved

    def where(self, key: str) -> str:
        """The place that sets the key, or the nearest section around the key."""
        while key and key not in self.origins:
            key = key.rpartition(".")[0]
        return self.origins.get(key, "configuration")

    def again(self, key: str) -> str | None:
        """What to do about a key that an override of its section's kind drops; None: no override drops it."""
        found = next((one for one in self.replaced if key in one.keys), None)
        return None if found is None else f"{found.words}: give {key} again"


def read(path: Path, overrides: Iterable[str] = ()) -> Source:
    """Read a YAML file and the files it extends, and apply dotted overrides."""
    values, origins = _read_file(path, ())
    return _overridden(values, origins | {"": str(path)}, overrides)


def own_overrides(path: Path) -> list[str]:
    """The keys that a YAML file sets itself, not those of the file it extends, as overrides; without its name."""
    values, _, empty = _read_one(path, ())
    left_out = empty | {"name", "extends"}
    return [override(key, value, unresolved=True) for key, value in dotted(values).items() if key not in left_out]


def from_mapping(values: Mapping[str, Any], overrides: Iterable[str] = ()) -> Source:
    """Read a mapping in Python and the configuration that it extends, and apply dotted overrides."""
    found, origins = _copied(dict(values)), dict[str, str]()
    if (parent := found.pop("extends", None)) is not None:
        below, origins = _read_file(_extended(Path("mapping"), str(parent), MAPPING), ())
        found, origins = merged(below, found), origins | dict.fromkeys(dotted(found), MAPPING)
    return _overridden(found, origins, overrides)


def _overridden(values: Values, origins: dict[str, str], overrides: Iterable[str]) -> Source:
    top, names = _from_overrides(overrides)
    replaced = tuple(_replaced(values, top, Source(values, origins)))
    for name in (*(one.section for one in replaced), *names):
        origins = {key: place for key, place in origins.items() if not key.startswith(f"{name}.")} | {
            name: "command line"
        }
    return _resolved(merged(values, top), origins, replaced)


def _replaced(base: Values, top: Values, source: Source, prefix: str = "") -> Iterator[Replaced]:
    """The sections of `base` that `merged` replaces, and whose keys it drops."""
    for key, here in top.items():
        there, section = base.get(key), f"{prefix}{key}"
        if not isinstance(there, dict):
            continue
        here = section_of(here) if "kind" in there else here
        if not isinstance(here, dict):
            continue
        if not differ(here, there, "kind"):
            yield from _replaced(there, here, source, f"{section}.")
        elif keys := [key for key in dotted(there, f"{section}.") if key not in dotted(here, f"{section}.")]:
            yield Replaced(section, str(here["kind"]), source.where(section), tuple(keys))


def _from_overrides(overrides: Iterable[str]) -> tuple[Values, list[str]]:
    """All overrides merged, so that a kind and its keys may come in any order, and the keys they set."""
    top: Values = {}
    names = []
    for override in overrides:
        name = override.partition("=")[0]
        if "=" not in override or not all(name.split(".")):
            raise ConfigError(f"command line: {override!r} is not of the form key=value, such as rounds=50")
        try:
            top = merged(top, copy.deepcopy(_from_override(override)))
        except (yaml.YAMLError, OmegaConfBaseException) as error:
            text = f"quote a text: '{name}={json.dumps(override.partition('=')[2], ensure_ascii=False)}'"
            raise ConfigError(
                f"command line: {override!r}: the value is not valid YAML: {_problem(error)}; {text}"
            ) from error
        except RecursionError as error:
            raise ConfigError(f"command line: {name}: the value is nested too deep") from error
        names.append(name)
    return top, names


@functools.lru_cache(maxsize=10_000)  # the trials of a grid share most of theirs
def _from_override(override: str) -> Values:
    with bounded.constructed():
        found = OmegaConf.from_dotlist([override])
    return _plain(found)


def as_value(text: str, unresolved: bool = False) -> str:
    """A text as the VALUE of an override `key=VALUE`: quoted if YAML or an interpolation would read it otherwise.

    `unresolved`: the text is as a file has it, and its interpolations stay interpolations.
    """
    if re.fullmatch(r"[\w./~@%+=:-]*[\w./]", text) and OmegaConf.from_dotlist([f"key={text}"]).key == text:
        return text
    return json.dumps(text if unresolved else text.replace("${", "\\${"), ensure_ascii=False)


def override(key: str, value: object, unresolved: bool = False) -> str:
    """The override `key=value`; `unresolved` as for `as_value`."""
    return f"{key}={as_value(value, unresolved) if isinstance(value, str) else json.dumps(value)}"


def _resolved(values: Values, origins: dict[str, str], replaced: tuple[Replaced, ...]) -> Source:
    """Replace interpolations (`${seed}`) by the values they name."""
    if _is_plain(values):  # most configurations: a grid reads thousands of them
        return Source(copy.deepcopy(values), origins, replaced, values)
    try:
        return Source(_plain(OmegaConf.create(values), resolve=True), origins, replaced, values)
    except OmegaConfBaseException as error:
        key = error.full_key or ""
        raise ConfigError(f"{Source({}, origins).where(key)}: {key}: {_problem(error)}") from error


def _copied(values: Values) -> Values:
    """The values as OmegaConf reads them: a plain copy where it would change nothing, in a hundredth of the time."""
    return copy.deepcopy(values) if _is_plain(values) else _plain(OmegaConf.create(values))


def _is_plain(value: object) -> bool:
    """Whether a value is made of what YAML knows, without interpolations."""
    if type(value) is dict:
        return all(type(key) is str and _is_plain(inner) for key, inner in value.items())
    if type(value) is list:
        return all(map(_is_plain, value))
    return type(value) in (int, float, bool, type(None)) or (type(value) is str and "${" not in value)


def _plain(config: DictConfig, resolve: bool = False) -> Values:
    values = OmegaConf.to_container(config, resolve=resolve)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def _problem(error: Exception) -> str:
    """What is wrong, in one line: without the excerpt that the YAML parser prints."""
    return str(error.problem) if isinstance(error, yaml.MarkedYAMLError) else str(error).splitlines()[0]


def _read_file(path: Path, seen: tuple[Path, ...]) -> tuple[Values, dict[str, str]]:
    """Values and origins of a file and of the files it extends. `seen`: the files that extend this one."""
    values, origins, empty = _read_one(path, seen)
    parent = values.pop("extends", None)
    if parent is None:
        return values, origins
    below, places = _read_file(_extended(path, str(parent), origins["extends"]), (*seen, path.resolve()))
    return merged(below, without_empty(values, below, empty)), places | origins


def _read_one(path: Path, seen: tuple[Path, ...]) -> tuple[Values, dict[str, str], set[str]]:
    """Values and origins of a file alone, `extends` among them, and the dotted keys without a value."""
    if path.resolve() in seen:
        raise ConfigError(f"{path}: extends itself, by way of {' -> '.join(str(p) for p in seen)}")
    try:
        text = read_text(path)
        node = bounded.compose(text)
        if not isinstance(node, yaml.MappingNode | None):
            raise ConfigError(f"{path}: a configuration is a mapping of keys to values")
        with bounded.constructed():
            config = OmegaConf.create({}) if node is None else OmegaConf.create(text)
        assert isinstance(config, DictConfig)
        values = _plain(config)
    except ConfigError:
        raise
    except OSError as error:
        extended = f" ({seen[-1]} extends it)" if seen else ""
        raise ConfigError(f"{path}: cannot be read: {error.strerror}{extended}") from error
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line}: is not valid YAML: {_problem(error)}") from error
    except ValueError as error:  # from read_text: another encoding
        raise ConfigError(str(error)) from error
    except RecursionError as error:
        raise ConfigError(f"{path}: is nested too deep for a configuration") from error
    lines = list(_lines(node, "", str(path)))
    return values, {name: place for name, place, _ in lines}, {name for name, _, empty in lines if empty}


def _extended(path: Path, parent: str, where: str) -> Path:
    """The file that `extends: parent` names in `path`: a file near it, or a shipped configuration."""
    near = path.parent / Path(parent).expanduser()
    if near.is_file():
        return near
    found = shipped.find("configs", parent)
    if found is None and near.suffix != ".yaml":
        raise ConfigError(f"{where}: extends: {shipped.unknown('configs', parent)}")
    return found or near


def _lines(node: yaml.Node | None, prefix: str, path: str) -> Iterator[tuple[str, str, bool]]:
    """Each dotted key below a node, with the file and the line that set it, and whether no value follows it."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = f"{prefix}{key.value}"
            empty = isinstance(value, yaml.ScalarNode) and not value.value and value.style is None
            yield name, f"{path}:{key.start_mark.line + 1}", empty
            yield from _lines(value, f"{name}.", path)
