"""Inspect a federation's manifests before anything is computed: sizes of the clients, problems in the data.

The functions work on whole columns, so a million rows take seconds. The audio check is slower, so it reads only a
sample of the files.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fedray.core.parallel import Parallel
from fedray.core.seeds import numpy_generator
from fedray.core.texts import no_file
from fedray.data.features import audio
from fedray.data.features.packed import file_of
from fedray.data.manifest import Manifest, Rows
from fedray.data.text.tokenisers import named, untokenisable

HEADERS = 2000  # audio files whose headers are read; in a larger corpus, this many random files
SHARD = 500  # files in a work item

Parts = Mapping[str, Manifest]  # "server", "clients", "dev", "test", ... -> its manifest
TEXTS = {"text": "transcript", "translation": "translation"}  # what problems call the contents of a column


@dataclass(frozen=True)
class Problem:
    """Something wrong with the data, in words."""

    text: str
    stops: bool = False  # whether a run ends with an error, now or at the first client with this problem
    wrong: bool = False  # whether a run would end well, with wrong results
    names: tuple[str, ...] = ()  # utterances or clients to look at


@dataclass(frozen=True)
class Population:
    """How much data each client has, in the order of the clients' ids."""

    utterances: Rows  # [clients]
    seconds: npt.NDArray[np.float64]  # [clients]
    label_distance: float | None  # see `label_distance`; None without labels

    @property
    def tenth(self) -> int:
        """The number of clients that are 10 % of all, at least one."""
        return max(1, round(len(self.utterances) / 10))

    @property
    def largest_tenth(self) -> float:
        """Share of all utterances that the `tenth` largest clients have."""
        return float(np.sort(self.utterances)[-self.tenth :].sum() / self.utterances.sum())


def population(manifest: Manifest, rows: Mapping[str, Rows]) -> Population:
    """Count the data of the clients (id -> rows of the manifest)."""
    sizes = np.array([len(mine) for mine in rows.values()], np.int64)
    owners = np.repeat(np.arange(len(rows)), sizes)
    everyone = np.concatenate(list(rows.values()))
    weights = manifest.array("seconds")[everyone]
    seconds = np.bincount(owners, weights=weights, minlength=len(rows)).astype(np.float64)
    labels = manifest.table["label"].combine_chunks().take(pa.array(everyone))
    codes = pc.dictionary_encode(labels).indices.fill_null(-1).to_numpy()
    return Population(sizes, seconds, label_distance(owners, codes))


def label_distance(owners: Rows, labels: npt.NDArray[np.integer]) -> float | None:
    """The mean of `label_distances`; None without any labels."""
    _, distances = label_distances(owners, labels)
    return float(np.mean(distances)) if len(distances) else None


def label_distances(owners: Rows, labels: npt.NDArray[np.integer]) -> tuple[Rows, npt.NDArray[np.float64]]:
    """Return (clients, total variation distance of each client's label distribution from the global one).

    A distance is 0 if all clients have the same distribution, and near 1 if no two clients share a label.

    `owners`: the client of each utterance, int64 [utterances]. `labels`: its label, or -1 for none. Clients without
    labels are left out.
    """
    owners, labels = owners[labels >= 0], labels[labels >= 0]
    if not len(labels):
        return np.empty(0, np.int64), np.empty(0)
    everywhere = np.bincount(labels) / len(labels)
    pairs, counts = np.unique(owners * len(everywhere) + labels, return_counts=True)
    owner, label = np.divmod(pairs, len(everywhere))
    share = counts / np.bincount(owners)[owner]
    # The distance is 1/2 sum |p - g| over all labels. A label that the client lacks adds g, so only the labels
    # that it has need a term.
    excess = np.abs(share - everywhere[label]) - everywhere[label]
    clients = np.unique(owner)
    return clients, 0.5 * (1 + np.bincount(owner, weights=excess)[clients])


def words(manifest: Manifest, column: str = "text") -> pa.ChunkedArray:
    """All words of all texts in the column, split at spaces."""
    cut = pc.list_flatten(pc.split_pattern(manifest.table[column].drop_null(), " "))
    return cut.filter(pc.not_equal(cut, ""))


