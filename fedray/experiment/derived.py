"""Settings that follow from a model's checkpoint: the user names the checkpoint, and need not repeat what it says."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedray.config.schema import build_section, has
from fedray.config.source import ConfigError, Source
from fedray.core.settings import settings_class
from fedray.models import MODELS
from fedray.models.checkpoint import SMALL, fetch, is_on_hub


def with_derived(cls: type, source: Source) -> Source:
    """The source with the settings that the model's checkpoint decides, where the user sets none.

    A model with a `folder` derives them by its static method `derived(settings, task, algorithm)`, which gets its
    settings and the other two kinds. `cls`: the dataclass of the configuration. ConfigError: the checkpoint cannot be
    read.
    """
    kinds = {f.name: f.metadata for f in dataclasses.fields(cls) if "kinds" in f.metadata}
    if not {"model", "task", "algorithm"} <= kinds.keys():
        return source
    values: dict[str, Any] = copy.deepcopy(source.values)
    chosen = {name: _kind(values.get(name), kinds[name]["default"]) for name in kinds}
    model: Any = MODELS.get(str(chosen["model"]))
    if not hasattr(model, "derived"):
        return source
    section = values.get("model")
    given = {key: value for key, value in section.items() if key != "kind"} if isinstance(section, Mapping) else {}
    settings: Any = build_section(settings_class(model), source, "model", given)
    try:
        if isinstance(settings.folder, str) and is_on_hub(settings.folder):
            fetch(settings.folder, settings.revision, SMALL)
        wanted = model.derived(settings, chosen["task"], chosen["algorithm"])
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{source.where('model.folder')}: {error}") from error
    for key, value in wanted.items():
        name, _, rest = key.partition(".")
        if has(values, key) or not _knows(kinds[name], wanted.get(f"{name}.kind", chosen[name]), rest):
            continue
        if not isinstance(values.get(name), Mapping):
            values[name] = {} if values.get(name) is None else {"kind": values[name]}
        _put(values, key, value)
    return replace(source, values=values)


def _kind(section: object, default: str | None) -> str | None:
    """The kind that a section chooses."""
    kind = section.get("kind", default) if isinstance(section, Mapping) else section or default
    return kind if isinstance(kind, str) else None


def _knows(metadata: Mapping[str, Any], kind: object, key: str) -> bool:
    """Whether the section of this kind has a dotted key."""
    if key == "kind":
        return True
    cls = metadata["kinds"].get(kind)
    cls = None if cls is None else settings_class(cls)
    for part in key.split("."):
        field = next((f for f in dataclasses.fields(cls) if f.name == part), None) if cls is not None else None
        if field is None:
            return False
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        cls = type(default) if dataclasses.is_dataclass(default) else None
    return True


def _put(values: dict[str, Any], key: str, value: object) -> None:
    *sections, last = key.split(".")
    for name in sections:
        if not isinstance(values.get(name), dict):
            values[name] = {}
        values = values[name]
    values[last] = copy.deepcopy(value)
