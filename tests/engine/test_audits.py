"""Audits by directions: an honest mechanism is not refuted, planted faults are, and bits do not depend on actors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from scipy.stats import norm

from fedray.core.privacy.accounting import Sampling
from fedray.core.privacy.audits import Directions, coins, direction, findings
from fedray.core.privacy.clipping import Clipping
from fedray.core.privacy.guarantee import Guarantee
from fedray.core.privacy.mechanism import Mechanism
from fedray.core.privacy.settings import ClipSettings, Gaussian, Local, Private, Skellam
from fedray.core.privacy.skellam import Encoding
from fedray.core.strategies import ByExamples, Uniform
from fedray.core.sums import PartialSum
from fedray.core.types import Broadcast, ServerState, Update
from fedray.engine.lane.aggregation import Aggregate
from fedray.engine.lane.guarded import Guarded
from fedray.engine.lane.lane import LaneResult
from fedray.engine.options.audits import Audited
from fedray.engine.options.private import PrivateRounds
from fedray.engine.round.outcome import Draw, Outcome
from fedray.engine.settings import CohortSettings
from fedray.runs.folder import Progress, RunFolder
from tests.engine.runs import rows, same
from tests.engine.toys import SIZE, Toy, ToyData, play

ROUNDS, CLIENTS, SEED, DELTA = 4, 6, 7, 1e-3
AUDIT = Directions(clients=120)
INSIDE = AUDIT.inside(SEED)
CLIP = ClipSettings(norm=1.0)
NOISE = 2.0  # as a Gaussian mechanism, one round has mu = 1 / 2 and four rounds have mu = 1
LogWeight = Callable[[Mapping[str, float]], float]
UNIFORM: LogWeight = Uniform().log_weight


def mechanism(settings: Private) -> Mechanism:
    everybody = CLIENTS + len(INSIDE)
    kind = "uniform" if isinstance(settings, Skellam) else "poisson"
    guarantee = Guarantee.of(settings, Sampling(kind, everybody, everybody), ROUNDS)
    return Mechanism(settings, NOISE, everybody, guarantee=guarantee)


def audited(settings: Private, log_weight: LogWeight = UNIFORM) -> dict[str, Any]:
    """The findings of a run in which every client is in every round. The clients send random updates."""
    private = PrivateRounds(mechanism(settings), Toy.layers(Toy), SEED)  # type: ignore[arg-type]
    progress, broadcast = Progress(ServerState(np.zeros(SIZE, np.float32))), Broadcast(np.zeros(SIZE, np.float32))
    for round in range(ROUNDS):
        progress.round = round
        guard = private.settings(progress, broadcast, CLIENTS + len(INSIDE))
        guarded, partial = Guarded(guard, private.layers), PartialSum()
        for client in range(CLIENTS):
            update = np.random.default_rng([round, client]).standard_normal(SIZE).astype(np.float32)
            sent, _ = guarded.protect(Update(update, {}), f"client-{client}")
            partial.updates.add(sent, log_weight({"examples": 2.0}))
        lanes = [LaneResult(counted=CLIENTS, clipped=np.full(len(guard.bounds), CLIENTS))]
        draw, everybody = Draw((), (), ()), CLIENTS + len(INSIDE)
        outcome = Outcome(draw, partial, Aggregate(None, 0.0), lanes, None, 0, {}, everybody, 0)
        private.insert(INSIDE, progress, outcome, broadcast, log_weight)
        private.finish(progress, outcome, broadcast)
        assert outcome.aggregate.mean is not None and sum(lane.counted for lane in lanes) == CLIENTS + len(INSIDE)
        progress.state = ServerState(progress.state.params + outcome.aggregate.mean)
        progress.private = outcome.progress["private"]
    scores = {name: float(progress.state.params @ direction(name, SIZE, SEED)) for name in AUDIT.names}
    inside, outside = (np.array([scores[name] for name, taken in coins(AUDIT.names, SEED).items() if taken is side])
                       for side in (True, False))  # fmt: skip
    return findings(AUDIT, inside, outside, DELTA, private.claimed(replace(progress, round=ROUNDS)))


HONEST = [
    Gaussian(delta=DELTA, noise=NOISE, clip=CLIP),
    Gaussian(delta=DELTA, noise=NOISE, clip=ClipSettings(norm=1.0, layers="dim")),
    Skellam(delta=DELTA, noise=NOISE, clip=CLIP, bits=20),
    Local(delta=DELTA, noise=NOISE, clip=CLIP),
]


@pytest.mark.long
@pytest.mark.parametrize("settings", HONEST, ids=["gaussian", "layers", "skellam", "local"])
def test_an_honest_mechanism_is_not_refuted(settings: Private) -> None:
    found = audited(settings)
    assert not found["refuted"] and found["inside"] == len(INSIDE)
    if not isinstance(settings, Local):
        # The root of the rounds over the noise. Skellam noise suffices even if only half of the clients answer.
        mu = 0.5**0.5 if isinstance(settings, Skellam) else 1.0
        assert found["mu"] == pytest.approx(mu, abs=0.12)
        assert found["auroc"] == pytest.approx(norm.cdf(mu / 2**0.5), abs=0.03)
        assert 0 < found["epsilon_low"] < found["epsilon_claimed"]


def too_little_noise(monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    deviation, noise_of = Mechanism.deviation, Encoding.noise_of
    monkeypatch.setattr(Mechanism, "deviation", lambda self, *given: deviation(self, *given) / part)
    monkeypatch.setattr(Encoding, "noise_of", lambda self, clients, draw: noise_of(self, clients / part**2, draw))


def unclipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clipping, "clip", lambda self, delta, bounds: (delta, np.zeros(len(bounds), bool)))


# With local noise, every client adds its own: an observer of the sum faces far more than is claimed. Skellam's account
# is for a client replaced by another, which moves the sum by twice the bound.
@pytest.mark.long
@pytest.mark.parametrize(("settings", "part"), list(zip(HONEST, (4, 4, 8, 64), strict=True)),
                         ids=["gaussian", "layers", "skellam", "local"])  # fmt: skip
def test_a_part_of_the_noise_is_refuted(settings: Private, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    too_little_noise(monkeypatch, part)
    found = audited(settings)
    assert found["refuted"], found


def test_updates_that_are_not_clipped_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    unclipped(monkeypatch)
    assert audited(HONEST[0])["refuted"]


def test_weights_by_examples_are_refuted() -> None:
    assert audited(HONEST[0], ByExamples().log_weight)["refuted"]


def test_canaries_are_not_sent_what_never_changes() -> None:
    audited = Audited.__new__(Audited)
    audited.canaries = dict.fromkeys(["canary-0", "canary-1"])
    draw = SimpleNamespace(chosen=["a", "canary-1", "b"], answering=["a", "b"])
    outcome: Any = SimpleNamespace(draw=draw, down_bytes=3 * 4 * (5 + 2))
    audited.finish(cast(Any, None), outcome, Broadcast(np.zeros(5, np.float32), constant=2))
    assert outcome.down_bytes == 4 * (3 * 5 + 2 * 2)


class Still(Toy):
    """The toy without the server's training, whose change hides directions."""

    def server_train(self, server: Any, received: Any) -> Update:
        return Update(np.zeros(SIZE, np.float32), {"examples": 1.0})


