"""`fedray doctor --estimate`: compared with an estimate by hand, and with a real run in all that no clock measures."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray

import fedray
from fedray import cli, experiment
from fedray.doctor import estimate, measure
from fedray.doctor.forecast import by_draw
from fedray.doctor.measure import Measured
from fedray.engine.cluster.resources import ACTOR_BYTES, Share
from tests import speech

MEASURED = Measured(
    start=5.0,
    step=0.1,
    train=0.5,
    prepare=0.25,
    server=0.01,
    examples=10,
    driver=0.125,
    score=0.03,
    final={"dev": 0.06},
    up=416,
    down=408,
    once=0,
    assets=50,
    reads=True,
    prepares=True,
    state=7,
    checkpoint=lambda clients: 1000 + clients,
)


class Part(SimpleNamespace):
    """Ten utterances of three frames each."""

    lengths, features = np.full(10, 3), SimpleNamespace(bins=2)

    def __len__(self) -> int:
        return 10

    def distinct(self, name: str) -> list[str]:
        return [__file__]


class Data:
    """Three clients with 4, 6 and 8 utterances; the server has forty."""

    costs = {"a": 4, "b": 6, "c": 8}

    def client_ids(self) -> list[str]:
        return list(self.costs)

    def cost(self, client: str) -> float:
        return self.costs[client]

    def server(self) -> list[int]:
        return [0] * 40

    def client_part(self, client: str, split: str) -> None:
        return None

    def splits(self) -> list[str]:
        return ["dev"]

    def evaluation(self, split: str) -> Part:
        return Part()

    def training(self) -> list[Part]:
        return []


def by_hand(**engine: Any) -> estimate.Estimate:
    values = {
        "rounds": 3,
        "algorithm": {"kind": "fednst", "server": {"utterances": 20}, "pretrain": {"shards": 2}},
        "cohort": {"size": 3},
        "engine": {"lanes": 3, "keep": 1, **engine},
        "evaluation": {"every": 2, "shards": 3},
    }
    config, _ = experiment.load(values)
    rounds = by_draw(Data(), config.cohort, config.seed, config.rounds)  # type: ignore[arg-type]
    return estimate.extrapolate(config, Data(), MEASURED, 2, rounds, steps=50, labelled={"a"})  # type: ignore[arg-type]


def test_by_hand() -> None:
    """One actor plays the server's 0.2 s, then clients with 6 and 4 utterances; the other, the client with 8."""
    found = by_hand()
    train = 3 * max(0.2 + 6 * 0.5 + 4 * 0.5, 8 * 0.5)
    first = max(0.2 + 6 * 0.75 + 4 * 0.5, 8 * 0.75)  # of round 1, with labels for b and c; a has its labels
    shard = 10 * 0.03 / 3
    assert found.seconds == pytest.approx(
        {
            "start": 5.0,
            "seed model": 2.5,  # two shards per step, on two actors
            "labels": first - train / 3,
            "rounds": train + 3 * 0.125,
            "scores": 3
            * 2
            * shard,  # before the first round, after the second and the last; three shards on two actors
            "final scores": 2 * 2 * 0.06 * 10 / 3,
        }
    )
    assert found.busy == pytest.approx(5.0 + 3 * (0.2 + 18 * 0.5) + 14 * 0.25 + 3 * 0.3 + 2 * 0.6)
    assert found.up == 9 * 416 and found.down == 9 * 408 + 3 * 50
    assert found.disk == {
        "checkpoints": 3 * 1003,  # the first, the latest, the best
        "client states": 21,
        "features": 2 * 10 * 3 * 2,
        "audio": Path(__file__).stat().st_size,
    }


def test_labels_beforehand_go_to_all() -> None:
    found = by_hand(prepare="all")
    assert found.seconds["labels"] == pytest.approx(14 * 0.25)
    assert found.down == 9 * 408 + 3 * (408 + 50)


def test_what_never_changes_is_sent_once_and_what_nobody_reads_not_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """All three clients are in each of three rounds; their first model is theirs (FedMLAC), and 1,000 bytes frozen."""
    monkeypatch.setitem(globals(), "MEASURED", replace(MEASURED, once=1000, assets=0, reads=False))
    assert by_hand().down == by_hand(prepare="all").down == 9 * 408 + 3 * 1000