def characters(manifest: Manifest, column: str = "text") -> set[str]:
    """All characters of all texts in the column."""
    blank = {" "} if pc.any(pc.match_substring(manifest.table[column], " ")).as_py() else set()
    return blank.union(*pc.unique(words(manifest, column)).to_pylist())


def duplicate_ids(parts: Parts) -> list[Problem]:
    """Find utterance ids that occur in several rows."""
    counts = pc.value_counts(Manifest.concat(list(parts.values())).table["utterance"])
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    if not len(repeated):
        return []
    return [Problem(f"{len(repeated):,} utterance ids repeat: {_some(repeated.to_pylist())}. Make them unique")]


def texts(
    parts: Parts, source: str, as_characters: bool, left_out: bool = False, column: str = "text"
) -> list[Problem]:
    """Find missing and empty texts in the column (text | translation), and characters that have no token.

    `source`: the part whose texts the tokens are made from. `left_out`: whether training skips characters without a
    token.
    """
    problems, what = [], TEXTS[column]
    for name, manifest in parts.items():
        written = manifest.table[column]
        empty = pc.equal(pc.utf8_trim_whitespace(written.fill_null("")), "")
        if count := pc.sum(empty).as_py():
            told = f"{name}: {count:,} of {len(manifest):,} utterances have no {what}"
            if written.null_count < len(manifest):
                first = first_of(manifest, empty, column)
                problems.append(Problem(f"{told}, first {first}. Complete or drop them", stops=name == source))
            elif name == source:
                remedy = f"tokens are made of {what}s. Name their column in data.options"
                problems.append(Problem(f"{told}, and {remedy}", stops=True))
            else:
                problems.append(
                    Problem(f"{told}: they cannot be scored, and only algorithms with pseudo-labels can train on them")
                )
    known = characters(parts[source], column)
    odd = untokenisable(known)
    if odd and as_characters:
        where = _holding(parts[source], odd, column)
        problems.append(
            Problem(f"{source}: {where} {named(odd)}, which cannot be tokens. Replace these characters", stops=True)
        )
    for name, manifest in parts.items():
        if unknown := sorted(characters(manifest, column) - known):
            listed = named(unknown[:10]) + (f" and {len(unknown) - 10} more" if len(unknown) > 10 else "")
            effect = "no model can recognise them"
            if name == "clients" and left_out:
                effect = "training leaves them out"
            elif name == "clients":
                effect = "clients that train on them fail (or set task.unknown=leave_out)"
            where = _holding(manifest, unknown, column)
            problems.append(
                Problem(
                    f"{name}: {where} characters that no {what} of {source} has: {listed}. Normalise them: {effect}"
                )
            )
    return problems


def shared_speakers(parts: Parts) -> list[Problem]:
    """Find speakers that occur in two parts."""
    speakers = {name: set(pc.unique(manifest.table["speaker"]).to_pylist()) for name, manifest in parts.items()}
    names, problems = list(parts), []
    for position, one in enumerate(names):
        for other in names[position + 1 :]:
            if both := speakers[one] & speakers[other]:
                shared = f"{len(both):,} of the {len(speakers[other]):,} speakers of {other}"
                problems.append(Problem(f"{shared} speak in {one} too: {_some(sorted(both))}"))
    return problems


def unknown_speakers(parts: Parts, by: str) -> list[Problem]:
    """Report what follows if a corpus names no speakers. `by`: `data.clients.by`."""
    if not parts or not Manifest.concat(list(parts.values())).anonymous:
        return []
    told = "the corpus names no speakers, so each recording counts as one"
    problems = [
        Problem(
            f"{told}: a person may speak both in training and in test, which makes the scores too optimistic. Name the "
            "speakers in data.options if anything tells them apart (a column, a part of the path)"
        )
    ]
    if by in ("speaker", "k_speakers", "silos"):
        problems.append(
            Problem(
                f"data.clients.by={by} divides speakers, and {told}. To deal the recordings to N clients, set "
                "data.clients to {by: iid, count: N}, or by: uneven or dirichlet"
            )
        )
    return problems


