"""What fedray needs from a device before anything else: the checks of `fedray doctor`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fedray.engine.actors.gpu_trials import TRIALS
from tests.gpu.record import Item, Values, Where

TITLE = "The device"
ABOUT = "The operations that `fedray doctor` tries. A row fails if its operation does."
OPENS_DEVICE = True
SECONDS = 60


def items(where: Where) -> Iterator[Item]:
    for name, work in TRIALS.items():
        yield name, _work(work, where.device)


def _work(work: Callable[[str], str], device: str) -> Callable[[], Values]:
    return lambda: {"result": work(device)}
