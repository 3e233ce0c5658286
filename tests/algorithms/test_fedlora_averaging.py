"""FedLoRA's variants: fewer bits, averaged products, the whole model; and the costs in the paper's tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedray.algorithms.fedlora import cost
from fedray.core.algorithm import Algorithm
from fedray.core.compression.codes import Int8
from fedray.core.compression.settings import Int8Upload
from fedray.core.types import Change, ServerState
from fedray.data.federation.speech_data import SpeechData
from fedray.engine.jobs.work import Program
from fedray.engine.lane.lane import Lane
from fedray.engine.lane.uplink import LOST, Uplink
from fedray.models.adapters import factorised, pairs, products
from fedray.runs.client_states import ClientStore
from tests import speech
from tests.algorithms import by_hand
from tests.algorithms.by_hand import arrived, client
from tests.algorithms.test_fedlora import build

GIB = 2**30
M = 1e6


def updates(algorithm: Algorithm, data: SpeechData, state: ServerState, **kept: Any) -> list[Any]:
    return [algorithm.client_update(client(data, place), arrived(algorithm, state)) for place in range(2)]


def test_the_papers_costs() -> None:
    """The costs are those of tables 1, 3 and 4, in GiB, from millions of parameters, clients and rounds."""
    tables = [
        (140, 140, 4, 82, 344.22),
        (140, 4.5, 4, 74, 12.01),
        (244, 244, 4, 15, 112.71),
        (244, 10.1, 4, 20, 9.66),
        (146, 146, 4, 46, 202.33),
        (146, 4.5, 4, 52, 9.15),
        (244, 244, 10, 13, 245.42),
        (244, 10.1, 10, 15, 20.38),
    ]
    for backbone, tuned, clients, rounds, told in tables:
        assert cost(backbone * M, tuned * M, clients, rounds) / GIB == pytest.approx(told, rel=0.003), told


def test_products_have_no_moments(folder: Path) -> None:
    wanted = speech.settings(folder, algorithm={"kind": "fedlora", "averaging": "product", "pretrain": {"steps": 0}})
    with pytest.raises(ValueError, match=r"set server_optimizer\.kind=sgd"):
        by_hand.build({**wanted, "server_optimizer": {"kind": "adam", "lr": 0.01}})
    with pytest.raises(ValueError, match=r"lora\.rank=0 has none"):
        build(folder, averaging="product", lora={"rank": 0})
    with pytest.raises(ValueError, match="averaging must be factors or product, not 'both'"):
        build(folder, averaging="both")


def test_the_mean_of_products(folder: Path) -> None:
    """At rank 4 the mean of two clients' products of rank 2 is exact; the mean of their factors is not."""
    algorithm, data, start = build(folder, averaging="product", lora={"rank": 4, "alpha": 8.0})
    layout = algorithm.task.flat("cpu").layout
    generator = np.random.default_rng(0)

    def adapters(before: np.ndarray) -> np.ndarray:
        """Random adapters whose products have rank 2."""
        found = before.copy()
        for pair in pairs(layout):
            a, b = pair.factors(generator.standard_normal(layout.trainable).astype(np.float32))
            a, b = a.copy(), b.copy()
            a[2:], b[:, 2:] = 0, 0
            found[pair.a], found[pair.b] = a.reshape(-1), b.reshape(-1)
        return found

    before = start.params[: layout.trainable]
    one, other = adapters(before), adapters(before)
    received = arrived(algorithm, start)
    folded = [algorithm.server_receive(each - before, received) for each in (one, other)]
    after = algorithm.server_update(start, Change(np.mean(folded, axis=0, dtype=np.float32)), 0)
    reached = products(after.params[: layout.trainable], layout)
    mean = (products(one, layout) + products(other, layout)) / 2
    assert np.allclose(reached, mean, atol=1e-4)
    assert not np.allclose(products((one + other) / 2, layout), mean, atol=1e-2)
    assert np.array_equal(after.params[layout.trainable :], start.params[layout.trainable :])
    assert algorithm.layers()[-1].stop == mean.size


