"""The README's example runs, on a small corpus instead of the embedded one and with less training."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from tests import speech


@pytest.mark.long
def test_the_example_runs(on_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(
        r"```python\n(.*?)```", (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    speech.write_corpus(tmp_path)
    small = speech.settings(tmp_path, cohort={"size": 1}, engine={"lanes": 1, "actors": 1})
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(small))
    monkeypatch.chdir(tmp_path)
    module = ModuleType("readme_example")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    short = code.replace('"fednst/embedded"', '"config.yaml"').replace("rounds=5", "rounds=1").replace(
        '"algorithm.trust', '"algorithm.pretrain.steps=20", "algorithm.trust'
    )  # fmt: skip
    exec(compile(short, "README.md", "exec"), module.__dict__)
    assert (module.result.folder / "results.json").exists()
    assert "trust: 0.7" in (module.result.folder / "config.yaml").read_text()