def broken_audio(
    parts: Parts, parallel: Parallel, seed: int, stops: bool, sample_rate: int
) -> tuple[list[Problem], str, set[str]]:
    """Find missing and unreadable files. Also returns a sentence that says how many were checked, and their paths.

    The check looks for every file, and reads the headers of a random sample of `HEADERS` files. `stops`: whether broken
    audio ends a run. `sample_rate`: Hz of the features.
    """
    table = Manifest.concat(list(parts.values())).table
    ends = table.select(["path"]).append_column("end", pc.add(table["offset"], table["seconds"]))
    needed = ends.group_by("path", use_threads=False).aggregate([("end", "max")])
    paths: list[str] = needed["path"].to_pylist()
    opened = np.zeros(len(paths), bool)
    opened[numpy_generator(seed, "audio check").permutation(len(paths))[:HEADERS]] = True
    items = list(zip(paths, needed["end_max"].to_pylist(), opened.tolist(), strict=True))
    shards = [items[start : start + SHARD] for start in range(0, len(items), SHARD)]
    check = functools.partial(_check, sample_rate=sample_rate)
    checked = list(parallel(check, shards, "checking audio"))
    found = [problem for broken, _ in checked for problem in broken]
    headers = [header for _, opened in checked for header in opened]
    averaged = [path for path, shape in headers if shape.channels > 1]
    rates = Counter(shape.sample_rate for _, shape in headers)
    missing = [path for path, reason in found if reason == "missing"]
    damaged = [f"{path} ({reason})" for path, reason in found if reason != "missing"]
    remedy = "Restore them, or drop their rows" + (
        ", or set data.skip_broken=true" if stops else "; data.skip_broken leaves them out"
    )
    problems = []
    if missing:
        problems.append(Problem(f"{len(missing):,} audio files are missing: {_some(missing)}. {remedy}", stops))
    if damaged:
        problems.append(Problem(f"{len(damaged):,} audio files cannot be used: {_some(damaged)}. {remedy}", stops))
    if averaged:
        words = f"{len(averaged):,} audio files have several channels, which are averaged: {_some(averaged)}"
        problems.append(Problem(f"{words}. Save each channel to a file of its own if they hold different speakers"))
    if len(rates) > 1:
        words = ", ".join(f"{count:,} of {rate:,} Hz" for rate, count in sorted(rates.items()))
        low = "; files of lower rates lack the highest frequencies" if min(rates) < sample_rate else ""
        problems.append(
            Problem(f"audio files differ in sampling rate: {words}. All are resampled to {sample_rate:,} Hz{low}")
        )
    if len(paths) <= HEADERS:
        return problems, f"the headers of all {len(paths):,} audio files were read", {path for path, _ in found}
    return (
        problems,
        f"all {len(paths):,} audio files were looked for, and the headers of {HEADERS:,} random ones were read",
        {path for path, _ in found},
    )


def _check(
    items: Iterable[tuple[str, float, bool]], sample_rate: int
) -> tuple[list[tuple[str, str]], list[tuple[str, audio.Shape]]]:
    """Check files, given as (path, seconds that it must have, whether to open it).

    Returns (path, what is wrong) for the broken ones, and (path, header) for the others that were opened.
    """
    found, headers = [], []
    for path, end, opened in items:
        if (problem := no_file(file_of(path))) is not None:
            found.append((path, problem))
        elif opened:
            try:
                headers.append((path, audio.check(path, end, sample_rate)))
            except audio.AudioError as error:
                found.append((path, error.reason))
    return found, headers


def _holding(manifest: Manifest, wanted: Sequence[str], column: str) -> str:
    """The beginning of a sentence: how many texts of the column hold one of these characters, and the first of them."""
    pattern = "[" + "".join(f"\\x{{{ord(c):x}}}" for c in wanted) + "]"
    mask = pc.match_substring_regex(manifest.table[column].fill_null(""), pattern)
    first = first_of(manifest, mask, column)
    return f"{pc.sum(mask).as_py():,} of {len(manifest):,} {TEXTS[column]}s (first {first}) hold"


def first_of(manifest: Manifest, mask: pa.ChunkedArray, column: str) -> str:
    """The first row that the mask holds, for a message: its id and its text."""
    row = manifest[pc.index(mask, True).as_py()]
    text = getattr(row, column)
    return f"{row.utterance}: {text!r}" if text else row.utterance


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
