"""Every configuration loads, and the code reads every setting: a key without effect is a lie."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from fedray import experiment
from fedray.config.schema import plain
from fedray.core.parallel import serial
from fedray.core.settings import settings_class
from fedray.data.corpora import CORPORA
from fedray.data.federation.partition import split_by_speakers
from fedray.data.federation.settings import ServerDataSettings
from fedray.experiment import Config
from fedray.experiment.checks import corpus_reader
from fedray.experiment.pretraining import PretrainingConfig
from fedray.models.language_model import LANGUAGE_MODELS

ROOT = Path(__file__).parent.parent
CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))

# Read from the source instead, since they must be known before the rest can be checked.
READ_BEFORE = {"imports"}
# Settings passed as keyword arguments (`f(**asdict(settings))`): read if the function has a parameter of that name.
HANDED_ON: dict[type, Callable[..., Any]] = {ServerDataSettings: split_by_speakers}
HANDED_ON |= {settings_class(model): model.train for model in LANGUAGE_MODELS.values()}


def kind_of_file(path: Path) -> type[Config] | type[PretrainingConfig]:
    return PretrainingConfig if path.stem.startswith("pretraining") else Config


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: str(path.relative_to(ROOT / "configs")))
def test_a_configuration_loads_and_comes_back_from_its_plain_form(path: Path) -> None:
    cls = kind_of_file(path)
    config, source = experiment.load_as(cls, path)
    again, _ = experiment.load_as(cls, plain(config))
    assert again == config
    if isinstance(config, Config):
        experiment.check_setup(config, source)
    else:
        corpus_reader(config.data, source)


@pytest.mark.parametrize("name", ["gao/common_voice_fr", "fedlora/mustc_recognition", "fedmem/covost2_recognition"])
def test_papers_without_a_language_model_search_by_the_decoder_alone(name: str) -> None:
    decode = experiment.load(ROOT / "configs" / f"{name}.yaml")[0].task.settings.decode
    assert (decode.search, decode.lm_weight, decode.ctc_weight) == ("attention", 0, 0)


def test_there_are_configurations() -> None:
    assert CONFIGS


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: str(path.relative_to(ROOT / "configs")))
def test_a_configuration_for_a_corpus_on_disk_asks_for_its_root(path: Path, tmp_path: Path) -> None:
    config, source = experiment.load_as(kind_of_file(path), path)
    assert config.data.root is None
    if config.data.corpus != "embedded":
        corpus = corpus_reader(config.data, source)
        with pytest.raises(ValueError, match="this corpus needs data.root: set it to the folder that holds "):
            corpus.read(None, 0, tmp_path, serial)


def test_the_index_names_every_configuration() -> None:
    index = (ROOT / "configs" / "README.md").read_text(encoding="utf-8")
    named = {
        f"{room}/{name}"
        for room, text in sections(index)
        for name in re.findall(r"^\| `([\w/]+\.yaml)`", text, re.MULTILINE)
    }
    assert named == {str(path.relative_to(ROOT / "configs")) for path in CONFIGS}


def sections(index: str) -> Iterator[tuple[str, str]]:
    """(folder, text) of each section `## configs/FOLDER`."""
    _, *parts = re.split(r"^## configs/", index, flags=re.MULTILINE)
    for part in parts:
        folder, _, text = part.partition("\n")
        yield folder, text


def settings(cls: type) -> Iterator[type]:
    """The dataclass and all dataclasses that its fields can hold, those of registries included."""
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
    """The names read as attributes (`settings.name`, `getattr(settings, "name")`) outside of __post_init__."""

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


@pytest.mark.parametrize(
    "cls", known_settings(), ids=lambda cls: f"{cls.__module__.removeprefix('fedray.')}.{cls.__qualname__}"
)
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
    reads.visit(
        ast.parse(
            "class S:\n  def __post_init__(self):\n    assert self.checked\n"
            "  def f(self):\n    self.written = self.used\n"
        )
    )
    assert reads.names == {"used"}
