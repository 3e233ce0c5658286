"""The sections `cohort`, `engine` and `evaluation` of a configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fedray.core.ranges import Amount, Count, Natural, Part, Positive, Range, Ranged, Share, SomeShare, one_of

TOGETHER_ON_A_GPU = 8  # clients, for `vectorise: auto`
# For `lanes: auto` and `shards: auto`. A lane holds as many clients as a GPU trains side by side.
CLIENTS_A_LANE, LEAST_LANES, MOST_LANES = 8, 8, 8000
UTTERANCES_A_SHARD = 32
JUDGES = ("dev", "own", "personal")  # what may choose the best round


@dataclass(frozen=True)
class CohortSettings(Ranged):
    """How the clients of a round are chosen."""

    size: Count | None = None  # clients in a round; set this or `fraction`
    fraction: SomeShare | None = None  # share of the population that takes part in a round
    # uniform | weighted (by each client's cost, in utterances) | poisson (each client independently, with the same
    # probability) | cyclic (groups that take turns) | oort (with devices: useful data and fast devices first)
    sampling: str = one_of(("uniform", "weighted", "poisson", "cyclic", "oort"))
    limit: Count | None = None  # poisson: the most clients in a round; any more are left out; null: no limit
    availability: SomeShare = 1.0  # probability that a client can be chosen in a round
    dropout: Part = 0.0  # probability that a chosen client never answers

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size is None and self.fraction is None:
            raise ValueError("set size (clients a round), such as size: 10, or fraction (share of all), such as 0.1")
        if self.size is not None and self.fraction is not None:
            raise ValueError("size and fraction are both set: unset one, with size=null or fraction=null")
        if self.limit is not None and self.sampling != "poisson":
            raise ValueError(f"limit applies to poisson cohorts, not to {self.sampling} ones: remove it")
        if self.sampling in ("poisson", "cyclic") and self.availability < 1:
            raise ValueError(f"{self.sampling} cohorts need availability=1: they are drawn from all clients")

    @property
    def whole(self) -> bool:
        """Whether every client answers in every round."""
        return self.fraction == 1.0 and self.availability == 1.0 and self.dropout == 0.0

    def count(self, population: int) -> int:
        """The number of clients in a round."""
        count = self.size if self.size is not None else max(1, round((self.fraction or 0.0) * population))
        if count > population:
            raise ValueError(
                f"cohort.size is {count}, but the population has only {population} clients: lower it, or set "
                "cohort.fraction"
            )
        return count

    def groups(self, population: int) -> int:
        """cyclic: the number of groups that take turns."""
        return population // self.count(population)

    def expected(self, population: int) -> float:
        """The average number of clients in a round, before any drop out."""
        return population / self.groups(population) if self.sampling == "cyclic" else self.count(population)


@dataclass(frozen=True)
class DeadlineSettings(Ranged):
    """When a client actor that hangs is killed and its work done again elsewhere, with the same bits.

    An actor is never killed before other work of its kind has ended, nor before twice the longest time so far.
    """

    factor: Annotated[float, Range(1)] | None = 30.0  # times the usual time of such work; null: no actor is killed
    floor_s: Positive = 600.0  # seconds that any work may take


@dataclass(frozen=True)
class EngineSettings(Ranged):
    """How the work is spread over actors.

    Of these settings only `lanes`, `vectorise`, `failures_allowed` and `prepare` can change the bits of the result, and
    on a GPU also `placement`, unless `vectorise` is `never`. A client that hangs twice beyond `deadline` fails.
    """

    # pooled: a few actors train all clients; dedicated: an actor for each client
    placement: str = one_of(("pooled", "dedicated"))
    actors: str | Count = "auto"  # client actors; auto: as many as the resources allow (dedicated: one per client)
    # Pieces that a cohort is cut into: the unit of work, of retry and of float order. auto: one for every eight clients
    # (or as many as `vectorise` stacks, if it is a number above 8), at least 8 and at most 8000, on any hardware.
    lanes: str | Count = "auto"
    # Clients of a lane whose models an actor trains as one batch. auto: 8 on a GPU; on a CPU one after another, since
    # compiled loops are as fast. never | a number.
    vectorise: str | Count = "auto"
    cpus_per_client: str | Amount = "auto"  # auto: an equal share of the cores that are left
    gpus_per_client: str | Share = "auto"  # auto: 0 without GPUs, else a quarter: four actors share a GPU
    failures_allowed: Share = 0.1  # share of a cohort that may fail before the run does
    # What may differ between the nodes of a run. none; hardware: processors and GPUs, which run.json and the report
    # then name; all: also versions of packages and fedray's code.
    mixed_nodes: str = one_of(("none", "hardware", "all"), "hardware")
    replacements: Natural = 10  # dead actors that a run replaces before it gives up
    hang_warning_s: Positive = 60.0  # seconds of silence, at least, before a warning names the actor and its client
    deadline: DeadlineSettings = field(default_factory=DeadlineSettings)  # when an actor that hangs is killed
    checkpoint_every: Count = 1  # rounds between two checkpoints
    keep: Count = 2  # latest checkpoints that stay, besides the first and the best ones by then
    hold_gb: Amount = 1.0  # memory of an actor for updates that wait for the whole cohort; others go to local disk
    # lazy: a client prepares in its first cohort; all: every client before the first round
    prepare: str = one_of(("lazy", "all"))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("actors", "lanes", "vectorise", "cpus_per_client", "gpus_per_client"):
            value, words = getattr(self, name), ("auto", "never") if name == "vectorise" else ("auto",)
            if isinstance(value, str) and value not in words:
                raise ValueError(f"{name} must be {' or '.join(words)} or a number, not {value!r}")
        if self.placement == "dedicated" and self.actors != "auto":
            raise ValueError("actors must be auto with placement=dedicated: there every client has an actor")

    def lane_count(self, clients: int) -> int:
        """The most lanes that so many clients of a round are cut into. Bits depend on it."""
        if isinstance(self.lanes, int):
            return self.lanes
        least = max(CLIENTS_A_LANE, self.vectorise) if isinstance(self.vectorise, int) else CLIENTS_A_LANE
        return min(max(LEAST_LANES, -(-clients // least)), MOST_LANES)

    def together(self, gpu: bool) -> int:
        """The number of a lane's clients trained side by side, for any number of actors: bits depend on it."""
        if self.placement == "dedicated" or self.vectorise == "never":
            return 1
        return self.vectorise if isinstance(self.vectorise, int) else TOGETHER_ON_A_GPU if gpu else 1


