"""Files hold the interpolation of a text that the environment gave, and everything else as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fedray.config.source import Source, from_mapping, read
from fedray.config.written import as_yaml, recorded


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "/secret")
    monkeypatch.setenv("NUMBER", "0.5")


def source(text: str, tmp_path: Path) -> Source:
    (tmp_path / "config.yaml").write_text(text)
    return read(tmp_path / "config.yaml")


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("data.root", "${oc.env:PLACE}/x", "${oc.env:PLACE}/x"),
        ("data.root", "${oc.env:ABSENT,/secret}", "${oc.env:ABSENT,/secret}"),
        ("data.root", "${oc.decode:${oc.env:PLACE}}", "${oc.decode:${oc.env:PLACE}}"),
        ("data.root", "${other.root}/x", "${other.root}/x"),  # which may name the key of a secret
        ("data.root", r"/a/\${oc.env:PLACE}", r"/a/\${oc.env:PLACE}"),
        ("data.files", ["a", "${oc.env:PLACE}/b"], ["a", "${oc.env:PLACE}/b"]),
        ("algorithm.alpha", "${oc.decode:${oc.env:NUMBER}}", 0.5),  # a number: the run's bits depend on it
        ("algorithm.kind", "${oc.env:PLACE}", "/secret"),  # the name of something in fedray
        ("name", "${oc.env:PLACE}", "/secret"),  # it is the folder's name too
    ],
)
def test_what_is_written(tmp_path: Path, key: str, text: Any, value: Any) -> None:
    section, _, name = key.rpartition(".")
    given: dict[str, Any] = {"other": {"root": "${oc.env:PLACE}"}}
    given |= {section: {name: text}} if section else {name: text}
    found = source(yaml.safe_dump(given), tmp_path)
    written = yaml.safe_load(as_yaml(found.values, found))
    assert (written[section] if section else written)[name] == value
    assert from_mapping(written).values == found.values  # as a resumed run reads it


def test_without_the_environment_values_are_written_out(tmp_path: Path) -> None:
    found = source("seed: 3\ndata: {seed: '${seed}', root: 'x/${seed}'}\n", tmp_path)
    assert recorded(found.values, found) == found.values
    assert found.values["data"] == {"seed": 3, "root": "x/3"}
