"""The download of a broadcast: it is encoded once, its bytes are counted, and it is decoded as every client does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedray.core.algorithm import Algorithm
from fedray.core.compression.codes import Code
from fedray.core.compression.links import TOO_LARGE, Link
from fedray.core.types import Broadcast, RunError, Vector
from fedray.core.vectors import finite
from fedray.engine.jobs.job import Reference


@dataclass(frozen=True)
class Posted:
    """A broadcast in the object store: as the server has it, and as clients decode it."""

    broadcast: Broadcast
    server: Reference
    clients: Reference
    bytes: int  # to a client, without what is sent only once

    @classmethod
    def of(cls, broadcast: Broadcast, code: Code, algorithm: Algorithm, put: Callable[[Any], Reference]) -> Posted:
        """Put a broadcast into the object store by `put`. RunError: the code cannot represent it."""
        server = put(broadcast)
        decoded, sent = deliver(broadcast, code, algorithm)
        return cls(broadcast, server, server if decoded is broadcast else put(decoded), sent)


def deliver(broadcast: Broadcast, code: Code, algorithm: Algorithm) -> tuple[Broadcast, int]:
    """The broadcast as clients decode it, and the bytes sent to each client.

    The constant parameters are sent once, without encoding; their bytes are not counted here. A setting takes 8 bytes.
    RunError: the code cannot represent a number.
    """
    moving, sent = broadcast.params.size - broadcast.constant, 8 * len(broadcast.settings)
    link = Link(code, algorithm.tensors())
    if code.exact:
        return broadcast, sent + link.size(moving) + sum(link.size(one.size) for one in broadcast.vectors.values())
    arrived = dict[str, Vector]()
    for name, vector in {"": broadcast.params[:moving], **broadcast.vectors}.items():
        data = link.encode(vector)
        sent += len(data)
        arrived[name] = link.decode(data, vector.size)
        if not finite(arrived[name]):
            raise RunError(f"the model has numbers {TOO_LARGE}: choose another download.kind")
    params = np.concatenate([arrived.pop(""), broadcast.params[moving:]])
    return replace(broadcast, params=params, vectors=arrived), sent
