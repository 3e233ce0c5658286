"""A sweep continues with the choices and the definition that it began with, and says how its trials ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ray import tune

from fedray.report.figures import Bars
from fedray.runs.folder import RunFolder
from fedray.sweep import Sweep, choices
from fedray.sweep.command import _ended, _parse
from tests.sweep.tones import SWEEP

LR = "algorithm.client.lr"


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """The folder of a sweep with the override rounds=5."""
    monkeypatch.chdir(tmp_path)
    Path("tones.yaml").write_text(yaml.safe_dump({"name": "tones", "cohort": {"size": 3}}))
    folder = RunFolder(tmp_path / "runs" / "tones")
    folder.write_json("sweep.json", asdict(choices.new(SWEEP, folder, _parse(SWEEP, ["rounds=5"]))))
    return folder


def resumed(folder: RunFolder, *given: str, sweep: Sweep = SWEEP) -> choices.Choices:
    return choices.resumed(sweep, folder, _parse(sweep, ["--resume", *given]))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["rounds=100"], r"with overrides=\['rounds=5'\], not \['rounds=100'\]"),
        (["--scheduler", "asha"], "with scheduler='fifo', not 'asha'"),
        (["--smoke"], "with smoke=False, not True"),
        (["--num-samples", "3"], "with samples=1, not 3"),
    ],
)
def test_a_sweep_continues_with_its_own_choices(given: list[str], words: str, begun: RunFolder) -> None:
    with pytest.raises(ValueError, match=f"holds a sweep {words}: --resume continues with the sweep's own choices"):
        resumed(begun, *given)
    for same in (["rounds=5", "--scheduler", "fifo", "--num-samples", "1"], []):
        assert resumed(begun, *same).overrides == ["rounds=5"]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"settings": ["strategy.kind=by_loss"]}, r"settings: \[\] -> \['strategy.kind=by_loss'\]"),
        ({"space": {LR: tune.grid_search([0.05, 0.9])}}, f"space: {LR}: 0.05, 0.2 -> 0.05, 0.9"),
        ({"names": {LR: {"0.05": "small", "0.2": "large"}}}, f"names: {LR}: None -> .*small.*large'}}"),
        ({"metric": "dev/cer"}, "metric: dev/wer -> dev/cer"),
    ],
)
def test_a_sweep_whose_file_has_changed_is_refused(change: Mapping[str, Any], line: str, begun: RunFolder) -> None:
    """Otherwise its later trials would differ from its earlier ones in more than the swept keys."""
    with pytest.raises(ValueError, match=rf"the sweep has changed since it began:\n  {line}\nrestore this, or begin"):
        resumed(begun, sweep=replace(SWEEP, **change))


def test_a_sweep_whose_base_has_changed_is_refused(begun: RunFolder) -> None:
    Path("tones.yaml").write_text(yaml.safe_dump({"name": "tones", "cohort": {"size": 2}}))
    with pytest.raises(ValueError, match=r"began:\n  bases: tones.yaml: cohort: size: 3 -> 2\nrestore"):
        resumed(begun)


def test_a_range_that_is_drawn_from_otherwise_is_refused(begun: RunFolder) -> None:
    """fedray 1.0 wrote only the range, which stays good."""
    drawn = replace(SWEEP, space={LR: tune.uniform(0.1, 1.0)})
    values = asdict(choices._present(drawn, _parse(drawn, ["rounds=5"])))
    begun.write_json("sweep.json", values)
    assert resumed(begun, sweep=drawn).space == {LR: "Float (0.1, 1.0) Uniform()"}
    changed = replace(SWEEP, space={LR: tune.loguniform(0.1, 1.0)})
    with pytest.raises(ValueError, match=r"space: .*: Float \(0.1, 1.0\) Uniform\(\) -> Float \(0.1, 1.0\) LogUniform"):
        resumed(begun, sweep=changed)
    begun.write_json("sweep.json", values | {"space": {LR: "Float (0.1, 1.0)"}})
    assert resumed(begun, sweep=drawn).keys == [LR]


def test_the_figures_of_a_sweep_may_change(begun: RunFolder) -> None:
    found = resumed(begun, sweep=replace(SWEEP, question="How slow?", figures=[Bars()]))
    assert found.question == "How slow?" and found.figures == [Bars().described()]


class Results(list[Any]):
    """Tune's results: `done` is in the last row of a trial that has ended, by itself or by its scheduler."""

    num_terminated = 0


def ended(done: bool, error: Exception | None = None) -> SimpleNamespace:
    return SimpleNamespace(path="/there/00001", error=error, metrics={"done": done} if done else None)


LOST = ValueError("round 3:\n  the loss is nan")


@pytest.mark.parametrize(
    ("results", "status", "words"),
    [
        ([ended(True), ended(True)], 0, ""),
        (
            [ended(True), ended(False, LOST)],
            1,
            "tones: /there/00001 failed: round 3:\n  the loss is nan\n  traceback: /there/00001/error.txt\n"
            "tones: 1 of 2 trials failed: the same command with --resume tries them again\n",
        ),
        (
            [ended(False, RuntimeError("Traceback\n \x1b[36mlast\x1b[39m line\n"))],
            130,
            "tones: /there/00001 failed:  last line\n  traceback: /there/00001/error.txt\n"
            "tones: 1 of 2 trials failed: the same command with --resume tries them again\n"
            "tones: interrupted, 1 of 2 trials did not end: the same command with --resume continues\n",
        ),
        (
            [ended(True), ended(False)],
            130,
            "tones: interrupted, 1 of 2 trials did not end: the same command with --resume continues\n",
        ),
    ],
)
def test_how_trials_ended(
    results: list[Any], status: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "my study"
    assert _ended(SWEEP, RunFolder(place), Results(results), 2, None) == status  # type: ignore[arg-type]
    said = capsys.readouterr()
    installed = "pip install 'fedray[tensorboard]'"
    assert said.out == f"curves: tensorboard --logdir '{place}'  # {installed}\nexperiment: {place}\n"
    assert said.err == words
