"""The tables of benchmarks.studies.fedmlac_own: means over clients, and differences to FedAvg; its data sets."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from benchmarks import study
from benchmarks.studies import fedmlac_own
from benchmarks.studies.fedmlac_data import DATA, settings
from benchmarks.studies.fedmlac_own import ACCURACY, ARMS, F1, curves, of_run, summary, table, unknown
from fedray import experiment
from fedray.data.corpora.synthesis.embedded import Embedded
from fedray.data.corpora.synthesis.sessions import labels, sessions
from fedray.data.federation.held_out import hold_out
from fedray.data.federation.partition import partition
from fedray.data.manifest import Manifest
from fedray.experiment.workbench import Workbench

CLASSES = ("no", "yes")


def of_client(right: int, clips: int = 100) -> dict[str, Sequence[float]]:
    """The counts of a model of two classes with as many clips, and as many errors, each."""
    return {ACCURACY: [100 * right, clips], **{f"{F1}|{name}": [100 * right, clips] for name in CLASSES}}


def run(right: int, arm: str) -> dict[str, Any]:
    """A run of two clients, whose scores are 10 points apart, scored twice."""
    models = ARMS[arm][2]
    quarters = [
        {
            "round": done,
            "MB": 2.0 * done,
            "own": {
                name: {model: of_client(right + more + done - place) for place, model in enumerate(models)}
                for name, more in (("ann", -5), ("bob", 5))
            },
        }
        for done in (5, 10)
    ]
    new = {model: {ACCURACY: 50.0, F1: 40.0} for model in models if model != "both"}
    return {"quarters": quarters, "new": new, "unknown": 2.5}


def test_each_model_stands_beside_fedavg_before_and_after_the_clients_training() -> None:
    found = {
        arm: [of_run(run(70 - 3 * place + seed, arm), arm, seed, 0.1) for seed in (0, 2)]
        for place, arm in enumerate(ARMS)
    }
    part: dict[str, Any] = {"found": found, "tuned": {arm: {"0.1": 70.0, "1.2": 60.0} for arm in ARMS}}
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in table(part).splitlines()}
    assert "| 0.1 | 80.0 ± 1.4 | 80.0 ± 1.4 | -1.0 points [-1.0, -1.0] |  | 79.0, 81.0 |" in lines["FedAvg, broadcast"]
    assert "| 50.0 ± 0.0 | 40.0 ± 0.0 | 20.0 |" in lines["FedAvg, broadcast"]
    assert "-11.0 points [-11.0, -11.0] | -10.0 points [-10.0, -10.0] |" in lines["FedMLAC, both"]
    assert lines["FedMLAC, both"].endswith("|  |  | 20.0 |"), "not scored on new speakers"
    part["tuned"]["Ditto"] = {"0.6": 60.0, "1.2": 70.0}
    assert "| Ditto | 1.2* |" in table(part), "at the edge"
    assert "| FedAvg, broadcast | 75.0 (10 MB) | 80.0 (20 MB) | +5.0 |" in curves(part)


def test_accuracy_is_the_mean_over_clients_and_f1_that_of_all_their_clips() -> None:
    assert summary([of_client(10, 10), of_client(45, 90)]) == {ACCURACY: 75.0, F1: 55.0}
    absent: dict[str, Sequence[float]] = {**of_client(10, 10), f"{F1}|no": [0, 0]}
    assert summary([absent, of_client(45, 90)])[F1] == pytest.approx((50 + 55) / 2), "each class of all clients"


def test_own_clips_of_a_class_that_the_client_never_trains_on_are_counted() -> None:
    trained, own = {"ann": ["yes", "yes"], "bob": ["no"]}, {"ann": ["yes", "no", "yes"], "bob": ["no"]}
    data = SimpleNamespace(
        client_ids=lambda: ["ann", "bob"],
        load=lambda client: SimpleNamespace(labels=trained[client]),
        client_part=lambda client, split: SimpleNamespace(labels=own[client]),
    )
    assert unknown(cast(Workbench, SimpleNamespace(data=data))) == 25.0


def test_the_telling_arms_of_all_data_sets_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(fedmlac_own, "write", lambda data, parser, chosen: done.append((data, chosen.arms)))
    first, later = ["FedAvg", "CRNN-Lite", "isolated", "FedMLAC"], ["Ditto", "FedPer"]
    for given, expected in (
        ([], [(name, arms) for arms in (first, later) for name in DATA]),
        (["--data", "events-1", "--arms", "Ditto"], [("events-1", ["Ditto"])]),
    ):
        done.clear()
        monkeypatch.setattr("sys.argv", ["fedmlac_own", *given])
        fedmlac_own.main()
        assert done == expected


@pytest.mark.parametrize("name", [name for name in DATA if name.startswith("events-")])
def test_few_own_clips_of_events_are_of_a_class_that_the_client_never_trains_on(name: str) -> None:
    """The draws of the study, without the audio."""
    given = experiment.load(study.ROOT / "configs/fedmlac/embedded.yaml", [*settings(name), "data.own_share=0.2"])[
        0
    ].data
    recipe, shares = Embedded(**given.options), list[float]()
    for seed in range(4):
        rows = [
            {
                "utterance": f"{session.id}-{place:03d}",
                "path": "/a.wav",
                "seconds": 1.0,
                "speaker": session.id,
                "label": of,
            }
            for split, session in sessions(recipe, seed)
            if split == "clients"
            for place, of in enumerate(labels(recipe, split, session, set()))
        ]
        corpus = Manifest.from_rows(rows, "sources")
        trained, held = hold_out(corpus, partition(corpus, given.clients, seed), given.own_share, seed, True)
        classes = np.array(corpus.column("label"))
        missing = [~np.isin(classes[held[one]], classes[trained[one]]) for one in held]
        shares.append(100 * float(np.concatenate(missing).mean()))
        assert 49 <= len(held) <= 50 and sum(map(len, missing)) > 1200
    low, high = (2, 4) if name == "events-0.1" else (7, 12)
    assert low <= round(min(shares)) and round(max(shares)) <= high
