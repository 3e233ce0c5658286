"""What a trial reserves: a placement group with a bundle for itself, one for its driver, and one for each client actor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ray.tune import PlacementGroupFactory

from fedray.engine.driver import CLIENT_BUNDLE
from fedray.engine.resources import DRIVER_CPUS, Node, Share, share
from fedray.engine.settings import EngineSettings

HEAD_CPUS = 0.01  # of the trial, which waits for its driver


def reserve(
    settings: EngineSettings, nodes: Sequence[Node], trials: int, at_once: int | None = None, population: int | None = None
) -> tuple[Share, int]:
    """(the client actors of a trial and what each books, how many trials run at once).

    Where the engine's settings leave it open, the nodes are shared by as many trials as they have places for actors: a trial with
    one actor never waits for another of its own. A reservation that can never be met is a ValueError. `population`: how many clients
    there are, for `placement: dedicated`.
    """
    own = population if settings.placement == "dedicated" else settings.actors if isinstance(settings.actors, int) else None
    pool = replace(settings, placement="pooled", actors="auto")
    places = share(pool, nodes).actors
    most = min(trials, at_once or (places if own is None else max(1, places // own)))
    for together in range(most, 0, -1):
        actors = own or max(1, places // together)
        try:
            each = share(replace(pool, actors=actors * together), _without_heads(nodes, together))
            return Share(actors, each.cpus, each.gpus), together
        except ValueError:
            if together == 1:
                raise
    raise AssertionError("no trials")


def _without_heads(nodes: Sequence[Node], trials: int) -> list[Node]:
    """The nodes without what trials and drivers book, wherever they come to lie."""
    return [replace(node, cpus=node.cpus - trials * (HEAD_CPUS + DRIVER_CPUS)) for node in nodes]


def group(share: Share) -> PlacementGroupFactory:
    """The bundles, in the order that `fedray.engine.driver` pins actors to."""
    client = {"CPU": share.cpus, "GPU": share.gpus} if share.gpus else {"CPU": share.cpus}
    bundles = [{"CPU": HEAD_CPUS}, {"CPU": DRIVER_CPUS}, *[client] * share.actors]
    assert len(bundles) == CLIENT_BUNDLE + share.actors
    return PlacementGroupFactory(bundles, strategy="PACK")
