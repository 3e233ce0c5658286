"""Counting and checking a federation's manifests before anything is computed: how even the clients are, and what is wrong with the data.

All of it works on whole columns, so that a million rows take seconds; only the look at the audio takes longer, and reads a sample.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedray.core.parallel import Parallel
from fedray.core.seeds import numpy_generator
from fedray.data import audio
from fedray.data.manifest import Manifest
from fedray.data.text import named, untokenisable

HEADERS = 2000  # audio files whose headers are read; of a larger corpus so many are drawn at random
SHARD = 500  # files a work item

Parts = Mapping[str, Manifest]  # "server", "clients", "dev", "test", ... -> its manifest


@dataclass(frozen=True)
class Problem:
    text: str
    stops: bool = False  # a run would end with an error, now or at the first client it concerns


@dataclass(frozen=True)
class Population:
    """The clients in the order of their ids."""

    utterances: np.ndarray  # int64 [clients]
    seconds: np.ndarray  # float64 [clients]
    label_distance: (
        float | None
    )  # mean over clients of the total variation between their labels and everybody's: 0 alike, towards 1 disjoint

    @property
    def largest_tenth(self) -> float:
        """The share of all utterances that the largest 10 % of the clients hold; 0.1 when all are alike."""
        count = max(1, round(len(self.utterances) / 10))
        return float(np.sort(self.utterances)[-count:].sum() / self.utterances.sum())


def population(manifest: Manifest, rows: Mapping[str, np.ndarray]) -> Population:
    """What the clients (id -> rows of the manifest) hold."""
    sizes = np.array([len(mine) for mine in rows.values()], np.int64)
    owners = np.repeat(np.arange(len(rows)), sizes)
    everyone = np.concatenate(list(rows.values()))
    seconds = np.bincount(owners, weights=manifest.array("seconds")[everyone], minlength=len(rows))
    labels = manifest.table["label"].combine_chunks().take(pa.array(everyone))
    codes = pc.dictionary_encode(labels).indices.fill_null(-1).to_numpy()
    return Population(sizes, seconds, label_distance(owners, codes))


def label_distance(owners: np.ndarray, labels: np.ndarray) -> float | None:
    """Mean total variation distance of clients' label distributions from the global one; label -1 is none. None without labels."""
    owners, labels = owners[labels >= 0], labels[labels >= 0]
    if not len(labels):
        return None
    everywhere = np.bincount(labels) / len(labels)
    pairs, counts = np.unique(owners * len(everywhere) + labels, return_counts=True)
    owner, label = np.divmod(pairs, len(everywhere))
    share = counts / np.bincount(owners)[owner]
    # 1/2 sum |p - g| over all labels; those that a client lacks add g each, so only the others need be walked through.
    excess = np.abs(share - everywhere[label]) - everywhere[label]
    return float(np.mean(0.5 * (1 + np.bincount(owner, weights=excess)[np.unique(owner)])))


def words(manifest: Manifest) -> pa.ChunkedArray:
    """All words of all transcripts, cut at blanks."""
    cut = pc.list_flatten(pc.split_pattern(manifest.table["text"].drop_null(), " "))
    return cut.filter(pc.not_equal(cut, ""))


def characters(manifest: Manifest) -> set[str]:
    """All characters of all transcripts."""
    blank = {" "} if pc.any(pc.match_substring(manifest.table["text"], " ")).as_py() else set()
    return blank.union(*pc.unique(words(manifest)).to_pylist())


def duplicate_ids(parts: Parts) -> list[Problem]:
    counts = pc.value_counts(Manifest.concat(list(parts.values())).table["utterance"])
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    if not len(repeated):
        return []
    return [Problem(f"{len(repeated):,} utterance ids stand in more than one row: {_some(repeated.to_pylist())}. Make them unique")]


