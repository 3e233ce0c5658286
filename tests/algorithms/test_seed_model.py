"""The seed model: shards of a batch add up to training on whole batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedray.core.seeds import numpy_generator
from fedray.core.types import Server, Vector
from fedray.data.features.dataset import collate
from fedray.training import seed_model as seeds
from fedray.training.local import LocalModel
from fedray.training.optimizers import PretrainSettings
from fedray.training.seed_model import Gradient, Shard
from tests import keywords, speech
from tests.algorithms import by_hand

QUIET = {"task": {"augment": {"time_masks": 0, "frequency_masks": 0}}}
SETTINGS = PretrainSettings(steps=7, warmup=2, batch=4, shards=2)


def given(values: dict[str, Any], dropout: float | None = None) -> tuple[Any, Server]:
    """The algorithm and its server."""
    if dropout is not None:
        values["model"] = {**values["model"], "dropout": dropout}
    values["algorithm"] = {**values["algorithm"], "pretrain": {"steps": 0}}
    algorithm, data, _ = by_hand.build(values)
    return algorithm, Server(data.server(), None, 3)


def shards_of(algorithm: Any, server: Server, settings: PretrainSettings = SETTINGS) -> list[list[Shard]]:
    targets = algorithm.task.targets(server.data)
    groups = enumerate(seeds.batches_of(server.data, settings, server.seed))
    return [seeds.cut(step, batch, server.data, targets, settings.shards) for step, batch in groups]


def test_shards_add_up_to_the_gradient_of_the_batch(folder: Path) -> None:
    algorithm, server = given(speech.settings(folder, **QUIET), dropout=0.0)
    task, params = algorithm.task, seeds.seed_model(algorithm.task, server, replace(SETTINGS, steps=3)).params
    for shards in shards_of(algorithm, server, replace(SETTINGS, batch=5)):  # shards of two and of three utterances
        found = seeds.mean_gradient(shards, [seeds.shard_gradient(task, server, params, shard) for shard in shards])
        positions = np.concatenate([shard.positions for shard in shards])
        model = LocalModel(task, params, "cpu")
        with model.training():
            targets = [task.targets(server.data)[position] for position in positions]
            model.flat.gradient.zero_()
            task.loss(model.flat.model, collate(server.data, positions), targets).backward()
        np.testing.assert_allclose(found[: task.layout.trainable], model.flat.gradient.numpy(), rtol=1e-3, atol=1e-6)


def test_without_randomness_any_number_of_shards_learns_the_same(folder: Path) -> None:
    algorithm, server = given(speech.settings(folder, **QUIET), dropout=0.0)
    settings = replace(SETTINGS, steps=30)
    losses = []
    for count in (1, 2, 4):
        params = seeds.seed_model(algorithm.task, server, replace(settings, shards=count)).params
        (shards, *_) = shards_of(algorithm, server, replace(settings, batch=len(server.data), shards=1))
        losses.append(seeds.shard_gradient(algorithm.task, server, params, shards[0]).loss)
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=0.02)


@pytest.mark.parametrize("kind", ["recognition", "classification"])
def test_who_computes_a_shard_changes_no_bit(folder: Path, words: Path, kind: str) -> None:
    """Shards in another order, on a new actor each step, give the same bits, with dropout, masks and batch norm."""
    values = speech.settings(folder) if kind == "recognition" else keywords.settings(words)
    values["data"] = {**values["data"], "server": {"share": 0.34}}
    algorithm, server = given(values)
    task, other = algorithm.task, given(values)

    def spread(params: Vector, shards: Sequence[Shard]) -> list[Gradient]:
        other[0].task._flats = {}
        return [other[0].init_part(other[1], params, shard) for shard in reversed(shards)][::-1]

    alone = seeds.seed_model(task, server, SETTINGS).params
    np.testing.assert_array_equal(alone, seeds.seed_model(task, replace(server, spread=spread), SETTINGS).params)
    assert not np.array_equal(alone, seeds.seed_model(task, server, replace(SETTINGS, shards=1)).params)


def test_a_batch_is_cut_by_length(folder: Path) -> None:
    algorithm, server = given(speech.settings(folder))
    epoch = shards_of(algorithm, server)[: -(-len(server.data) // SETTINGS.batch)]
    seen = [position for shards in epoch for shard in shards for position in shard.positions]
    assert sorted(seen) == list(range(len(server.data)))
    for shards in epoch:
        sizes = [len(shard.positions) for shard in shards]
        lengths = server.data.lengths[np.concatenate([shard.positions for shard in shards])]
        assert (np.diff(lengths) >= 0).all() and max(sizes) - min(sizes) <= 1
    everything = numpy_generator(0).permutation(len(server.data))
    for size, count in ((1, 1), (2, 1), (3, 1), (4, 2), (5, 2)):  # batch norm needs two utterances a shard
        assert len(seeds.cut(0, everything[:size], server.data, algorithm.task.targets(server.data), 3)) == count


def test_every_epoch_has_an_order_of_its_own(folder: Path) -> None:
    _, server = given(speech.settings(folder))
    steps = -(-len(server.data) // SETTINGS.batch)
    groups = [one.tolist() for one in seeds.batches_of(server.data, replace(SETTINGS, steps=2 * steps), 3)]
    assert len(groups) == 2 * steps and groups[:steps] != groups[steps:]
    assert sorted(sum(groups[steps:], [])) == list(range(len(server.data)))


def test_the_running_statistics_of_batch_norm_move(folder: Path) -> None:
    """The running statistics become the mean of those after each shard."""
    small = {"kind": "crdnn", "channels": [2, 2], "rnn_neurons": 4, "dnn_neurons": 4, "time_pooling": 2}
    algorithm, server = given(speech.settings(folder, model=small))
    task, (shards,) = algorithm.task, shards_of(algorithm, server, replace(SETTINGS, steps=1))
    start, end = (seeds.seed_model(task, server, replace(SETTINGS, steps=steps)).params for steps in (0, 1))
    moved = seeds.mean_gradient(shards, [seeds.shard_gradient(task, server, start, shard) for shard in shards])
    statistics = slice(task.layout.trainable, task.layout.moving)
    np.testing.assert_allclose(end[statistics], moved[statistics], rtol=1e-6)
    assert (end[statistics] != start[statistics]).any()


def test_a_loss_that_is_not_a_number_ends_the_training(folder: Path) -> None:
    algorithm, server = given(speech.settings(folder))
    with pytest.raises(ValueError, match="the training loss is nan: lower the learning rate"):
        seeds.seed_model(algorithm.task, server, replace(SETTINGS, lr=1e30, clip=None))
