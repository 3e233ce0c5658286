"""Sections whose kind picks a dataclass, and configurations written back as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from fedray.config.schema import build, pick, plain
from fedray.config.source import ConfigError, Source, from_mapping
from fedray.config.typed import type_hints, type_words
from fedray.core.privacy.settings import Private
from fedray.core.settings import Choice, choice, kind_of, kinds
from tests.config.test_source import OPTIMIZERS, Adam, Client, Settings, Sgd, Yogi


@pytest.mark.parametrize(
    "instance",
    [
        Settings(),
        Settings(
            3,
            "x",
            0.5,
            True,
            ["a"],
            {"a": [1]},
            Client(1, None, (), (0.5, 1.5)),
            Choice("yogi", Yogi.Settings(inner=Sgd(2))),
            Adam(1),
        ),
    ],
)
def test_plain_is_what_builds_the_same(instance: Settings) -> None:
    values = plain(instance)
    assert build(Settings, Source(values, {})) == build(Settings, from_mapping(values)) == instance
    assert plain(build(Settings, Source(values, {}))) == values
    assert values["optimizer"]["kind"] in OPTIMIZERS and isinstance(values["client"]["sizes"], list)


BASE = {"optimizer": {"kind": "adam", "lr": 2, "beta": 0.5}, "seed": 1}


@pytest.mark.parametrize(
    ("overrides", "dropped"),
    [
        (["optimizer.kind=sgd"], ["optimizer.lr", "optimizer.beta"]),
        (["optimizer=sgd", "optimizer.lr=3"], ["optimizer.beta"]),
        (["optimizer.lr=3", "optimizer.beta=1", "optimizer.kind=sgd"], []),
        (["optimizer.kind=adam", "optimizer.lr=3", "seed=2"], []),
        (["optimizer=null"], []),
        (["second.kind=sgd"], []),
    ],
)
def test_an_override_of_a_kind_names_the_keys_that_it_drops(overrides: list[str], dropped: list[str]) -> None:
    source = from_mapping(BASE, overrides)
    assert [key for one in source.replaced for key in one.keys] == dropped
    for one in source.replaced:
        assert one.words == "optimizer.kind=sgd replaces the section optimizer of configuration"
        assert source.where("optimizer.beta") == "command line"


@dataclass(frozen=True)
class Bounded:
    size: int
    lr: float | None = None

    def __post_init__(self) -> None:
        if self.lr is None:
            raise ValueError("set lr")


@dataclass(frozen=True)
class Outer:
    optimizer: Any = kinds({"sgd": Sgd, "bounded": Bounded}, "sgd")


@dataclass(frozen=True)
class Top:
    outer: Outer = field(default_factory=Outer)


def test_a_dropped_key_is_asked_for_again() -> None:
    values, name = {"outer": {"optimizer": {"kind": "sgd", "lr": 2, "size": 3}}}, "outer.optimizer"
    again = f"{name}.kind=bounded replaces the section {name} of configuration: give {name}."
    with pytest.raises(ConfigError, match=f"^command line: {again}size again$"):
        build(Top, from_mapping(values, [f"{name}.kind=bounded"]))
    with pytest.raises(ConfigError, match=rf"^command line: {name}: set lr \({again}lr again\)$"):
        build(Top, from_mapping(values, [f"{name}.kind=bounded", f"{name}.size=3"]))


def test_pick() -> None:
    values = {"a": {"b": {"c": 1}}, "d": None}
    assert pick(values, ["a.b", "a.b.c", "a.x", "d.y", "z"]) == {
        "a.b": {"c": 1},
        "a.b.c": 1,
        "a.x": None,
        "d.y": None,
        "z": None,
    }


@dataclass(frozen=True)
class Required:
    seed: int = 0
    optimizer: Any = kinds(OPTIMIZERS)


@dataclass(frozen=True)
class Shared:
    lr: float = 2.0


SHARED: dict[str, type] = {"one": type("One", (), {"Settings": Shared}), "two": type("Two", (), {"Settings": Shared})}


def test_two_kinds_may_share_one_class_of_settings() -> None:
    """A section keeps the kind it was given, which its settings alone do not tell."""

    @dataclass(frozen=True)
    class Both:
        first: Choice = choice(SHARED)
        second: Choice = choice(SHARED, "one")

    found = build(Both, from_mapping({"first": {"kind": "two", "lr": 3}, "second": "two"}))
    assert found == Both(first=Choice("two", Shared(3.0)), second=Choice("two", Shared()))
    values = {"first": {"kind": "two", "lr": 3.0}, "second": {"kind": "two", "lr": 2.0}}
    assert plain(found) == values and list(plain(found)) == ["first", "second"]
    assert build(Both, from_mapping({"first": "two"})).second == Choice("one", Shared())


def test_a_section_without_a_default_kind_must_be_given() -> None:
    assert build(Required, from_mapping({"optimizer": "adam"})) == Required(optimizer=Adam())
    for values in ({}, {"optimizer": None}, {"optimizer": {"lr": 1}}):
        with pytest.raises(
            ConfigError, match=r"^configuration: optimizer\.kind is missing; known kinds: sgd, adam, yogi$"
        ):
            build(Required, from_mapping(values))


@dataclass(frozen=True)
class Named:
    classes: dict[str, Shared]
    rates: dict[str, Any] = field(default_factory=dict)


def test_sections_by_names_of_the_user() -> None:
    values = {"classes": {"fast": {"lr": 3}, "slow": {}}, "rates": {"a": {"b": 1}}}
    found = build(Named, from_mapping(values))
    assert found == Named({"fast": Shared(3.0), "slow": Shared()}, {"a": {"b": 1}}) and list(found.classes)[0] == "fast"
    assert plain(found) == {"classes": {"fast": {"lr": 3.0}, "slow": {"lr": 2.0}}, "rates": {"a": {"b": 1}}}
    assert build(Named, from_mapping(plain(found))) == found
    assert build(Named, from_mapping(values, ["classes.slow.lr=5"])).classes["slow"] == Shared(5.0)
    assert build(Named, from_mapping(values, ["classes.new.lr=6"])).classes["new"] == Shared(6.0)


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        ({"fast": {"rl": 3}}, r"unknown key classes\.fast\.rl"),
        ({"fast": {"lr": "x"}}, r"classes\.fast\.lr must be a number, not 'x'"),
        ({"fast": 3}, r"classes\.fast must be a section of keys, not 3"),
        (["fast"], r"classes must be a section of names, not \['fast'\]"),
        (None, "classes must be a section of names, not None"),
        ({3: {}}, "classes: 3 cannot be a name here"),
        ({"a.b": {}}, "classes: 'a.b' cannot be a name here"),
        ({"": {}}, "classes: '' cannot be a name here"),
    ],
)
def test_wrong_sections_by_name(classes: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(Named, Source({"classes": classes}, {}))
    with pytest.raises(ConfigError, match="classes is missing and has no default"):
        build(Named, Source({}, {}))


def test_the_kind_of_an_instance_is_its_class() -> None:
    assert kind_of(Adam(), OPTIMIZERS) == "adam" and kind_of(Choice("yogi", Yogi.Settings()), OPTIMIZERS) == "yogi"


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (int, "a whole number"),
        (float | None, "a number or null"),
        (bool | None, "true or false or null"),
        (type_hints(Private)["epsilon"], "a number or null"),
        (str | int, "text or a whole number"),
        (list[float], "a list of numbers"),
        (list[str] | None, "a list of texts or null"),
        (tuple[int, int], "a list of 2 whole numbers"),
        (tuple[str, ...], "a list of texts"),
        (dict[str, str], "a section of texts"),
        (dict[str, Any], "a section of keys"),
    ],
)
def test_a_type_in_words(hint: Any, words: str) -> None:
    assert type_words(hint) == words
