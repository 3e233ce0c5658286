"""Settings: frozen dataclasses. A field may hold any kind from a registry, chosen by the `kind` of its section."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

Registry = Mapping[str, type]
T = TypeVar("T")


@dataclass(frozen=True)
class Choice:
    """A kind from a registry, and an instance of that kind's `Settings`."""

    kind: str
    settings: Any


def choice(registry: Registry, default: str | None = None) -> Choice:
    """A field that holds a Choice among classes with a `Settings` dataclass.

    Without a default, the section must be given.
    """
    metadata = {"kinds": registry, "default": default}
    if default is None:
        required: Choice = field(kw_only=True, metadata=metadata)
        return required
    return field(default_factory=lambda: Choice(default, settings_class(registry[default])()), metadata=metadata)


def kinds(registry: Mapping[str, type[T]], default: str | None = None, settings: T | None = None) -> T:
    """A field that holds an instance of one of the registry's dataclasses.

    Without a default, the section must be given. `settings`: the default kind's instance (None: with its own defaults).
    """
    metadata = {"kinds": registry, "default": default, "settings": settings}
    if default is None:
        required: T = field(kw_only=True, metadata=metadata)
        return required
    return field(default_factory=(lambda: settings) if settings else registry[default], metadata=metadata)


def settings_class(registered: type) -> type:
    """The dataclass that a kind's section is checked against: the class' `Settings`, or the class itself."""
    return getattr(registered, "Settings", registered)


def kind_of(instance: object, registry: Registry) -> str:
    """The kind of an instance of one of the registry's dataclasses, or of a Choice."""
    if isinstance(instance, Choice):
        return instance.kind
    return next(kind for kind, registered in registry.items() if registered is type(instance))