def transcripts(parts: Parts, source: str, as_characters: bool, left_out: bool = False) -> list[Problem]:
    """Missing and empty transcripts, and characters that those of `source`, which the tokens are made of, do not have.

    `left_out`: whether training leaves such characters out.
    """
    problems = []
    for name, manifest in parts.items():
        texts = manifest.table["text"]
        empty = pc.equal(pc.utf8_trim_whitespace(texts.fill_null("")), "")
        if count := pc.sum(empty).as_py():
            what = f"{name}: {count:,} of {len(manifest):,} utterances have no transcript"
            if texts.null_count < len(manifest):
                problems.append(Problem(f"{what}, first {_first(manifest, empty)}. Complete or drop them", stops=name == source))
            elif name == source:
                problems.append(Problem(f"{what}, and tokens are made of them. Name their column in data.options", stops=True))
            else:
                problems.append(
                    Problem(f"{what}: they cannot be scored, and only algorithms that label speech themselves can train on them")
                )
    known = characters(parts[source])
    odd = untokenisable(known)
    if odd and as_characters:
        where = _holding(parts[source], odd)
        problems.append(Problem(f"{source}: {where} {named(odd)}, which cannot be tokens. Replace these characters", stops=True))
    for name, manifest in parts.items():
        if unknown := sorted(characters(manifest) - known):
            text = f"{name}: {_holding(manifest, unknown)} characters that the transcripts of {source} do not have: {named(unknown[:10])}"
            more = f" and {len(unknown) - 10} more" if len(unknown) > 10 else ""
            effect = "no model can get them right"
            if name == "clients":
                effect = "training leaves them out" if left_out else "clients that train on them fail (or set task.unknown=leave_out)"
            problems.append(Problem(f"{text}{more}. Normalise them: {effect}"))
    return problems


def shared_speakers(parts: Parts) -> list[Problem]:
    speakers = {name: set(pc.unique(manifest.table["speaker"]).to_pylist()) for name, manifest in parts.items()}
    names, problems = list(parts), []
    for position, one in enumerate(names):
        for other in names[position + 1 :]:
            if both := speakers[one] & speakers[other]:
                problems.append(
                    Problem(f"{len(both):,} of the {len(speakers[other]):,} speakers of {other} speak in {one} too: {_some(sorted(both))}")
                )
    return problems


def broken_audio(parts: Parts, parallel: Parallel, seed: int, stops: bool) -> tuple[list[Problem], str]:
    """Missing and unreadable files, and in words how many were looked at. Every file must be there; headers are read of a sample."""
    table = Manifest.concat(list(parts.values())).table
    ends = table.select(["path"]).append_column("end", pc.add(table["offset"], table["seconds"]))
    needed = ends.group_by("path", use_threads=False).aggregate([("end", "max")])
    paths, ends = needed["path"].to_pylist(), needed["end_max"].to_pylist()
    opened = np.zeros(len(paths), bool)
    opened[numpy_generator(seed, "audio check").permutation(len(paths))[:HEADERS]] = True
    items = list(zip(paths, ends, opened.tolist(), strict=True))
    shards = [items[start : start + SHARD] for start in range(0, len(items), SHARD)]
    found = [problem for shard in parallel(_check, shards, "checking audio") for problem in shard]
    missing = [path for path, reason in found if reason == "missing"]
    damaged = [f"{path} ({reason})" for path, reason in found if reason != "missing"]
    remedy = "Restore them, or drop their rows" + (", or set data.skip_broken=true" if stops else "; data.skip_broken leaves them out")
    problems = []
    if missing:
        problems.append(Problem(f"{len(missing):,} audio files are missing: {_some(missing)}. {remedy}", stops))
    if damaged:
        problems.append(Problem(f"{len(damaged):,} audio files cannot be used: {_some(damaged)}. {remedy}", stops))
    if len(paths) <= HEADERS:
        return problems, f"the headers of all {len(paths):,} audio files were read"
    return problems, f"all {len(paths):,} audio files were looked for, the headers of {HEADERS:,} of them, drawn at random, were read"


def _check(items: Iterable[tuple[str, float, bool]]) -> list[tuple[str, str]]:
    """(path, seconds it must hold, whether to open it) -> (path, what is wrong with it) where something is."""
    found = []
    for path, end, opened in items:
        if not os.path.isfile(path):
            found.append((path, "missing"))
        elif opened:
            try:
                audio.check(path, end)
            except audio.AudioError as problem:
                found.append((path, problem.reason))
    return found


def _holding(manifest: Manifest, wanted: Sequence[str]) -> str:
    """How many transcripts hold one of these characters, and which first, as the beginning of a sentence."""
    pattern = "[" + "".join(f"\\x{{{ord(c):x}}}" for c in wanted) + "]"
    mask = pc.match_substring_regex(manifest.table["text"].fill_null(""), pattern)
    return f"{pc.sum(mask).as_py():,} of {len(manifest):,} transcripts (first {_first(manifest, mask)}) hold"


def _first(manifest: Manifest, mask: pa.ChunkedArray) -> str:
    row = manifest[pc.index(mask, True).as_py()]
    return f"{row.utterance}: {row.text!r}" if row.text else row.utterance


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
