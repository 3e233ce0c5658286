"""Partition the rows of a manifest among clients: by speaker, or by one of the usual rules of federated learning.

A partition depends on the utterance ids, the settings and the seed, never on the order of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fedray.core.ranges import Amount, Count, Natural, Part, Positive, Ranged
from fedray.core.seeds import numpy_generator
from fedray.data.federation.uneven import dealt, dealt_by_label
from fedray.data.manifest import Manifest, Mask, Rows

Clients = dict[str, Rows]


@dataclass(frozen=True)
class PartitionSettings(Ranged):
    """How to partition utterances among clients. `by` is one of

    speaker     one client for each speaker, named after the speaker
    k_speakers  `speakers_per_client` random speakers for each client; the last client may have fewer
    silos       `count` clients of equal hours: speakers are dealt by length of speech; the seed only breaks ties
    iid         `count` clients of equal numbers of random utterances
    uneven      `count` clients of random utterances; sizes are drawn uniformly from mean * (1 +- `spread`), at least 1
                each if there are enough utterances; those labelled by `data.labelled.share` and all others are
                dealt separately (FedSTAR)
    dirichlet   `count` clients; the utterances of each label are dealt in shares drawn from Dirichlet(`alpha`)
                (Yurochkin et al., ICML 2019; Hsu et al., 2019, draw classes for each client, for equal sizes);
                with `whole_speakers`, the speakers of each label are (FedAudio deals recordings)
    label       one client for each label (a dialect, a domain), named after the label; the client is scored on the
                utterances of dev and test with its label
    pooled      one client, "all", with the utterances of all clients and of the server, for central training
    server      one client, "all", with the utterances of the server alone, to train on them further
    """

    by: str = "speaker"  # speaker | k_speakers | silos | iid | uneven | dirichlet | label | pooled | server: see above
    # number of clients; speaker, k_speakers, label: keep that many random clients (null: all)
    count: Count | None = None
    alpha: Positive = 0.5  # dirichlet: smaller values make clients' labels more skewed
    # dirichlet: a speaker (in corpora of sounds, a recording) is dealt whole, by the label of its first utterance; what
    # a client holds out (`data.own_share`) then shares no speaker with what it trains on
    whole_speakers: bool = False
    spread: Part = 0.25  # uneven: see above (FedSTAR's sigma)
    # uneven: mean number of labels among a client's labelled utterances (null: at random)
    labels: Positive | None = None
    # Sigma_c: a client's number of labels is drawn from `labels` * (1 +- labels_spread) and rounded.
    labels_spread: Amount = 0.0
    speakers_per_client: Count = 2  # k_speakers: speakers that share a client
    # clients with fewer are dropped; a Dirichlet draw is repeated until no client has fewer
    min_utterances: Natural = 1
    max_utterances: Count | None = None  # a client with more keeps that many random utterances

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.whole_speakers and self.by != "dirichlet":
            raise ValueError(f"whole_speakers is for by: dirichlet, not {self.by}: remove it")


def partition(manifest: Manifest, settings: PartitionSettings, seed: int, labelled: Mask | None = None) -> Clients:
    """Client id -> its rows, int64, ascending. Clients are in the order of their ids and share no row.

    `labelled`: bool [rows], the utterances that are labelled before the partition
    (`fedray.data.federation.labelled.shared_rows`). Raises ValueError if the settings do not fit the manifest.
    """
    if settings.by not in PARTITIONS:
        raise ValueError(f"data.clients.by={settings.by!r} is unknown; choose one of {', '.join(PARTITIONS)}")
    order = _by_id(manifest)
    if settings.by == "uneven":
        clients = _uneven(manifest.take(order), settings, seed, None if labelled is None else labelled[order])
    else:
        clients = PARTITIONS[settings.by](manifest.take(order), settings, seed)
    clients = {name: rows for name, rows in clients.items() if len(rows) >= max(settings.min_utterances, 1)}
    if settings.by in ("speaker", "k_speakers", "label") and settings.count is not None:
        if settings.count > len(clients):
            raise ValueError(
                f"{settings.count} clients were asked for, but only {len(clients)} have {settings.min_utterances} "
                "utterances or more: lower data.clients.count (null: all that have) or data.clients.min_utterances"
            )
        names = sorted(clients)
        keep = numpy_generator(seed, "partition", "count").permutation(len(names))[: settings.count]
        clients = {names[index]: clients[names[index]] for index in keep}
    if not clients:
        raise ValueError(f"no client has {settings.min_utterances} utterances: lower data.clients.min_utterances")
    most = settings.max_utterances
    for name, rows in clients.items():
        if most is not None and len(rows) > most:
            clients[name] = numpy_generator(seed, "partition", "max_utterances", name).permutation(rows)[:most]
    return {name: np.sort(order[clients[name]]) for name in sorted(clients)}


def split_by_speakers(
    manifest: Manifest,
    *,
    seed: int,
    share: float | None = None,
    hours: float | None = None,
    utterances: float | None = None,
    largest: bool = False,
    setting: str = "data.server",
) -> tuple[Rows, Rows]:
    """Divide the speakers between server and clients: (rows of the server, rows of the clients), both ascending.

    Each side gets at least one speaker. The server gets a `share` of the speakers (rounded), or speakers until it has
    `hours` or a share `utterances` of all utterances. Speakers are drawn at random; with `largest`, those with most
    speech (or most utterances) come first (the warm-up of Gao et al., 2022). A ValueError names `setting`.
    """
    if sum(amount is not None for amount in (share, hours, utterances)) != 1:
        raise ValueError(
            "the server's part is given by share, hours or utterances: set exactly one of them in data.server"
        )
    names, codes = _codes(manifest, "speaker")
    if len(names) < 2:
        raise ValueError(f"{setting}: a division by speakers needs two speakers or more; the manifest has {len(names)}")
    sizes = _seconds(manifest, codes, len(names)) if utterances is None else np.bincount(codes, minlength=len(names))
    order = (
        np.argsort(-sizes, kind="stable")
        if largest
        else numpy_generator(seed, "split_by_speakers").permutation(len(names))
    )
    total = np.cumsum(sizes[order])
    if share is not None:
        count = min(max(round(share * len(names)), 1), len(names) - 1)
    elif utterances is not None:
        count = min(int(np.searchsorted(total, utterances * total[-1])) + 1, len(names) - 1)
    else:
        assert hours is not None
        count = int(np.searchsorted(total, hours * 3600)) + 1
        if hours <= 0 or count >= len(names):
            raise ValueError(
                f"{hours} h for the server leave no speaker to the clients or none to the server: "
                f"the corpus has {total[-1] / 3600:.2f} h. Change data.server.hours"
            )
    server = np.isin(codes, order[:count])
    return np.flatnonzero(server), np.flatnonzero(~server)


def _by_speaker(manifest: Manifest, settings: PartitionSettings, seed: int) -> Clients:
    names, codes = _codes(manifest, "speaker")
    return dict(zip(names, _groups(codes, len(names)), strict=True))


def _by_k_speakers(manifest: Manifest, settings: PartitionSettings, seed: int) -> Clients:
    names, codes = _codes(manifest, "speaker")
    place = np.empty(len(names), np.int64)
    drawn = numpy_generator(seed, "partition", "k_speakers").permutation(len(names))
    place[drawn] = np.arange(len(names)) // settings.speakers_per_client
    return _numbered(place[codes], int(place.max(initial=-1)) + 1)


def _silos(manifest: Manifest, settings: PartitionSettings, seed: int) -> Clients:
    names, codes = _codes(manifest, "speaker")
    count = _count(settings, len(names), "speakers")
    spoken = _seconds(manifest, codes, len(names))
    totals, place = np.zeros(count), np.empty(len(names), np.int64)
    shuffled = numpy_generator(seed, "partition", "silos").permutation(len(names))
    # The speakers with most speech first, each to the client with least.
    for speaker in shuffled[np.argsort(-spoken[shuffled], kind="stable")]:
        place[speaker] = np.argmin(totals)
        totals[place[speaker]] += spoken[speaker]
    return _numbered(place[codes], count)


def _iid(manifest: Manifest, settings: PartitionSettings, seed: int) -> Clients:
    count = _count(settings, len(manifest), "utterances")
    place = numpy_generator(seed, "partition", "iid").permutation(np.arange(len(manifest)) % count)
    return _numbered(place, count)


def _uneven(manifest: Manifest, settings: PartitionSettings, seed: int, labelled: Mask | None = None) -> Clients:
    count = _count(settings, len(manifest), "utterances")
    place, generator = np.empty(len(manifest), np.int64), numpy_generator(seed, "partition", "uneven", "unlabelled")
    known = np.zeros(len(manifest), bool) if labelled is None else labelled
    place[~known] = dealt(int((~known).sum()), count, settings.spread, generator)
    generator = numpy_generator(seed, "partition", "uneven", "labelled")
    if settings.labels is None:
        place[known] = dealt(int(known.sum()), count, settings.spread, generator)
    elif labelled is None:
        raise ValueError("data.clients.labels chooses labels for the labelled part: set data.labelled.share")
    elif manifest.table["label"].null_count:
        raise ValueError(
            "data.clients.labels needs a label for every utterance, and this corpus has utterances without: remove it"
        )
    else:
        names, codes = _codes(manifest.take(np.flatnonzero(known)), "label")
        place[known] = dealt_by_label(
            codes, len(names), count, settings.labels, settings.labels_spread, settings.spread, generator
        )
    return _numbered(place, count)


def _dirichlet(manifest: Manifest, settings: PartitionSettings, seed: int) -> Clients:
    if manifest.table["label"].null_count:
        raise ValueError(
            "a Dirichlet partition needs a label for every utterance, and this corpus has utterances without: "
            "name the column of the labels in data.options, or divide by speaker, k_speakers or iid"
        )
    names, codes = _codes(manifest, "label")
    units = _codes(manifest, "speaker")[1] if settings.whole_speakers else np.arange(len(manifest))
    firsts = np.unique(units, return_index=True)[1]  # the first row of each unit
    count = _count(settings, len(firsts), "speakers" if settings.whole_speakers else "utterances")
    units_of_label = _groups(codes[firsts], len(names))
    for attempt in range(100):
        generator = numpy_generator(seed, "partition", "dirichlet", attempt)
        dealt_to = np.empty(len(firsts), np.int64)
        for some in units_of_label:
            shares = generator.dirichlet(np.full(count, settings.alpha))
            ends = np.rint(np.cumsum(shares) * len(some)).astype(np.int64)
            clients = np.searchsorted(ends, np.arange(len(some)), side="right")
            dealt_to[generator.permutation(some)] = np.minimum(clients, count - 1)
        place = dealt_to[units]
        if np.bincount(place, minlength=count).min() >= settings.min_utterances:
            return _numbered(place, count)
    raise ValueError(
        f"100 draws from Dirichlet({settings.alpha}) left some of {count} clients fewer than {settings.min_utterances} "
        "utterances: raise alpha, or lower count or min_utterances (0 drops empty clients)"
    )


def _by_label(manifest: Manifest, settings: PartitionSettings, seed: int) -> Clients:
    if manifest.table["label"].null_count:
        raise ValueError(
            "a partition by label needs a label for every utterance, and this corpus has utterances without: "
            "name the column of the labels in data.options"
        )
    names, codes = _codes(manifest, "label")
    return dict(zip(names, _groups(codes, len(names)), strict=True))


def _pooled(manifest: Manifest, settings: PartitionSettings, seed: int) -> Clients:
    for name, idle in (("count", None), ("min_utterances", 1), ("max_utterances", None)):
        if getattr(settings, name) != idle:
            raise ValueError(
                f"data.clients.{name} chooses among clients; data.clients.by={settings.by} makes a single client: "
                "remove it"
            )
    return {"all": np.arange(len(manifest))}


PARTITIONS = {
    "speaker": _by_speaker,
    "k_speakers": _by_k_speakers,
    "silos": _silos,
    "iid": _iid,
    "uneven": _uneven,
    "dirichlet": _dirichlet,
    "label": _by_label,
    "pooled": _pooled,
    "server": _pooled,
}


def _count(settings: PartitionSettings, available: int, what: str) -> int:
    if settings.count is None:
        raise ValueError(f"data.clients.by={settings.by} needs data.clients.count, the number of clients")
    if settings.count > available:
        raise ValueError(
            f"{available} {what} cannot be divided among {settings.count} clients: lower data.clients.count"
        )
    return settings.count


def _by_id(manifest: Manifest) -> Rows:
    order: npt.NDArray[np.uint64] = pc.sort_indices(manifest.table["utterance"]).to_numpy()
    return order.astype(np.int64)


def _codes(manifest: Manifest, column: str) -> tuple[list[str], Rows]:
    """The distinct values of a column, sorted, and for every row the position of its value in them."""
    encoded = pc.dictionary_encode(manifest.table[column].combine_chunks())
    rank = pc.rank(encoded.dictionary, sort_keys="ascending").to_numpy().astype(np.int64) - 1
    names = encoded.dictionary.take(pa.array(np.argsort(rank)))
    return names.to_pylist(), rank[encoded.indices.to_numpy()]


def _groups(codes: Rows, count: int) -> list[Rows]:
    """The rows of every code 0..count - 1, ascending."""
    ends = np.cumsum(np.bincount(codes, minlength=count))
    return np.split(np.argsort(codes, kind="stable"), ends[:-1])


def _numbered(place: Rows, count: int) -> Clients:
    """Clients named by their numbers: client-0000, ... `place`: the client of each row."""
    width = max(4, len(str(count - 1)))
    return {f"client-{index:0{width}d}": rows for index, rows in enumerate(_groups(place, count))}


def _seconds(manifest: Manifest, codes: Rows, count: int) -> npt.NDArray[np.float64]:
    """Seconds of speech of every code.

    Sums of whole microseconds are exact, so the order of the rows does not change a bit.
    """
    microseconds = np.rint(manifest.array("seconds") * 1e6)
    return np.bincount(codes, weights=microseconds, minlength=count) / 1e6
