"""The tables of a page: scores, what runs spend until they reach a target, devices, audits, bounds by layer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from fedray.report import by_group, devices, privacy, targets
from fedray.report import tables as scores
from fedray.report.comparison import Comparison
from fedray.report.groups import Group
from fedray.report.tables import fitted
from fedray.report.words import number, with_unit

SPENT = {  # column title -> metric and the factor on its value
    "virtual hours": ("virtual/hours", 1),
    "device hours": ("virtual/device_hours", 1),
    "energy (Wh)": ("virtual/energy_wh", 1),
    "wasted time (%)": ("virtual/wasted_share", 100),
    "staleness": ("virtual/staleness", 1),
}


@dataclass(frozen=True)
class Further:
    """A table with a row per group: column title -> cell."""

    title: str
    rows: Sequence[dict[str, str]]
    caption: str
    most: Collection[str]  # columns that even a narrow terminal shows

    def on(self, console: Console) -> Table:
        """The table to print with rich, no wider than the console if possible."""
        names = [name for name in self.rows[0] if name]
        spare = [name for name in names if name not in self.most]
        return fitted(self.title, self.caption, self.rows, names, spare, console)


def main(comparison: Comparison) -> list[Further]:
    """The table of the compared score, and one of all other scores: both fit on a page that a single one would not."""
    rows, others = scores.rows(comparison), [with_unit(name) for name in scores.scores(comparison)]
    first = [{name: cell for name, cell in row.items() if name not in others} for row in rows]
    found = [Further("", first, comparison.caption, ())]
    if others:
        rest = [{name: cell for name, cell in row.items() if name in ("", *others)} for row in rows]
        found.append(Further("Other scores", rest, f"{comparison.start('')} → best round, as above.".capitalize(), ()))
    return found


def tables(comparison: Comparison) -> list[Further]:
    """The tables of a report besides that of scores, as far as the runs have numbers for them."""
    found, target = [], comparison.target
    if target is not None:
        rows = targets.rows(comparison.groups, target, comparison.baseline)
        hours = [name for name in rows[0] if "virtual hours" in name]
        found.append(
            Further(f"Until {target.words}", rows, targets.note(comparison.groups, target, comparison.baseline), hours)
        )
    with_devices = [group for group in comparison.groups if group.score("virtual/hours") is not None]
    if with_devices:
        caption = (
            "Means over the runs of a row. Wasted is the time of devices whose update does not count. Staleness is how "
            "many rounds the model of an update was behind. Jain's index of how often the update of each client "
            "counted is 1 where all clients are equal, and 1 / clients where it is always the same one."
        )
        found.append(Further("Devices", [_row(group) for group in with_devices], caption, ("virtual hours",)))
    by_group_rows = by_group.rows(comparison.groups, comparison.metric)
    found += [Further("By group of speakers", by_group_rows, by_group.WORDS, ("worst",))] * bool(by_group_rows)
    spent = privacy.spent(comparison.groups)
    audited, layers = privacy.audits(comparison.groups), privacy.layers(comparison.groups)
    found += [Further("Privacy", spent, privacy.SPENT, ("epsilon",))] * bool(spent)
    found += [Further("Audit", audited, privacy.AUDIT, ("AUROC",))] * bool(audited)
    observed = privacy.updates(comparison.groups)
    found += [Further("What updates give away", observed, privacy.UPDATES, ("AUROC",))] * bool(observed)
    inverted = privacy.inversions(comparison.groups)
    found += [Further("What updates give away of speech", inverted, privacy.INVERSIONS, ("likeness",))] * bool(inverted)
    found += [Further("Bounds by layer", layers, privacy.LAYERS, ("bound", "clipped (%)"))] * bool(layers)
    return found


def _row(group: Group) -> dict[str, str]:
    cells = {"": group.label}
    for name, (metric, times) in SPENT.items():
        value = group.score(metric)
        cells[name] = "" if value is None else number(times * value)
    found = devices.ends(group).values()
    whole = sum(each.trips.total() for each in found)
    for end in devices.ENDS:
        cells[f"{devices.WORDS[end]} (%)"] = (
            number(100 * sum(each.trips[end] for each in found) / whole) if whole else ""
        )
    fair = devices.fairness(group)
    cells["Jain's index"] = number(fair.jain) if fair is not None else ""
    return cells
