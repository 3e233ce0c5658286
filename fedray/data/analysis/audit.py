"""Audit audio against text: decoded lengths, levels, characters a second, and what occurs in several parts.

Utterances to look at are those that would make a run wrong, and outliers that may be sound.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fedray.core.parallel import Parallel
from fedray.core.seeds import numpy_generator
from fedray.data.analysis.inspection import Parts, Problem
from fedray.data.analysis.listening import FILES, Heard, chosen, equal_files, format_of, listen
from fedray.data.features.recording import TOLERANCE
from fedray.data.manifest import Manifest, Mask, Rows

Values = npt.NDArray[np.float64]
Found = tuple[list[tuple[str, str]], list[Problem]]  # rows of the table, problems

TRAINING = ("server", "clients", "train")
ENOUGH = 0.01  # larger shares of what was looked at make a run wrong
LOOSE = 0.02  # share of a file's length by which a length may differ, besides TOLERANCE
FASTEST = 60.0  # characters a second; nobody speaks half as fast
LEAST = 8  # characters of an utterance whose rate is judged
FAR, FAR_CLIENT = 3.0, 1.6  # ratios to the median from which a rate may be an outlier
DEVIATIONS = 6.0  # so many deviations from the median (of logarithms) are an outlier
CLIPPED = 0.001  # larger shares of samples at full scale are clipping
SILENT = 1e-8  # power below which an utterance is silent: -80 dB
SHOWN = 5  # names of a finding


@dataclass(frozen=True)
class Audit:
    """All parts of a federation in one manifest, and what was heard of it."""

    manifest: Manifest
    names: tuple[str, ...]  # of the parts
    part_of: Rows  # the number of each row's part
    owners: Rows  # the number of the client of each row; -1: none
    clients: tuple[str, ...]
    heard: tuple[Heard, ...]
    stops: bool  # whether audio that cannot be used ends a run
    equal: Mapping[str, str]  # path -> a name for the contents of its file, where another file has the same

    @classmethod
    def of(
        cls,
        parts: Parts,
        clients: Mapping[str, Rows],
        parallel: Parallel,
        seed: int,
        sample_rate: int,
        broken: Collection[str] = (),
        stops: bool = True,
    ) -> Audit:
        """Decode a sample and compare files. `broken`: files that are known to be unusable, and are left out."""
        names, manifest = tuple(parts), Manifest.concat(list(parts.values()))
        part_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts.values()])
        owners = np.full(len(manifest), -1)
        start = int(np.searchsorted(part_of, names.index("clients"))) if "clients" in names else 0
        for number, rows in enumerate(clients.values()):
            owners[start + rows] = number
        wanted = [one for one in chosen(manifest, part_of, seed) if one.path not in broken]
        heard = tuple(listen(wanted, sample_rate, parallel))
        paths = pc.unique(manifest.table["path"]).to_pylist()
        order = numpy_generator(seed, "compared").permutation(len(paths))[:FILES]
        equal = equal_files(paths[place] for place in order.tolist())
        return cls(manifest, names, part_of, owners, tuple(clients), heard, stops, equal)

    @cached_property
    def rates(self) -> Values:
        """Characters a second of each utterance; NaN without a text of `LEAST` characters."""
        counts = pc.utf8_length(self.manifest.table["text"].combine_chunks()).fill_null(0).to_numpy()
        with np.errstate(divide="ignore"):
            rates: Values = np.where(counts >= LEAST, counts / self.manifest.array("seconds"), np.nan)
        return rates

    @cached_property
    def client_rates(self) -> Values:
        """Characters a second of each client, the median over its utterances; NaN without any."""
        known = (self.owners >= 0) & ~np.isnan(self.rates)
        order = np.flatnonzero(known)[np.argsort(self.owners[known], kind="stable")]
        found = np.full(len(self.clients), np.nan)
        mine, starts = np.unique(self.owners[order], return_index=True)
        for owner, rows in zip(mine.tolist(), np.split(order, starts)[1:], strict=True):
            found[owner] = np.median(self.rates[rows])
        return found

    @property
    def sound(self) -> list[Heard]:
        """The utterances that were decoded without a problem."""
        return [one for one in self.heard if one.problem is None]

    def findings(self) -> Found:
        """The rows of the table, and the problems."""
        rows: list[tuple[str, str]] = []
        problems: list[Problem] = []
        for part in (self._lengths, self._levels, self._rates, self._copies, self._sentences):
            more, found = part()
            rows, problems = rows + more, problems + found
        return rows, problems

    def _ids(self, rows: Rows | list[int]) -> tuple[str, ...]:
        column = self.manifest.table["utterance"]
        return tuple(column[int(row)].as_py() for row in list(rows)[:SHOWN])

    def _lengths(self) -> Found:
        """Header, manifest and decoded length by format."""
        problems, rows = [], []
        if broken := [one for one in self.heard if one.problem is not None]:
            text = f"{len(broken):,} of {len(self.heard):,} decoded utterances cannot be used: {broken[0].problem}"
            problems.append(Problem(text, stops=self.stops, names=self._ids([one.row for one in broken])))
        groups = defaultdict[str, list[Heard]](list)
        for one in self.files:
            assert one.shape is not None
            kind = format_of(self.manifest[one.row].path)
            groups[f"{kind}, {one.shape.sample_rate:,} Hz, {one.shape.channels} ch."].append(one)
        for kind, mine in sorted(groups.items()):
            ends = self.ends(np.array([one.row for one in mine]))
            decoded = np.array([one.decoded for one in mine])
            headers = np.array([np.nan if one.header is None else one.header for one in mine])
            wrong = int((np.abs(headers - decoded) > np.maximum(TOLERANCE, LOOSE * decoded)).sum())
            less = int((decoded - ends > np.maximum(TOLERANCE, LOOSE * decoded)).sum())
            stated = "states none" if np.isnan(headers).all() else f"{np.nansum(headers):,.2f} s"
            told = f"{len(mine):,} files: manifest {ends.sum():,.2f} s, header {stated}, decoded {decoded.sum():,.2f} s"
            told += f"; {wrong:,} headers are wrong, and decoding decides" if wrong else ""
            told += f"; of {less:,} the manifest uses a part" if less else ""
            rows.append((kind, told))
        return rows, problems

    @cached_property
    def files(self) -> list[Heard]:
        """One utterance of each file that was decoded to its end."""
        whole = [one for one in self.sound if one.decoded is not None]
        return list({self.manifest[one.row].path: one for one in reversed(whole)}.values())[::-1]

    def ends(self, rows: Rows) -> Values:
        """Seconds at which the last utterance ends in the file of each of these rows."""
        table = self.manifest.table
        paths = table["path"].take(pa.array(rows))
        ends = table.select(["path"]).append_column("end", pc.add(table["offset"], table["seconds"]))
        last = ends.filter(pc.is_in(table["path"], value_set=paths)).group_by("path").aggregate([("end", "max")])
        places = pc.index_in(paths, value_set=last["path"].combine_chunks())
        found: Values = last["end_max"].take(places.combine_chunks()).to_numpy()
        return found

    def _levels(self) -> Found:
        """Clipped and silent utterances."""
        if not (heard := self.sound):
            return [], []
        seconds = self.manifest.array("seconds")
        rates = np.array([one.shape.sample_rate if one.shape else 1 for one in heard])
        row = np.array([one.row for one in heard])
        share = np.array([one.clipped for one in heard]) / np.maximum(1, seconds[row] * rates)
        power = np.array([one.power for one in heard])
        clipped, silent = row[share > CLIPPED], row[power < SILENT]
        loud = 10 * np.log10(np.maximum(power, 1e-12))
        low, middle, high = np.quantile(loud, (0.05, 0.5, 0.95))
        told = (
            f"{low:.0f} / {middle:.0f} / {high:.0f} dB (5 %, median, 95 % of {len(heard):,}); {len(clipped):,} clipped"
        )
        rows = [("level", f"{told}, {len(silent):,} silent")]
        problems = []
        if len(silent):
            text = f"{len(silent):,} of {len(heard):,} decoded utterances are silent. Leave them out"
            problems.append(Problem(text, wrong=len(silent) > ENOUGH * len(heard), names=self._ids(silent)))
        if len(clipped) > ENOUGH * len(heard):
            text = (
                f"{len(clipped):,} of {len(heard):,} decoded utterances are clipped: more than {100 * CLIPPED:g} % of"
            )
            worst = row[np.argsort(-share, kind="stable")]
            problems.append(Problem(f"{text} their samples are at full scale", names=self._ids(worst)))
        return rows, problems

    def _rates(self) -> Found:
        """Characters a second, of utterances and of clients."""
        known = np.flatnonzero(~np.isnan(self.rates))
        if not len(known):
            return [], []
        rates, problems = self.rates[known], []
        low, middle, high = np.quantile(rates, (0.01, 0.5, 0.99))
        rows = [("characters a second", f"{low:.1f} / {middle:.1f} / {high:.1f} (1 %, median, 99 % of {len(known):,})")]
        odd = outlying(rates, FAR)
        fast = known[rates > FASTEST]
        if len(fast):
            text = (
                f"{len(fast):,} of {len(known):,} utterances have more than {FASTEST:.0f} characters a second, which "
            )
            text += "nobody can say: their texts or lengths are wrong. Correct them, or leave them out"
            problems.append(Problem(text, wrong=len(fast) > ENOUGH * len(known), names=self._ids(fast)))
        if len(rest := np.setdiff1d(known[odd], fast)):
            far = np.abs(np.log(self.rates[rest] / middle))
            text = (
                f"{len(rest):,} of {len(known):,} utterances have {FAR:g} times more or fewer characters a second than"
            )
            text += f" the median, {middle:.1f}: do text and audio belong together?"
            problems.append(Problem(text, names=self._ids(rest[np.argsort(-far, kind="stable")])))
        clients = np.flatnonzero(~np.isnan(self.client_rates))
        if len(clients) > 2:
            values = self.client_rates[clients]
            rows.append(
                (
                    "of clients",
                    f"{values.min():.1f} / {np.median(values):.1f} / {values.max():.1f} (slowest, median, fastest)",
                )
            )
            if (far_off := outlying(values, FAR_CLIENT)).any():
                named = [(self.clients[clients[place]], values[place]) for place in np.flatnonzero(far_off).tolist()]
                some = ", ".join(f"{name} {value:.1f}" for name, value in named[:SHOWN])
                text = (
                    f"{len(named):,} of {len(clients):,} clients have unusual characters a second (the median client "
                )
                text += f"{np.median(values):.1f}): {some}"
                problems.append(Problem(text, names=tuple(name for name, _ in named[:SHOWN])))
        return rows, problems

    def _copies(self) -> Found:
        """The same audio in several utterances: by file, by the bytes of files, and by decoded samples."""
        paths = self.manifest.table["path"].to_pylist()
        places = zip(self.manifest.array("offset").tolist(), self.manifest.array("seconds").tolist(), strict=True)
        keys: dict[object, list[int]] = defaultdict(list)
        for row, (path, place) in enumerate(zip(paths, places, strict=True)):
            keys[(self.equal.get(path, path), *place)].append(row)
        for one in self.sound:
            if one.power >= SILENT:  # silence is the same everywhere
                keys[one.content].append(one.row)
        groups = {tuple(sorted(rows)) for rows in keys.values() if len(rows) > 1}
        shared = Counter[str]()
        leaks: dict[int, int] = {}
        for rows in sorted(groups):
            parts = sorted({int(self.part_of[row]) for row in rows})
            names = [self.names[part] for part in parts]
            shared[f"in {' and '.join(names)}" if names[1:] else f"within {names[0]}"] += 1
            training = [row for row in rows if self.names[self.part_of[row]] in TRAINING]
            if training:
                leaks |= {row: training[0] for row in rows if self.names[self.part_of[row]] not in TRAINING}
        files = "all files" if len(set(paths)) <= FILES else f"{FILES:,} files"
        counts = ", ".join(f"{count:,} {where}" for where, count in shared.most_common(4)) or "none"
        problems = []
        scored = sum(name not in TRAINING for name in (self.names[part] for part in self.part_of.tolist()))
        if leaks:
            text = f"{len(leaks):,} of {scored:,} utterances that are scored have the same audio as one for training: "
            text += "scores would be too good. Leave them out of one of the two"
            pair = self._ids([row for both in leaks.items() for row in both])
            problems.append(Problem(text, wrong=len(leaks) > ENOUGH * scored, names=pair))
        return [("the same audio twice", f"{counts} ({len(self.sound):,} decoded, {files} compared)")], problems

    def _sentences(self) -> Found:
        """Sentences (of several words) of training in what is scored: usual where speakers read the same ones."""
        texts = self.manifest.table["text"].combine_chunks()
        texts = pc.if_else(pc.match_substring(texts, " "), texts, pa.scalar(None, texts.type))
        training = np.isin(self.part_of, [place for place, name in enumerate(self.names) if name in TRAINING])
        known = pc.unique(texts.filter(pa.array(training)).drop_null())
        rows = []
        for place, name in enumerate(self.names):
            mine = texts.filter(pa.array(self.part_of == place)).drop_null()
            if name not in TRAINING and len(mine):
                share = 100 * pc.mean(pc.is_in(mine, value_set=known)).as_py()
                rows.append((f"sentences of {name}", f"{share:.1f} % of its utterances say a sentence of training"))
        return rows, []


def outlying(values: Values, ratio: float) -> Mask:
    """Which values are `DEVIATIONS` robust deviations from the median, by logarithm, and a factor of `ratio`."""
    logs = np.log(values)
    far = np.abs(logs - np.median(logs))
    found: Mask = far > max(np.log(ratio), DEVIATIONS * 1.4826 * float(np.median(far)))
    return found