def test_of_equal_factors_the_nearest(folder: Path) -> None:
    algorithm, _, start = build(folder, averaging="product")
    layout = algorithm.task.flat("cpu").layout
    adapters = np.random.default_rng(1).standard_normal(layout.trainable).astype(np.float32)
    balanced = factorised(products(adapters, layout), adapters, layout)
    again = factorised(products(balanced, layout), balanced, layout)
    assert np.allclose(again, balanced, atol=1e-4), "what is balanced already stays as it is"
    assert np.allclose(products(balanced, layout), products(adapters, layout), atol=1e-4)
    turned = balanced.copy()
    for pair in pairs(layout):
        a, b = pair.factors(balanced)
        turn = np.linalg.qr(np.random.default_rng(2).standard_normal((pair.rank, pair.rank)))[0]
        turned[pair.a], turned[pair.b] = (turn @ a).reshape(-1), (b @ turn.T).reshape(-1)
    assert np.allclose(factorised(products(turned, layout), turned, layout), turned, atol=1e-4), "so is what is turned"


def test_a_round_of_products_trains(folder: Path) -> None:
    algorithm, data, state = build(folder, averaging="product")
    layout, received = algorithm.task.flat("cpu").layout, arrived(algorithm, state)
    found = updates(algorithm, data, state)
    assert all(update.delta.size == layout.trainable for update in found), "the factors travel"
    folded = [algorithm.server_receive(update.delta, received) for update in found]
    change = Change(np.mean(folded, axis=0, dtype=np.float32))
    assert change.clients.size > layout.trainable
    after = algorithm.server_update(state, change, 0)
    moved = products(after.params[: layout.trainable], layout) - products(state.params[: layout.trainable], layout)
    assert np.linalg.norm(moved - change.clients) < 0.8 * np.linalg.norm(change.clients)
    assert np.array_equal(algorithm.server_update(state, Change(None), 0).params, state.params)


@pytest.mark.parametrize("averaging", ["factors", "product"])
def test_fewer_bits(folder: Path, tmp_path: Path, averaging: str) -> None:
    """The code encodes A and B. To average products, the server multiplies the factors that arrive."""
    algorithm, data, state = build(folder, averaging=averaging)
    layout, received = algorithm.task.layout, arrived(algorithm, state)
    program = Program(algorithm, data, 1, ClientStore(tmp_path), upload=Int8Upload())
    link = Uplink(program, Lane(0, 0, ()), received)
    first = client(data)
    update = algorithm.client_update(link.admit(first), received)
    sent = link.send(first.id, update)
    assert sent.bytes == Int8().size(layout.tensors) < 0.27 * 4 * layout.trainable == 0.27 * update.delta.nbytes
    kept = sent.state(update.state, counts=True)
    factors = update.delta - kept[LOST]["delta"]
    assert 0 < np.abs(kept[LOST]["delta"]).max() < 0.01 * np.abs(update.delta).max()
    assert np.allclose(sent.update.delta, algorithm.server_receive(factors, received), atol=1e-6)
    assert set(link.admit(replace(first, state=kept)).state) == {"moments"}


def test_without_adapters_the_whole_model_travels(folder: Path) -> None:
    algorithm, data, state = build(folder, lora={"rank": 0})
    seed = by_hand.build(
        speech.settings(folder, algorithm={"kind": "fedavg", "pretrain": {"steps": 30, "warmup": 5, "batch": 4}})
    )[2]
    assert np.array_equal(state.params, seed.params) and np.array_equal(algorithm.merged(state.params), seed.params)
    update = algorithm.client_update(client(data), arrived(algorithm, state))
    assert update.delta.size == state.params.size and update.state["moments"]["step"] == 4


def test_a_rank_above_the_projections_own(folder: Path) -> None:
    algorithm, _, start = build(folder, averaging="product", lora={"rank": 40, "alpha": 8.0})
    layout = algorithm.task.layout
    adapters = np.random.default_rng(1).standard_normal(layout.trainable).astype(np.float32)
    again = factorised(products(adapters, layout), adapters, layout)
    assert np.allclose(products(again, layout), products(adapters, layout), atol=1e-3)
