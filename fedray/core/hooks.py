"""What the engine and its options ask of an algorithm besides a round; see `fedray.core.algorithm` for the round."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fedray.core.compression.codes import Shape
from fedray.core.metrics import Metrics
from fedray.core.server_optimizers import ServerOptimizer
from fedray.core.strategies import Strategy
from fedray.core.types import (
    Broadcast,
    Client,
    Evaluation,
    FederatedData,
    Layer,
    Received,
    Server,
    ServerState,
    Update,
    Vector,
)

if TYPE_CHECKING:
    from fedray.core.privacy.likeness import Reconstruction


@dataclass(frozen=True)
class Setup:
    """The rest of a configuration, which an algorithm checks before any data is read."""

    task_class: type
    task: Any  # settings of the task
    model_class: type
    model: Any  # settings of the model
    strategy: Strategy
    server_optimizer: ServerOptimizer
    rounds: int
    whole_population: bool  # every client takes part in every round
    scores_personal: bool  # evaluation.personal_final


class Hooks(ABC):
    """The hooks of an algorithm that a round does without. Each has a default; override what your algorithm needs.

    Class attributes say what the engine cannot see. They come first, then checks, the work of the server, what is
    scored and written, and what single options of the engine ask.
    """

    settings: Any
    task: Any

    # configuration keys that init depends on, which make its cache key; (): no cache
    init_depends: ClassVar[tuple[str, ...]] = ()
    init_name: ClassVar[str | None] = None  # algorithms with the same init_name share the cache of init
    prepare_depends: ClassVar[tuple[str, ...]] = ()  # the same for client_prepare, besides init's keys
    # client_prepare reads the broadcast or the assets, which then count as traffic
    prepare_reads: ClassVar[bool] = True
    prepare_passes: ClassVar[float] = 0.0  # passes of training that take about as long on a device as client_prepare
    central: ClassVar[bool] = False  # trains in one place, on a population of one client
    sends_updates: ClassVar[bool] = True  # false: a round does nothing but write the states of its clients, all of them
    judged_personally: ClassVar[bool] = False  # only the clients' personal scores show its effect
    # the server needs updates as clients send them, neither clipped nor made smaller because they are stale
    unscaled: ClassVar[bool] = False
    sends_more: ClassVar[bool] = False  # clients send vectors besides their deltas, which `privacy` does not cover
    makes_labels: ClassVar[bool] = False  # clients train on labels that the algorithm makes
    reports_wer: ClassVar[bool] = False  # clients report a word error rate, which strategy by_wer needs
    files: ClassVar[tuple[str, ...]] = ()  # names of settings that hold the path of a file, or None
    best: tuple[str, str] = ("dev/loss", "min")  # the metric that picks the best round; "min" or "max"

    # Checks, before anything is trained.

    @classmethod
    def check_setup(cls, settings: Any, setup: Setup) -> None:
        """Raise ValueError if the rest of the configuration does not fit; called before any data is read."""
        return None

    def check(self, data: FederatedData) -> None:
        """Raise ValueError if the federation's data do not fit; called before anything is trained."""
        return None

    def paced_by(self) -> str | None:
        """Say in words what depends on the total number of rounds, so that another number would change finished rounds.

        None: nothing depends on it, and a run may be extended.
        """
        return None

    # The server's own training, and what every actor needs.

    def server_train(self, server: Server, received: Received) -> Update | None:
        """Train on the server's data while the clients train; the update arrives as `change.server`."""
        return None

    def server_finish(self, server: Server, state: ServerState) -> ServerState:
        """Train on the server's data after the aggregation (fine-tuning). Runs on a client actor."""
        return state

    def assets(self, data: FederatedData) -> Mapping[str, Any]:
        """Read-only objects that every actor needs (a language model, ...): `received.assets` and `server.assets`.

        Called once, in the process that starts the run. A client receives them once; their `nbytes` count as traffic.
        """
        return {}

    def init_part(self, server: Server, params: Vector, part: Any) -> Any:
        """Do a part of `init`'s work; `server.spread` may give it to any client actor.

        The result depends on `server.seed`, `params` and `part` alone.
        """
        raise NotImplementedError(f"{type(self).__name__} has no init_part, which server.spread calls")

    # Scores and files.

    @property
    def logged(self) -> tuple[str, ...]:
        """The metrics of training that each row of metrics.jsonl has, null if nobody trained."""
        found: tuple[str, ...] = getattr(self.task, "logged", ("loss",))
        return found

    def evaluate(self, data: Any, received: Received, final: bool) -> Evaluation:
        """Score the global model on a shard of a split. `final`: with beam search and the rows of predictions.tsv.

        Without `final`, rows are examples for `fedray watch --web`.
        """
        return Evaluation(Metrics())

    def evaluate_personal(
        self, client: Client, received: Received, data: Mapping[str, Any], final: bool
    ) -> Mapping[str, Evaluation]:
        """Score a client's personal model on each of these data sets; `client.state` is the client's newest state.

        The engine calls it if `evaluation.personal_every` or `personal_final` asks for it. `final`: as in `evaluate`.
        """
        return {}

    @property
    def signatures(self) -> Mapping[str, str]:
        """Score -> how it is computed, for scores that papers report with a signature; results.json holds these."""
        return {}

    def export(self, state: ServerState, folder: Path) -> None:
        """Write the model so that it loads without fedray."""
        return None

    def formula_bytes(self, clients: int, updates: int) -> float | None:
        """Bytes by the paper's formula; None: it has none. `clients` took part and sent `updates` updates in all."""
        return None

    # Lanes, strategies, `upload` and `download`, `devices`, `audit`.

    @abstractmethod
    def client_update(self, client: Client, received: Received) -> Update:
        """See `Algorithm`."""

    def lane_update(self, clients: Iterator[Client], received: Received) -> Iterator[Update | Exception]:
        """Train a lane: yield each client's update, or its error if it failed, in the order of the clients.

        The engine calls this hook. Up to `received.together` clients may be trained side by side.
        """
        for client in clients:
            yield self.client_update(client, received)

    def layers(self) -> Sequence[Layer]:
        """The layers of the exchanged vector, for layer-wise strategies: stretches that cover it in order."""
        return (Layer("all", 0, sys.maxsize),)

    def tensors(self) -> Shape | None:
        """The sizes of the tensors, in order, at the start of a client's delta and of the broadcast's parameters.

        `upload` and `download` encode these tensors; the rest (running statistics) travels as it is. None: one tensor.
        """
        return None

    def server_receive(self, delta: Vector, received: Received) -> Vector:
        """Turn a client's delta as it arrives, possibly rounded by `upload`, into the delta that the server sums.

        `received`: what the client got. Runs on the client actor.
        """
        return delta

    def passes(self) -> float:
        """Training passes over a client's utterances in a round, from which `devices` computes the time of a trip."""
        return float(getattr(getattr(self.settings, "client", None), "epochs", 1))

    def sends(self, broadcast: Broadcast) -> Sequence[int]:
        """The sizes of the delta and vectors that a client sends, from which `devices` computes the upload's time."""
        return (broadcast.params.size - broadcast.constant,)

    def losses(self, data: Any, received: Received) -> Sequence[float]:
        """The loss of the global model on each item of a client's data, from which an audit guesses who took part."""
        raise NotImplementedError(f"{type(self).__name__} has no losses, which audits need")

    def reconstruct(
        self, data: Any, update: Vector, received: Received, steps: int, rate: float
    ) -> Sequence[Reconstruction]:
        """What an attacker reconstructs of a client's data from its update, in `steps` of a search, for an audit."""
        raise NotImplementedError(f"{type(self).__name__} reconstructs nothing, which audit.kind=inversion needs")
