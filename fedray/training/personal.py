"""The personal part of a model: parameters and running statistics that stay with a client (`algorithm.personal`).

The vector's personal part (`Layout.personal`) travels to a client once, with theta_0. From then on it is in the
client's state, and every model that the client trains or scores is composed of what it receives and of its own part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

from fedray.core.parameters import Layout
from fedray.core.types import Client, Received, State, Vector

PART = "personal/part"  # in a client's state: its personal part, float32 [numbers]


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern matches the name of a parameter or a buffer."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def check_patterns(patterns: Sequence[str], layout: Layout, aliases: Iterable[str] = ()) -> None:
    """Check patterns against the layout that they gave. ValueError: one matches nothing, or together all."""
    names = [entry.name for entry in layout.entries if entry.start < layout.personal.stop]
    modules = list(dict.fromkeys(f"{name.partition('.')[0]}.*" for name in names if "." in name))
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            known = [*aliases, *modules] or names
            near = get_close_matches(pattern, [*aliases, *modules, *names], cutoff=0.5) or known
            raise ValueError(
                f"algorithm.personal: {pattern!r} matches no trained parameter or running statistic of the model; "
                f"near it: {', '.join(near)} (`fedray model` lists all)"
            )
    if patterns and not layout.trainable:
        what = f"{patterns[0]!r} matches" if len(patterns) == 1 else f"{', '.join(map(repr, patterns))} match"
        raise ValueError(
            f"algorithm.personal: {what} every trained parameter, and nothing would travel: leave out one of "
            f"{', '.join(modules or names)}"
        )


def composed(layout: Layout, client: Client, received: Received) -> tuple[Client, Received]:
    """A client with the state that its algorithm wrote, and what it received with the client's own part in it.

    A new client has the initial part, which it received.
    """
    if client.state is None or PART not in client.state:
        return client, received
    params = received.params.copy()
    params[layout.personal] = client.state[PART]
    params.flags.writeable = False
    return replace(client, state=_without_part(client.state)), replace(received, params=params)


def kept(state: State | None, before: State | None, part: Vector) -> State:
    """A client's next state: the algorithm's new state (None: the one before), and the personal part."""
    return {**(before or {} if state is None else state), PART: part}


def _without_part(state: Mapping[str, object]) -> State | None:
    return {key: value for key, value in state.items() if key != PART} or None