def test_jobs_start_in_their_order_on_whoever_is_free() -> None:
    assert estimate.makespan([3, 1, 1, 4], 2) == 6 and estimate.makespan([4, 3, 1, 1], 2) == 5
    assert estimate.makespan([], 2) == 0


@pytest.mark.nightly
def test_an_estimate_is_what_the_run_then_takes(cluster: None, cache: Path, tmp_path: Path) -> None:
    """Traffic is right to the byte, client states to 2 %; measuring caches only features; cached work costs nothing."""
    speech.write_corpus(tmp_path)
    settings = speech.settings(tmp_path, rounds=3, evaluation={"every": 2, "shards": 2}, engine={"actors": 2})
    config, source = experiment.load(settings)
    before = set(cache.rglob("*"))
    found, measured, shares, steps = estimate.estimate(config, source, print)
    assert all(path.relative_to(cache).parts[0] == "features" for path in set(cache.rglob("*")) - before)
    assert found.memory is not None and found.memory > ACTOR_BYTES
    assert (shares.actors, steps) == (2, 30) and min(
        measured.step, measured.train, measured.prepare, measured.server
    ) > 0
    run = fedray.run(settings, out=tmp_path / "run")
    assert (found.up, found.down) == (run.results["traffic/up_bytes"], run.results["traffic/down_bytes"])
    sizes = {
        name: [file.stat().st_size for file in (tmp_path / "run" / name).rglob("*.*")]
        for name in ("states", "checkpoints")
    }
    assert found.disk["client states"] == pytest.approx(sum(sizes["states"]), rel=0.02)
    assert found.disk["checkpoints"] == pytest.approx(
        sum(sizes["checkpoints"]), rel=0.5
    )  # the best may be one of the latest
    found, measured, shares, steps = estimate.estimate(config, source, print)
    assert steps == 0 and found.seconds["seed model"] == 0
    assert found.seconds["labels"] == 0, "the labels of all that take part are in the cache too"


def test_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    config, _ = experiment.load({"name": "tones", "rounds": 3, "algorithm": {"kind": "fedavg"}, "cohort": {"size": 3}})
    text = estimate.page(config, by_hand(), MEASURED, Share(4, 2.0, 0.25), 50)
    assert "3 rounds on 4 client actors with 2 cores and 0.25 GPUs each" in text
    hours = sum(by_hand().seconds.values()) / 3600
    assert f"{hours * 8:.2f} core-hours and {hours * 1:.2f} GPU-hours" in text and "50 steps of 50 ms" in text
    assert "personal scores" not in text
    scored = replace(config, evaluation=replace(config.evaluation, personal_final=True))
    assert "personal scores   not counted" in estimate.page(scored, by_hand(), MEASURED, Share(4, 2.0, 0.25), 50)


def test_the_page_gives_memory_and_small_numbers_of_devices() -> None:
    config, _ = experiment.load({"rounds": 3, "algorithm": {"kind": "fedavg"}, "cohort": {"size": 3}})
    assert "Memory" not in estimate.page(config, by_hand(), MEASURED, Share(4, 2.0, 0.0), 50)
    virtual = {"hours": 0.0123, "device hours": 0.0964, "energy": 0.17649, "wasted": 0.0}
    found = replace(by_hand(), memory=400e6, activations=50e6, virtual=virtual)
    text = estimate.page(config, found, MEASURED, Share(4, 2.0, 0.0), 50)
    assert "  client actor      400.0 MB    50.0 MB of it for activations of the longest utterances" in text
    assert "  in all            1.6 GB      4 client actors, without the driver" in text
    assert "0.0123 virtual hours" in text and "0.0964 device hours, 0 % of them wasted; 0.176 Wh" in text


def test_what_the_command_line_refuses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        cli.main(["doctor", "rounds=3"])
    assert "doctor takes key=value only with --estimate CONFIG" in capsys.readouterr().err
    assert cli.main(["doctor", "--estimate", str(tmp_path / "none.yaml")]) == 2


def test_actors_that_wait_for_cores_say_who_holds_them(cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "STARTING", 0.1)
    said: list[str] = []
    slow = ray.remote(lambda: time.sleep(0.5)).options(num_cpus=1)
    measure._answered([slow.remote()], said.append)
    assert len(said) == 1 and said[0].startswith("waiting for 1 client actor to start: ") and "are free" in said[0]
