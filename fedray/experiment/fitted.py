"""The client actors of a run, once its data and its model are known: as many as fit, and as can work."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedray.core.devices.settings import BufferedClock
from fedray.engine.cluster.resources import Node, Share, idle, share
from fedray.engine.jobs.work import Program
from fedray.experiment.config import Config
from fedray.experiment.memory import activation_bytes, actor_bytes, beside_driver, check_models
from fedray.training.optimizers import PretrainSettings


def fitted(config: Config, program: Program, before: Share, nodes: Sequence[Node]) -> Share:
    """The share of a run. Prints a line if memory makes it smaller than `before`, or if cores or GPUs stay idle.

    ValueError: the models of a buffered clock, or the clients of a dedicated placement, do not fit into memory.
    """
    check_models(config.clock, program, nodes)
    chosen, each = pool(config, program, before.gpus > 0, nodes)
    if config.engine.placement == "pooled":
        fit = share(config.engine, beside_driver(program, nodes), None, each).actors
        if fit < before.actors:
            print(
                f"{fit} client actors instead of {before.actors}: each needs about {each / 1e6:,.0f} MB of memory, and "
                "Ray has no more",
                file=sys.stderr,
            )
        if words := idle_words(config, program, chosen, fit, nodes):
            print(words, file=sys.stderr)
    return chosen


def pool(
    config: Config, program: Program, gpu: bool, nodes: Sequence[Node], activations: float | None = None
) -> tuple[Share, float]:
    """The share of a run, and the bytes of memory that an actor needs. `gpu`: whether actors compute on GPUs.

    `activations`: bytes, from `activation_bytes`; None: they are measured if the model is large.
    """
    population = len(program.data.client_ids()) if config.engine.placement == "dedicated" else None
    side = together(config, gpu)
    if not program.large:
        activations = 0.0
    elif activations is None:
        activations = activation_bytes(program, side)
    each = actor_bytes(program, side, activations)
    free = beside_driver(program, nodes)
    return share(config.engine, free, population, each, jobs_at_once(config, program)), each


def together(config: Config, gpu: bool) -> int:
    """The clients of a lane that train side by side. ValueError: their settings of steps forbid what is asked for."""
    clients = config.engine.together(gpu)
    if clients > 1 and getattr(getattr(config.algorithm.settings, "client", None), "alone", False):
        if isinstance(config.engine.vectorise, int):
            raise ValueError(
                f"engine.vectorise={config.engine.vectorise} trains clients side by side, which algorithm.client's "
                "micro_batch, recompute, precision and compile do not allow: set engine.vectorise=never"
            )
        return 1
    return clients


def jobs_at_once(config: Config, program: Program) -> int:
    """The most jobs that actors can work on at once, in the longest phases of a run."""
    data, population = program.data, len(program.data.client_ids())
    clients = config.cohort.count(population)
    if isinstance(config.clock, BufferedClock):
        clients = config.clock.buffer
    # Under a clock, clients that start from different models are in different lanes.
    lanes = clients if config.clock is not None else min(config.engine.lane_count(clients), clients)
    training = lanes + program.algorithm.overrides("server_train")
    cut = config.engine.lane_count(config.cohort.count(population))
    shards = [config.evaluation.shard_count(cut, len(data.evaluation(split))) for split in data.splits()]
    pretrain = getattr(config.algorithm.settings, "pretrain", PretrainSettings())
    return max(training, pretrain.shards, *shards)


def idle_words(config: Config, program: Program, chosen: Share, fit: int, nodes: Sequence[Node]) -> str:
    """Which cores or GPUs a run leaves idle, and why; "": none, or the user chose the number of actors."""
    cores, gpus = idle(chosen, nodes)
    if config.engine.actors != "auto" or chosen.actors >= fit or not (gpus if chosen.gpus else cores):
        return ""
    rest = f"{gpus} GPUs" if chosen.gpus else f"{cores} cores"
    clients = config.cohort.count(len(program.data.client_ids()))
    return (
        f"{chosen.actors} client actors work, and {rest} stay idle: a cohort of {clients:,} clients is cut into "
        f"{min(config.engine.lane_count(clients), clients):,} lanes; a larger cohort, or engine.lanes, would use more"
    )
