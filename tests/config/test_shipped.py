"""Configurations and sweeps that come with fedray are found by name, from any folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedray import experiment
from fedray.config import shipped
from fedray.config.source import ConfigError, read

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("kind", shipped.ENDINGS)
def test_every_file_is_listed_with_what_it_is(kind: str) -> None:
    found = shipped.files(kind)
    assert sorted(found.values()) == sorted((ROOT / kind).rglob(f"*{shipped.ENDINGS[kind]}"))
    assert not [name for name, path in found.items() if not 10 < len(shipped.summary(path)) < 200]


@pytest.mark.parametrize("name", ["fednst/embedded", "fednst/embedded.yaml", "configs/fednst/embedded.yaml"])
def test_a_name_and_the_path_in_a_clone_find_the_same(name: str) -> None:
    assert shipped.locate("configs", name) == ROOT / "configs" / "fednst" / "embedded.yaml"
    assert experiment.load(name)[0].name == "fednst-embedded"


def test_a_sweep_is_found_by_its_name() -> None:
    assert shipped.locate("sweeps", "fednst_lambda") == ROOT / "sweeps" / "fednst_lambda.py"


def test_a_file_that_exists_wins_over_a_name(tmp_path: Path) -> None:
    (tmp_path / "fednst").mkdir()
    mine = tmp_path / "fednst" / "embedded"
    mine.write_text("name: mine\n")
    assert shipped.locate("configs", "fednst/embedded") == Path("fednst/embedded")
    mine.unlink()
    assert shipped.locate("configs", "fednst/embedded").is_absolute()


@pytest.mark.parametrize(
    ("given", "nearest"), [("fednst/embeded", "fednst/embedded, "), ("emotions", "fedmlac/emotions"), ("?", None)]
)
def test_an_unknown_name_is_refused_with_the_nearest(given: str, nearest: str | None) -> None:
    with pytest.raises(ValueError) as refused:
        experiment.load(given)
    message = str(refused.value)
    assert message.startswith(f"there is no file {given}, and no configuration has this name: ")
    assert message.endswith("`fedray configs` lists all names")
    assert f"the nearest names are {nearest}" in message if nearest else "nearest" not in message


def test_a_tutorial_without_its_clone_is_told_where_its_files_are() -> None:
    with pytest.raises(ValueError, match=r"there is no file docs/.*: the tutorials' files are in docs/ of a clone of"):
        experiment.load("docs/tutorials/words.yaml")


def test_a_configuration_extends_a_shipped_one_by_name(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: fednst/baselines/sfl\nrounds: 3\n")
    config, source = experiment.load("mine.yaml")
    assert (config.rounds, config.algorithm.kind) == (3, "fedavg")
    assert source.where("algorithm.kind") == f"{ROOT}/configs/fednst/baselines/sfl.yaml:5"


def test_a_file_near_the_configuration_wins_over_a_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "fednst").mkdir()
    (tmp_path / "fednst" / "embedded").write_text("name: near\n")
    (tmp_path / "mine.yaml").write_text("extends: fednst/embedded\n")
    assert read(tmp_path / "mine.yaml").values == {"name": "near"}


def test_an_unknown_name_to_extend_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\nextends: fednst/embeded\n")
    with pytest.raises(
        ConfigError, match=r"^mine\.yaml:2: extends: there is no file fednst/embeded, and no conf.*nearest"
    ):
        read(Path("mine.yaml"))


def test_the_first_sentence_says_what_a_file_is(tmp_path: Path) -> None:
    config, sweep = tmp_path / "a.yaml", tmp_path / "a.py"
    config.write_text("# Gao et al. on `a.yaml`, with\n# 2.0M parameters. Needs GPUs.\nname: a\n# Another.\n")
    assert shipped.summary(config) == "Gao et al. on `a.yaml`, with 2.0M parameters"
    sweep.write_text('"""How fast?\n\n    python a.py\n"""\n')
    assert shipped.summary(sweep) == "How fast?"
