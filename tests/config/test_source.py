from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fedray.config.schema import build
from fedray.config.source import ConfigError, Source, as_value, from_mapping, own_overrides, read
from fedray.config.written import as_yaml
from fedray.core.settings import Choice, choice, kinds


@dataclass(frozen=True)
class Sgd:
    lr: float = 1.0


@dataclass(frozen=True)
class Adam:
    lr: float = 0.01
    beta: float = 0.9

    def __post_init__(self) -> None:
        if not self.beta > 0:
            raise ValueError(f"beta must be above 0, not {self.beta}")


class Yogi:
    """A class with its settings in a nested dataclass, as algorithms have."""

    @dataclass(frozen=True)
    class Settings:
        tau: float = 1e-3
        inner: Sgd = Sgd(lr=5.0)


OPTIMIZERS: dict[str, type] = {"sgd": Sgd, "adam": Adam, "yogi": Yogi}


@dataclass(frozen=True)
class Client:
    batch: int
    clip: float | None = 5.0
    sizes: tuple[int, ...] = (1, 2)
    span: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True)
class Settings:
    default: ClassVar[str] = "not a field"
    seed: int = 0
    name: str = "run"
    share: str | float = "auto"
    verbose: bool = False
    tags: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    client: Client = Client(batch=6, clip=1.0)
    optimizer: Any = kinds(OPTIMIZERS, "sgd")
    second: Any = choice(OPTIMIZERS, "yogi")


def settings(folder: Path, text: str, *overrides: str) -> Settings:
    path = folder / "run.yaml"
    path.write_text(text)
    return build(Settings, read(path, overrides))