@dataclass(frozen=True)
class EvaluationSettings(Ranged):
    """When and how splits are scored. The shards, not the number of actors, fix the order of float additions."""

    every: Count = 1  # rounds; the last round is always scored
    # The score that chooses the best round and that `patience` waits for: dev/accuracy, dev/macro_f1, own/macro_f1 (of
    # the clips that clients hold out, which every scored round then scores too), personal/own_macro_f1 (of the cohort's
    # personal models), ... null: the task's, such as dev/wer or dev/accuracy.
    best: str | None = None
    # Pieces of a split that actors score in parallel. auto: as many as the cohort has lanes, of at least 32 utterances
    # each; but at least 8.
    shards: str | Count = "auto"
    patience: int | None = None  # rounds without a better score (`best`) after which a run ends; null: never
    # rounds; scores the cohort's personal models on a part of dev, and on what their clients hold out; 0: never
    personal_every: Natural = 0
    personal_utterances: Count = 200  # utterances of dev for each personal model, about, spread over all lengths
    personal_final: bool = False  # at the end, scores the personal models of all clients that took part, on every split
    personal_final_utterances: Count | None = None  # utterances of each split, approximately; null: all
    # with personal_final, scores with every search, and writes personal_predictions.tsv: a row for each utterance
    personal_predictions: bool = False
    client_reports: bool = False  # writes reports.jsonl: for each round and client, what the client reports

    def shard_count(self, lanes: int, utterances: int) -> int:
        """The shards of a split of so many utterances, in a run whose cohort has so many lanes."""
        if isinstance(self.shards, int):
            return self.shards
        return max(LEAST_LANES, min(lanes, utterances // UTTERANCES_A_SHARD))

    @property
    def judge(self) -> str:
        """Whose score chooses the best round: one of `JUDGES`."""
        return (self.best or "dev/").partition("/")[0]

    def scored_every(self, metric: str) -> int:
        """The number of rounds from one score of a metric to the next."""
        return (self.personal_every if metric.startswith("personal/") else 0) or self.every

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.shards, str) and self.shards != "auto":
            raise ValueError(f"shards must be auto or a number, not {self.shards!r}")
        if self.judge not in JUDGES:
            raise ValueError(
                f"best must be a score of dev, of own clips or of personal models, such as dev/macro_f1, own/accuracy "
                f"or personal/own_accuracy, not {self.best!r}: test sets are scored once, at the end"
            )
        if self.judge == "personal" and not self.personal_every:
            raise ValueError(f"best={self.best} needs personal_every: set how often personal models are scored")
        if self.patience is not None and self.patience < (every := self.scored_every(self.best or "dev/")):
            key = "personal_every" if self.judge == "personal" else "every"
            raise ValueError(
                f"patience must be at least evaluation.{key} ({every}): {self.best or 'dev'} is scored only every so "
                "many rounds"
            )
        if self.personal_predictions and not self.personal_final:
            raise ValueError("personal_predictions needs personal_final: set personal_final=true")
