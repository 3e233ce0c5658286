"""The memory that a client actor is expected to need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedray.core.devices.settings import BufferedClock
from fedray.engine.cluster.resources import ACTOR_BYTES, Node, Share
from fedray.experiment import builders, launch
from fedray.experiment.fitted import fitted, pool
from fedray.experiment.memory import actor_bytes, beside_driver, check_models, driver_bytes
from fedray.runs.folder import RunFolder
from tests import speech


@pytest.fixture
def made(tmp_path: Path, no_ray: None) -> tuple:
    speech.write_corpus(tmp_path / "tones", speakers=4)
    loaded, source = launch.load(
        speech.settings(tmp_path / "tones", cohort={"size": 1}, engine={"lanes": 2, "actors": 2})
    )
    data, _ = builders.build_data(loaded, source)
    return loaded, builders.build_program(loaded, data, RunFolder(tmp_path / "run").states, 0.0)


def test_model_and_data_count(made: tuple) -> None:
    _, program = made
    layout = program.algorithm.task.layout
    frames = max(int(program.data.load(client).lengths.sum()) for client in program.data.client_ids())
    features = 2 * frames * program.data.load(program.data.client_ids()[0]).features.bins
    assert actor_bytes(program) == ACTOR_BYTES + 4 * (layout.size + 5 * layout.trainable) + features


def test_a_run_takes_fewer_actors_and_says_so(made: tuple, capsys: pytest.CaptureFixture[str]) -> None:
    config, program = made
    nodes = [Node(4.0, 0.0, driver_bytes(program) + 2.5 * actor_bytes(program), driver=True)]
    found = fitted(config, program, Share(4, 0.9975, 0.0), nodes)
    assert found.actors == 2
    assert "2 client actors instead of 4: each needs about 64" in capsys.readouterr().err


def test_a_step_of_a_large_model_is_measured_once(made: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    config, program = made
    nodes, measured = [Node(4.0, 0.0, 64e9, driver=True)], list[int]()
    program = replace(program, large=True)
    monkeypatch.setattr("fedray.experiment.fitted.activation_bytes", lambda *_: measured.append(1) or 5e6)
    assert pool(config, program, False, nodes) == pool(config, program, False, nodes, 5e6)
    assert len(measured) == 1, "the caller had measured the second"
    assert pool(config, program, False, nodes)[1] == actor_bytes(program, activations=5e6)


def test_a_driver_that_does_not_fit_is_refused(made: tuple) -> None:
    config, program = made
    layout, needed = program.algorithm.task.layout, driver_bytes(program)
    assert needed == ACTOR_BYTES + 8 * layout.size + 8 * layout.moving  # FedAvg, and SGD on the server
    assert beside_driver(program, [Node(2.0, 0.0, needed + 5, True)]) == [Node(2.0, 0.0, 5, True)]
    assert beside_driver(program, [Node(2.0, 0.0, 1.0, False)]) == [Node(2.0, 0.0, 1.0, False)]
    with pytest.raises(ValueError, match=r"the driver needs about 0\.6 GB .* start the run on a larger one"):
        fitted(config, program, Share(1, 1.0, 0.0), [Node(2.0, 0.0, needed - 1, True)])


def test_models_of_earlier_rounds_that_do_not_fit_are_refused(made: tuple) -> None:
    """Eight concurrent clients train from at most four models: the newest, and those up to three steps behind."""
    _, program = made
    clock, needed = BufferedClock(concurrency=8, buffer=2, most=3), 4 * 2 * 4 * program.algorithm.task.layout.size
    check_models(clock, program, [Node(2.0, 0.0, needed, driver=True)])
    check_models(clock, program, [Node(2.0, 0.0, needed - 1, driver=False)])
    with pytest.raises(ValueError, match=r"4 models of earlier rounds need .* lower clock.concurrency or clock.most"):
        check_models(clock, program, [Node(2.0, 0.0, needed - 1, driver=True)])