def message(folder: Path, text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        settings(folder, text, *overrides)
    found = str(caught.value)
    assert "\n" not in found
    return found.replace(f"{folder}/", "")


def test_defaults_and_values(tmp_path: Path) -> None:
    assert settings(tmp_path, "") == settings(tmp_path, "# nothing\n") == Settings()
    text = "seed: 3\nshare: 1\ntags: [a, b]\noptions: {any: [1, {thing: x}]}\nclient: {sizes: [3], span: [1, 2]}\n"
    found = settings(tmp_path, text + "optimizer: {kind: adam, lr: 1}")
    expected = Settings(
        3, "run", 1.0, False, ["a", "b"], {"any": [1, {"thing": "x"}]}, Client(6, 1.0, (3,), (1.0, 2.0)), Adam(1.0)
    )
    assert found == expected
    assert (
        isinstance(found.share, float)
        and isinstance(found.client.sizes, tuple)
        and isinstance(found.client.span[0], float)
    )


def test_a_section_keeps_the_defaults_of_its_field(tmp_path: Path) -> None:
    """The field's default wins: the class has no default for `batch`, and another one for `clip`."""
    assert settings(tmp_path, "client: {clip: null}").client == Client(6, None)
    assert settings(tmp_path, "client: {}").client == settings(tmp_path, "client:").client == Client(6, 1.0)
    assert settings(tmp_path, "optimizer: {kind: yogi, inner: {}}").optimizer == Choice("yogi", Yogi.Settings())


def test_extends_merges_and_finds_its_way(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "root.yaml").write_text("seed: 1\nname: root\nclient: {batch: 2, clip: 3}\ntags: [a, b]")
    (tmp_path / "deep" / "base.yaml").write_text("extends: ../root.yaml\nname: base\nclient: {batch: 4}")
    found = settings(tmp_path, "extends: deep/base.yaml\ntags: [c]\n", "client.clip=7")
    assert (found.seed, found.name, found.client, found.tags) == (1, "base", Client(4, 7.0), ["c"])


def test_an_empty_section_drops_nothing_of_the_file_below(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("client: {batch: 4, clip: 3}")
    assert settings(tmp_path, "extends: base.yaml\nclient:\n  # batch: 8\n").client == Client(4, 3.0)
    assert own_overrides(tmp_path / "run.yaml") == []
    assert settings(tmp_path, "extends: base.yaml\nclient: {clip: }\n").client == Client(4, None), "not a section"
    assert settings(tmp_path, "extends: base.yaml\nclient: null\n").client != Client(4, 3.0), "dropped on purpose"


@pytest.mark.parametrize("kind", ["optimizer: {kind: adam, lr: 2, beta: 0.5}"])
@pytest.mark.parametrize(
    ("top", "expected"),
    [
        ("optimizer: {lr: 3}", Adam(3, 0.5)),
        ("optimizer: {kind: adam, lr: 3}", Adam(3, 0.5)),
        ("optimizer: adam", Adam(2, 0.5)),
        ("optimizer: {kind: sgd}", Sgd()),
        ("optimizer: sgd", Sgd()),
        ("optimizer: {kind: yogi, tau: 4}", Choice("yogi", Yogi.Settings(4))),
    ],
)
def test_another_kind_replaces_the_one_below(tmp_path: Path, kind: str, top: str, expected: object) -> None:
    (tmp_path / "base.yaml").write_text(kind)
    assert settings(tmp_path, f"extends: base.yaml\n{top}").optimizer == expected


def test_a_word_is_a_kind_that_keys_can_be_added_to(tmp_path: Path) -> None:
    assert settings(tmp_path, "second: adam").second == Adam()
    assert settings(tmp_path, "optimizer: adam", "optimizer.lr=3").optimizer == Adam(
        3
    )  # not the default kind with that rate
    (tmp_path / "base.yaml").write_text("optimizer: adam")
    assert settings(tmp_path, "extends: base.yaml\noptimizer: {lr: 3}").optimizer == Adam(3)


def test_overrides_beat_files_in_any_order(tmp_path: Path) -> None:
    found = settings(
        tmp_path, "seed: 1", "seed=2", "seed=3", "client.span=[0.5, 2]", "options.a.b=x", "options.a.c=1e-3"
    )
    assert (found.seed, found.client.span, found.options) == (3, (0.5, 2.0), {"a": {"b": "x", "c": 1e-3}})
    orders = [
        ("optimizer.kind=adam", "optimizer.beta=0.5"),
        ("optimizer.beta=0.5", "optimizer.kind=adam"),
        ("optimizer=adam", "optimizer.beta=0.5"),
    ]
    for overrides in orders:
        assert settings(tmp_path, "optimizer: {kind: yogi, tau: 1}", *overrides).optimizer == Adam(0.01, 0.5)


def test_a_configuration_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    """Text stays text, although OmegaConf reads more words as numbers than YAML does, and `${` as an interpolation."""
    odd = ["1e3", "5e-4", "1E5", "1.e3", "+1e3", "12:30:45", "0x10", "no", "007"]
    odd += ["~", "${seed}", "a: b", "x #y", "", "ä"]
    values = {"name": "1e3", "list": odd, "section": {"text": "/data/${x}", "number": 1e-3, "nothing": None}}
    (tmp_path / "written.yaml").write_text(as_yaml(values, Source(values, {})), encoding="utf-8")
    assert read(tmp_path / "written.yaml").values == values
    for text in odd:
        if text not in ("", "~"):
            assert from_mapping({}, [f"key={as_value(text)}"]).values == {"key": text}, text


def test_interpolation(tmp_path: Path) -> None:
    assert settings(tmp_path, "seed: 4\nclient: {batch: '${seed}'}", "seed=5").client.batch == 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("client:\n  batch: 1\n  clipp: 2", "run.yaml:3: unknown key client.clipp; did you mean client.clip?"),
        (
            "\noptimizer:\n  kind: adam\n  betta: 2",
            "run.yaml:4: unknown key optimizer.betta; did you mean optimizer.beta?",
        ),
        ("second: {kind: [adam]}", "run.yaml:1: second.kind: ['adam'] is not known"),
        ("optimizer: 3", "run.yaml:1: optimizer must be a section of keys, or a kind alone, not 3"),
        ("optimizer: [adam]", "run.yaml:1: optimizer must be a section of keys, or a kind alone, not ['adam']"),
        ("seed: ???", "run.yaml:1: seed must be a whole number, not '???'"),
        ("seed: {a: 1}", "run.yaml:1: seed must be a whole number, not {'a': 1}"),
        ("share: [1]", "run.yaml:1: share must be text or a number, not [1]"),
        ("client:\n  sizes: [1, x]", "run.yaml:2: client.sizes must be a list of whole numbers, not [1, 'x']"),
        ("client: {span: [1]}", "run.yaml:1: client.span must be a list of 2 numbers, not [1]"),
        ("optimizer:\n  kind: adam\n  beta: -1", "run.yaml:3: optimizer: beta must be above 0, not -1.0"),
        ("optimizer: {kind: yogi, inner: {lr: x}}", "run.yaml:1: optimizer.inner.lr must be a number, not 'x'"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, expected: str) -> None:
    """What the cases of tests/bad_input/configuration.py leave out."""
    assert message(tmp_path, text).startswith(expected)


def test_the_line_is_that_of_the_file_that_set_it(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("name: x\nclient:\n  batch: many\n  clip: 1")
    assert message(tmp_path, "extends: base.yaml\nclient: {clip: 2}").startswith("base.yaml:3: client.batch must be")
    assert message(tmp_path, "extends: base.yaml\nclient:\n  batch: few").startswith("run.yaml:3: client.batch must be")
    assert message(tmp_path, "extends: base.yaml", "client.batch=most").startswith("command line: client.batch must be")


def test_a_key_without_a_default_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("clip: 3")
    with pytest.raises(ConfigError, match=r"run\.yaml: batch is missing and has no default"):
        build(Client, read(path))


@pytest.mark.parametrize("wrong", ["client.=3", ".seed=1"])
def test_overrides_that_are_none(tmp_path: Path, wrong: str) -> None:
    expected = f"command line: '{wrong}' is not of the form key=value, such as rounds=50"
    assert message(tmp_path, "seed: 1", wrong) == expected
    with pytest.raises(ConfigError, match=re.escape(expected)):
        from_mapping({"seed": 1}, [wrong])


@pytest.mark.parametrize("wrong", ["tags=[a", "name='x", "name=${"])
def test_overrides_that_are_not_yaml(tmp_path: Path, wrong: str) -> None:
    assert message(tmp_path, "seed: 1", wrong).startswith(f"command line: {wrong!r}: the value is not valid YAML: ")
    assert "quote a text: 'data.options.delimiter=\",\"'" in message(tmp_path, "seed: 1", "data.options.delimiter=,")


@pytest.mark.parametrize("value", ["!!int ''", "!!bool x", "!!timestamp x"])
def test_a_value_that_is_not_what_its_tag_says(tmp_path: Path, value: str) -> None:
    assert message(tmp_path, f"seed: {value}").startswith("run.yaml: is not valid YAML: a value is not of the type")
    assert "a value is not of the type that its tag names" in message(tmp_path, "seed: 1", f"seed={value}")


def test_a_tag_of_python_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "is not valid YAML" in message(tmp_path, "seed: !!python/object/apply:os.mkdir [made]")
    assert not Path("made").exists()


def test_files_that_extend_one_another(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: b.yaml")
    (tmp_path / "b.yaml").write_text("extends: ./a.yaml")
    with pytest.raises(ConfigError, match=r"a\.yaml: extends itself, by way of .*a\.yaml -> .*b\.yaml"):
        read(tmp_path / "a.yaml")


def test_from_python() -> None:
    assert build(Settings, from_mapping({"seed": 3, "optimizer": "adam"}, ["optimizer.lr=2"])) == Settings(
        seed=3, optimizer=Adam(2)
    )
    with pytest.raises(ConfigError, match="^configuration: unknown key sead; did you mean seed"):
        build(Settings, from_mapping({"sead": 3}))
    with pytest.raises(ConfigError, match="^command line: seed must be a whole number, not 'x'"):
        build(Settings, from_mapping({}, ["seed=x"]))


def test_a_mapping_extends_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text("seed: 7\noptimizer: {kind: adam, lr: 2}\n")
    source = from_mapping({"extends": "base.yaml", "optimizer": {"lr": 5}}, ["seed=8"])
    assert build(Settings, source) == Settings(seed=8, optimizer=Adam(5))
    assert source.where("optimizer.lr") == "the mapping" and source.where("optimizer.kind") == "base.yaml:2"
    assert from_mapping({"extends": "fednst/embedded", "rounds": 3}).values["algorithm"]["kind"] == "fednst"
    with pytest.raises(ConfigError, match="^the mapping: extends: "):
        from_mapping({"extends": "fednst/embeded"})


def test_another_corpus_leaves_nothing_of_the_options_of_the_one_below(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("data: {corpus: embedded, root: /a, options: {words: 3}, seed: 4}\n")
    values = read(tmp_path / "a.yaml", ["data.corpus=tsv", "data.options={train: [b]}"]).values
    assert values["data"] == {"corpus": "tsv", "options": {"train": ["b"]}, "seed": 4}
    values = read(tmp_path / "a.yaml", ["data.corpus=embedded", "data.options.kind=keywords"]).values
    assert values["data"]["options"] == {"words": 3, "kind": "keywords"}
