"""Every configuration loads, and every setting that a configuration can hold is read by somebody: a key without effect is a lie."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from fedray import experiment
from fedray.core.config import plain, settings_class
from fedray.data.corpora import CORPORA
from fedray.data.federated import ServerDataSettings
from fedray.data.partition import split_by_speakers
from fedray.experiment import Config
from fedray.models.language_model import LANGUAGE_MODELS
from fedray.pretraining import PretrainingConfig

ROOT = Path(__file__).parent.parent
CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))

# Read from the source instead, since they must be known before the rest can be checked.
READ_BEFORE = {"imports"}
# Settings that are handed on whole, as keyword arguments (`f(**asdict(settings))`): read when the function has a parameter of that name.
HANDED_ON: dict[type, Callable[..., Any]] = {ServerDataSettings: split_by_speakers}
HANDED_ON |= {settings_class(model): model.train for model in LANGUAGE_MODELS.values()}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: str(path.relative_to(ROOT / "configs")))
def test_a_configuration_loads_and_comes_back_from_its_plain_form(path: Path) -> None:
    into = PretrainingConfig if path.stem.startswith("pretraining") else Config
    config, source = experiment.load(path, into=into)
    again, _ = experiment.load(plain(config), into=into)
    assert again == config
    corpus = CORPORA[config.data.corpus]
    experiment.configuration.build(corpus, source, "data.options", config.data.options)


def test_there_are_configurations() -> None:
    assert CONFIGS


def settings(cls: type) -> Iterator[type]:
    """The dataclass and all that its fields can hold, registries included."""
    yield cls
    hints = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        kinds = field.metadata["kinds"].values() if "kinds" in field.metadata else ()
        for inner in [settings_class(kind) for kind in kinds] + [hints[field.name], *get_args(hints[field.name])]:
            if isinstance(inner, type) and dataclasses.is_dataclass(inner):
                yield from settings(inner)


def known_settings() -> list[type]:
    found = [cls for root in (Config, PretrainingConfig, *CORPORA.values()) for cls in settings(root)]
    return sorted(set(found), key=lambda cls: (cls.__module__, cls.__qualname__))


class Reads(ast.NodeVisitor):
    """The names that are read as attributes (`settings.name`, `getattr(settings, "name")`) outside of dataclasses' own checks."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name != "__post_init__":  # a value that is only checked has no effect either
            self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load):
            self.names.add(node.attr)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id == "getattr" and isinstance(node.args[1], ast.Constant):
            self.names.add(node.args[1].value)
        self.generic_visit(node)


@functools.cache
def names_read() -> frozenset[str]:
    reads = Reads()
    for path in (ROOT / "fedray").rglob("*.py"):
        reads.visit(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(reads.names)


@pytest.mark.parametrize("cls", known_settings(), ids=lambda cls: f"{cls.__module__.removeprefix('fedray.')}.{cls.__qualname__}")
def test_every_setting_is_read(cls: type) -> None:
    read = names_read() | READ_BEFORE
    if cls in HANDED_ON:
        read |= set(inspect.signature(HANDED_ON[cls]).parameters)
    unread = [field.name for field in dataclasses.fields(cls) if field.init and field.name not in read]
    assert not unread, f"nobody reads {', '.join(unread)} of {cls.__name__}: use them or take them out"


def test_settings_are_frozen() -> None:
    thawed = [cls.__qualname__ for cls in known_settings() if not cls.__dataclass_params__.frozen]  # type: ignore[attr-defined]
    assert not thawed


def test_a_setting_that_is_only_checked_counts_as_unread() -> None:
    reads = Reads()
    reads.visit(ast.parse("class S:\n  def __post_init__(self):\n    assert self.checked\n  def f(self):\n    self.written = self.used\n"))
    assert reads.names == {"used"}
