"""The papers' updates under `upload` and `download`: statistics of batch norm, control variates, personal models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedray.core.algorithm import Algorithm
from fedray.core.compression.codes import Code, Int4, Int8
from fedray.core.compression.settings import Int4Upload, TopKUpload, Upload
from fedray.core.types import Broadcast, Change, Client, Received, ServerState
from fedray.data.federation.speech_data import SpeechData
from fedray.engine.jobs.work import Program, arrive
from fedray.engine.lane.lane import Lane
from fedray.engine.lane.uplink import Sent, Uplink
from fedray.engine.round.downlink import deliver
from fedray.runs.client_states import ClientStore
from tests import keywords
from tests.algorithms import by_hand
from tests.algorithms.by_hand import client
from tests.algorithms.test_gao import CRDNN
from tests.algorithms.test_gao import build as build_gao


def down(
    algorithm: Algorithm, data: SpeechData, state: ServerState, code: Code
) -> tuple[Broadcast, Broadcast, Received]:
    """The broadcast of round 0 as the server makes it, as clients decode it, and as an algorithm receives it."""
    sent = algorithm.broadcast(state, 0)
    decoded, _ = deliver(sent, code, algorithm)
    return sent, decoded, arrive(decoded, 0, algorithm.assets(data), "cpu")


def up(algorithm: Algorithm, data: SpeechData, upload: Upload, received: Received, who: Client) -> Sent:
    program = Program(algorithm, data, 1, ClientStore(Path()), upload=upload)
    link = Uplink(program, Lane(0, 0, ()), received)
    return link.send(who.id, algorithm.client_update(link.admit(who), received))


@pytest.mark.parametrize("buffers", ["averaged", "frozen"])
def test_running_statistics_are_not_rounded(folder: Path, buffers: str) -> None:
    """Running statistics stay exact: a variance that a code rounds to 0 or below would make every score NaN."""
    algorithm, data, state = build_gao(folder, "by_examples", buffers=buffers, model=CRDNN)
    trainable = algorithm.task.layout.trainable
    sent, decoded, received = down(algorithm, data, state, Int4())
    assert np.array_equal(decoded.params[trainable:], sent.params[trainable:])
    assert not np.array_equal(decoded.params[:trainable], sent.params[:trainable])
    found = up(algorithm, data, Int4Upload(feedback=False), received, client(data))
    exact = algorithm.client_update(client(data), received).delta
    statistics = exact.size - trainable
    assert (statistics > 0) == (buffers == "averaged")
    assert found.bytes == Int4().size(algorithm.tensors() or ()) + 4 * statistics
    assert np.array_equal(found.update.delta[trainable:], exact[trainable:])
    assert not np.array_equal(found.update.delta[:trainable], exact[:trainable])


def test_control_variates_stay_the_mean_of_the_clients_own(words: Path) -> None:
    """The server's c is the mean of the clients' c_i less what compression left out and the clients keep."""
    own: dict[str, Any] = {"kind": "scaffold", "client": {"lr": 0.1, "batch": 4}, "pretrain": {"steps": 0}}
    algorithm, data, state = by_hand.build(keywords.settings(words, algorithm=own, strategy="uniform"))
    upload, ids = TopKUpload(0.1), data.client_ids()[:2]
    states: dict[str, Any] = dict.fromkeys(ids)
    for _ in range(2):
        _, _, received = down(algorithm, data, state, Int8())
        sent = [up(algorithm, data, upload, received, client(data, place, states[ids[place]])) for place in range(2)]
        states = {name: one.state(one.update.state, counts=True) for name, one in zip(ids, sent, strict=True)}
        deltas, variates = (np.mean(part, axis=0, dtype=np.float32) for part in (
            [one.update.delta for one in sent], [one.update.vectors["c"] for one in sent]
        ))  # fmt: skip
        state = algorithm.server_update(state, Change(deltas, None, {"c": variates}, answered=2, population=2), 0)
    kept = np.mean([states[name]["c"] - states[name]["upload/lost"]["vectors/c"] for name in ids], axis=0)
    assert state.extra["c"] == pytest.approx(kept, abs=1e-5)
    assert np.count_nonzero(state.extra["c"]) > 0


def test_personal_models_do_not_travel_and_are_not_rounded(words: Path) -> None:
    own: dict[str, Any] = {"kind": "ditto", "client": {"lr": 0.1, "batch": 4}, "pretrain": {"steps": 0}}
    algorithm, data, state = by_hand.build(keywords.settings(words, algorithm=own))
    _, _, received = down(algorithm, data, state, Int8())
    found = up(algorithm, data, Int4Upload(), received, client(data))
    exact = algorithm.client_update(client(data), received)
    kept = found.state(found.update.state, counts=True)
    assert kept is not None and exact.state is not None
    assert np.array_equal(kept["v"], exact.state["v"]) and not np.array_equal(found.update.delta, exact.delta)
    assert replace(found.update, delta=exact.delta).report == exact.report
