"""The section `data` of a configuration: a corpus, and how it is divided between server and clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fedray.core.ranges import Fraction, Part, Positive, Ranged
from fedray.data.corruption import CorruptionSettings
from fedray.data.federation.groups import GroupSettings
from fedray.data.federation.labelled import LabelledSettings
from fedray.data.federation.partition import PartitionSettings


@dataclass(frozen=True)
class ServerDataSettings(Ranged):
    """The speakers of the training data that belong to the server, if the corpus does not say. All null: none."""

    share: Fraction | None = None  # share of the speakers
    hours: Positive | None = None  # hours of speech, by whole speakers
    utterances: Fraction | None = None  # share of the utterances
    largest: bool = False  # choose the speakers with most speech (with `utterances`: most utterances), not random ones

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.largest and not self.given():
            raise ValueError(
                "data.server.largest chooses the server's speakers, and no setting says how many: "
                "set data.server.share, hours or utterances"
            )

    def given(self) -> list[str]:
        """The amounts that are set."""
        return [name for name in ("share", "hours", "utterances") if getattr(self, name) is not None]


@dataclass(frozen=True)
class DataSettings(Ranged):
    """The section `data` of a configuration."""

    corpus: str = "embedded"  # the name of the reader; docs/corpora.md lists them
    root: str | None = None  # the folder that holds the corpus; the embedded corpus has none
    seed: int = 0  # seed for making and dividing the corpus, separate from the seed of the run
    # A text file with one sentence a line, from which tokens and language models are learnt in place of transcripts.
    text: str | None = None
    options: dict[str, Any] = field(default_factory=dict)  # settings of this corpus' reader
    server: ServerDataSettings = field(default_factory=ServerDataSettings)
    clients: PartitionSettings = field(default_factory=PartitionSettings)
    labelled: LabelledSettings = field(default_factory=LabelledSettings)  # which of the clients' data is labelled
    corruption: CorruptionSettings = field(default_factory=CorruptionSettings)  # damage to the clients' training data
    groups: GroupSettings = field(default_factory=GroupSettings)  # groups of speakers, for scores and strategies
    # share of the training speakers for dev, if the corpus has no development set. Shares are drawn with `seed`. No
    # speaker is in two sets. If no speakers are known, recordings are drawn.
    dev_share: Fraction | None = None
    test_share: Fraction | None = None  # share of the training speakers for test, if the corpus has no test set
    # Share of each client's utterances that it holds out, clean, as its test set: the split "own". The shared model is
    # scored on all of them, a personal model on its client's. 0: none.
    own_share: Part = 0.0
    # Leave out and count damaged audio, and rows of tables that lack a value, instead of ending with an error. A
    # missing file is an error in any case.
    skip_broken: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clients.by == "server":
            of_clients = {
                "own_share": self.own_share,
                "labelled": self.labelled.given,
                "corruption": self.corruption.damages,
            }
            if given := [name for name, value in of_clients.items() if value]:
                raise ValueError(
                    f"data.{given[0]} applies to the clients' speech, but data.clients.by=server trains on the "
                    "server's: remove it"
                )
        if self.clients.by == "pooled" and self.corruption.clients < 1:
            raise ValueError(
                "data.corruption.clients chooses a share of the clients, and data.clients.by=pooled makes a single "
                "client: remove the setting"
            )
        if self.clients.by == "pooled" and self.labelled.clients > 0:
            raise ValueError(
                "data.labelled.clients labels a share of the clients, and data.clients.by=pooled makes a single "
                "client: set data.labelled.utterances instead"
            )
