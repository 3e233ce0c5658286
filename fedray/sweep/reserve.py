"""The placement group of a trial: a bundle for the trial, one for its driver, and one per client actor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ray.tune import PlacementGroupFactory

from fedray.engine.cluster.resources import DRIVER_CPUS, Node, Share, share
from fedray.engine.driver.driver import CLIENT_BUNDLE
from fedray.engine.settings import EngineSettings

HEAD_CPUS = 0.01  # of the trial process, which only waits for its driver


def reserve(
    settings: EngineSettings,
    nodes: Sequence[Node],
    trials: int,
    at_once: int | None = None,
    population: int | None = None,
) -> tuple[Share, int]:
    """The client actors of a trial with the resources of each, and how many trials run at once.

    `trials` is the number of trials, `at_once` a limit on parallel ones, `population` the number of clients (needed
    for `placement: dedicated`). If the engine's settings leave the number of actors open, as many trials run as the
    nodes have places for actors: with one actor per trial, actors wait least. Raises ValueError if a trial never fits.
    """
    wanted = settings.actors if isinstance(settings.actors, int) else None
    if settings.placement == "dedicated":
        wanted = population
    pool = replace(settings, placement="pooled", actors="auto")
    places = share(pool, nodes).actors
    most = min(trials, at_once or (places if wanted is None else max(1, places // wanted)))
    for together in range(most, 0, -1):
        actors = wanted or max(1, places // together)
        try:
            each = share(replace(pool, actors=actors * together), _without_heads(nodes, together))
            return Share(actors, each.cpus, each.gpus), together
        except ValueError:
            if together == 1:
                raise
    raise AssertionError("no trials")


def _without_heads(nodes: Sequence[Node], trials: int) -> list[Node]:
    """The nodes without the cores of all trials and drivers, which Ray may place on any node."""
    heads = trials * (HEAD_CPUS + DRIVER_CPUS)
    return [replace(node, cpus=max(0.0, node.cpus - heads)) for node in nodes]


def group(share: Share) -> PlacementGroupFactory:
    """The bundles in the order in which `fedray.engine.driver.driver` assigns actors to them."""
    client = {"CPU": share.cpus, "GPU": share.gpus} if share.gpus else {"CPU": share.cpus}
    bundles = [{"CPU": HEAD_CPUS}, {"CPU": DRIVER_CPUS}, *[client] * share.actors]
    assert len(bundles) == CLIENT_BUNDLE + share.actors
    return PlacementGroupFactory(bundles, strategy="PACK")
