"""The work of a client actor as plain functions without Ray, so that tests can call them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedray.core.algorithm import Algorithm
from fedray.core.compression.codes import Code, Float32
from fedray.core.compression.settings import NoUpload, Upload
from fedray.core.seeds import derive, seed_all
from fedray.core.types import Broadcast, Client, Evaluation, FederatedData, Received, Server, ServerState, State
from fedray.runs.client_states import Written, folder_name
from fedray.storage import serialize
from fedray.storage.cache import fetch, found_or_made, share, use, writing


def asset_bytes(assets: Mapping[str, Any]) -> int:
    """The bytes of a run's assets; an asset without `nbytes` counts as 0."""
    return sum(int(getattr(asset, "nbytes", 0)) for asset in assets.values())


class StateStore(Protocol):
    """A store of versions of client states."""

    def load(self, client: str, written: Written) -> State: ...
    def save(self, client: str, version: int, state: State) -> Written: ...
    def sync(self, written: Mapping[str, Written]) -> None: ...


@dataclass(frozen=True)
class Program:
    """The parts of a run that every actor needs, sent to each actor once."""

    algorithm: Algorithm
    data: FederatedData
    seed: int
    states: StateStore
    init_cache: Path | None = None  # of theta_0, shared between runs
    prepare_cache: Path | None = None  # of prepared client states, shared between runs
    upload: Upload = NoUpload()  # how clients encode their updates
    download: Code = Float32()  # how the server encodes its broadcast
    large: bool = False  # the model is so large that a step's activations decide how many actors fit


def hydrate(program: Program, name: str, written: Written | None, round: int, work: float = 1.0) -> Client:
    """The client with its data, its seed for the round, its state, and the share of its steps that it has time for."""
    if program.data.cost(name) <= 0:
        raise ValueError(f"client {name} has no data: raise data.clients.min_utterances, or leave it out of the corpus")
    state = None if written is None else program.states.load(name, written)
    return Client(name, program.data.load(name), derive(program.seed, "client", round, name), state, work)


def prepare(program: Program, client: Client, first: Received) -> tuple[State | None, bool]:
    """Prepare a client: (its first state, whether it was in the cache).

    The state depends on the broadcast of round 0, in whatever round it is made.
    """
    path = None
    if program.prepare_cache is not None:
        while not use(program.prepare_cache):
            with writing(program.prepare_cache):
                program.prepare_cache.mkdir(parents=True, exist_ok=True)
        path = program.prepare_cache / broadcast_key(first) / f"{folder_name(client.id)}.pt"
        if path.exists() or fetch(path):
            return cache_entry(path), True
    seed_all(program.seed, "prepare", client.id)
    state = program.algorithm.client_prepare(client, first)
    if state is None:
        return None, False
    if path is not None:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            serialize.save(state, path)
        share(path)
    return serialize.plain(state), False


def broadcast_key(first: Broadcast | Received) -> str:
    """The name, in the cache of prepared states, of a broadcast of round 0."""
    digest = hashlib.blake2b(first.params.tobytes(), digest_size=8)
    for name in sorted(first.vectors):
        digest.update(name.encode() + first.vectors[name].tobytes())
    return digest.hexdigest()


def cache_entry(path: Path) -> dict[str, Any]:
    """The state in a cache file. ValueError: the file is damaged."""
    try:
        return serialize.load(path)
    except ValueError as error:
        raise ValueError(f"{error}; it is a cache: remove it, and it is made again") from error


def server(
    program: Program,
    round: int | None,
    device: str,
    assets: Mapping[str, Any],
    progress: Callable[[int, int, str], None],
) -> Server:
    """The server as an algorithm sees it, with a seed for the round (None: before the first round)."""
    seed = derive(program.seed, "server", "init" if round is None else round)
    seed_all(seed)
    dev = program.data.evaluation("dev") if "dev" in program.data.splits() else None
    return Server(program.data.server(), dev, seed, device, assets, progress, round=round or 0)


def init(program: Program, make_server: Callable[[], Server]) -> tuple[ServerState, bool]:
    """Make (the state that the first round starts from, whether theta_0 was in the cache)."""
    theta_0, cached = _theta_0(program, make_server)
    return program.algorithm.begin(theta_0, derive(program.seed, "server", "begin")), cached


def _theta_0(program: Program, make_server: Callable[[], Server]) -> tuple[ServerState, bool]:
    """(theta_0, whether it was in the cache). One writer holds a lock: the trials of a sweep wait for the first."""
    path = program.init_cache
    if path is None:
        state = program.algorithm.init(make_server())
        return ServerState(state.params, serialize.plain(state.extra)), False
    made = []

    def make() -> None:
        state = program.algorithm.init(make_server())
        serialize.save({"params": state.params, "extra": state.extra}, path)
        made.append(path)

    found_or_made(path, make)
    if made:
        share(path)
    loaded = cache_entry(path)
    return ServerState(loaded["params"], loaded["extra"]), not made


def evaluate(program: Program, split: str, shard: int, shards: int, received: Received, final: bool) -> Evaluation:
    """The scores of one shard of a split."""
    seed_all(program.seed, "evaluate", split, shard)
    return program.algorithm.evaluate(program.data.evaluation(split, shard, shards), received, final)


def arrive(broadcast: Broadcast, round: int, assets: Mapping[str, Any], device: str) -> Received:
    """The broadcast on an actor. Its vectors are made read-only; parameters from the object store already are."""
    vectors = {name: vector.view() for name, vector in broadcast.vectors.items()}
    for vector in vectors.values():
        vector.flags.writeable = False
    return Received(broadcast.params, broadcast.settings, round, assets, device, vectors)