@pytest.mark.long
@pytest.mark.usefixtures("cluster")
def test_a_run_writes_what_its_audit_finds_with_the_same_bits(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "algorithm": Still,
        "data": ToyData(CLIENTS),
        "privacy": mechanism(HONEST[0]),
        "audit": AUDIT,
        "strategy": Uniform(),
        "cohort": CohortSettings(fraction=1.0, sampling="poisson"),
    }
    results = play(tmp_path / "one", **options)
    play(tmp_path / "resumed", rounds=2, actors=2, **options)
    again = play(tmp_path / "resumed", actors=2, **options)
    same(tmp_path / "one", tmp_path / "resumed")
    assert results["audit"] == again["audit"] and results["audit"]["kind"] == "directions"
    assert results["audit"]["mu"] == pytest.approx(1.0, abs=0.4) and not results["audit"]["refuted"]
    table = RunFolder(tmp_path / "one").read_text("audit.tsv")
    assert table == RunFolder(tmp_path / "resumed").read_text("audit.tsv")
    assert len(table.splitlines()) == 1 + AUDIT.clients
    assert [row["clients/cohort"] for row in rows(tmp_path / "one")] == [CLIENTS + len(INSIDE)] * ROUNDS
    assert all(row["clients/ok"] == CLIENTS and not row["clients/dropped"] for row in rows(tmp_path / "one"))
