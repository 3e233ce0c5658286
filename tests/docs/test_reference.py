"""The configuration reference has every key of every section, each with a meaning; the API has no gaps."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from fedray.data.corpora import CORPORA
from fedray.experiment.config import Config
from fedray.experiment.pretraining import PretrainingConfig

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
pytest.importorskip("griffe", reason="pip install fedray[docs]")

from docs.hooks import api, command_line, configuration, settings

CLASSES = sorted(
    settings.reachable(Config, CORPORA) | settings.reachable(PretrainingConfig, CORPORA), key=lambda cls: cls.__name__
)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_key_has_a_meaning_in_the_source(cls: type) -> None:
    keys = {key.name: key for key in settings.keys(cls)}
    assert set(keys) == {field.name for field in dataclasses.fields(cls) if field.init}
    assert not [name for name, key in keys.items() if not key.meaning.strip() or key.meaning == key.unit]


def test_every_key_is_on_a_page_under_its_dotted_name() -> None:
    text = "\n".join(configuration.pages().values())
    assert not [key for key in dotted(Config, "") if f"`{key}`" not in text]
    options = [key for cls in CORPORA.values() for key in dotted(cls, "data.options.")]
    assert not [key for key in options if f"`{key}`" not in text]


def dotted(cls: type, prefix: str) -> set[str]:
    """Return the dotted names of all keys of a section, including those of sections below it."""
    found = set()
    for key in settings.keys(cls):
        found.add(f"{prefix}{key.name}")
        for section in settings.sections(key):
            found |= dotted(section, f"{prefix}{key.place}.")
    return found


def test_a_comment_beside_a_field_a_comment_above_it_and_the_unit_are_read() -> None:
    keys = {key.name: key for key in settings.keys(Sample)}
    assert keys["wait_s"].unit == "s" and keys["wait_s"].meaning == "of a client; null: for ever"
    assert keys["every"].unit == "rounds" and keys["every"].default == "`3`"
    assert keys["mode"].meaning == "fast | slow: with two lines of comment." and keys["mode"].unit == ""
    assert keys["wait_s"].type == "float | null"


@dataclasses.dataclass(frozen=True)
class Sample:
    """Settings for this test."""

    wait_s: float | None = None  # of a client; null: for ever
    every: int = 3  # rounds between two checks
    # fast | slow:
    # with two lines of comment.
    mode: str = "fast"


def test_no_public_name_lacks_a_docstring() -> None:
    assert api.undocumented() == []
    assert {"fedray.core.algorithm", "fedray.experiment.launch", "fedray.report", "fedray.sweep"} <= set(api.modules())


def test_the_command_line_is_complete() -> None:
    (page,) = command_line.pages().values()
    for command in ("run", "resume", "watch", "stop", "report", "pretrain", "data", "sweep", "doctor"):
        assert f"## fedray {command}\n" in page
    assert "`--detach`" in page and "`key=value`" in page
