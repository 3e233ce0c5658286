"""The table of a report: a row a group for people, a row a run for programs."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from fedray.core.metrics import ALONE
from fedray.report.groups import SEEDS, Group
from fedray.report.recorded import Run
from fedray.report.words import duration, in_percent, minus, number, span, title, with_unit

if TYPE_CHECKING:
    from fedray.report.report import Report

HEADER = 12  # characters on a line
SHOWN = ("wer", "accuracy", "bleu", "macro_f1")


def scores(runs: Sequence[Run], metric: str) -> list[str]:
    """The metrics that the table shows beside the report's own: error rates, accuracies and the like."""
    names = dict.fromkeys(name for run in runs for name in run.best if name.rpartition("/")[2].startswith(SHOWN))
    return [name for name in names if name != metric and not name.endswith(ALONE)]


def rows(report: Report) -> list[dict[str, str]]:
    """Title -> cell; a row a group."""
    return [_row(report, group) for group in report.groups]


def _row(report: Report, group: Group) -> dict[str, str]:
    done, runs = len(group.finished), group.runs
    cells = {"": group.label, "runs": str(len(runs)) if done == len(runs) else f"{done} of {len(runs)} finished"}
    cells["rounds"] = span(run.rounds for run in runs)
    if done < len(runs):
        cells["rounds"] += f" of {span(run.config.get('rounds', run.rounds) for run in runs)}"
    cells["best round"] = span(run.best["round"] for run in runs if "round" in run.best)
    own = report.metric
    before, after = group.score(own, "seed"), group.score(own)
    cells[with_unit(own)] = _both(before, after, own)
    cells["change"] = minus(report.changes[group] or _plain_change(before, after, own))
    if report.baseline is not None:
        cells[f"against {report.baseline.label}"] = minus(report.against[group] or "")
    if report.reference is not None:
        cells[f"share of {report.reference.label} (%)"] = minus(report.recovered[group] or "")
    cells["traffic (GB)"] = number(group.score("traffic/total_bytes"), "traffic/total_bytes")
    cells["time"] = duration(run.results["time/total_s"] for run in runs if run.results and "time/total_s" in run.results)
    cells["failed clients"] = span(run.results.get("clients/failed", 0) if run.results else len(run.failures) for run in runs)
    return cells | {with_unit(name): _both(group.score(name, "seed"), group.score(name), name) for name in scores(report.runs, own)}


def _both(before: float | None, after: float | None, metric: str) -> str:
    return " → ".join(number(value, metric) for value in (before, after) if value is not None)


def _plain_change(before: float | None, after: float | None, metric: str) -> str:
    """Without an interval: what was not scored by utterance cannot be drawn from."""
    if before is None or after is None:
        return ""
    if in_percent(metric):
        return f"{after - before:+.1f} points"
    return f"{100 * (after - before) / before:+.1f} %" if before else ""


def rich_table(report: Report, console: Console) -> Table:
    """As wide as the console: what does not fit is left out, further scores first, and named."""
    cells = rows(report)
    names = list(cells[0])
    spare = ["best round", "rounds", "time", "traffic (GB)"]
    spare += ["failed clients"] if all(row["failed clients"] == "0" for row in cells) else []
    spare += [with_unit(metric) for metric in scores(report.runs, report.metric)]
    short = ["runs", with_unit(report.metric), "failed clients", *spare]
    left_out: list[str] = []
    while True:
        words = f" No room here for {', '.join(left_out)}: see report.html." if left_out else ""
        table = Table(title=escape(report.title), title_justify="left", caption=escape(report.caption + words), caption_justify="left")
        for name in names:
            header = textwrap.fill(name, HEADER, break_long_words=False)
            table.add_column(escape(header), justify="right" if name else "left", no_wrap=name in short, overflow="fold")
        for row in cells:
            table.add_row(*(escape(row[name]) for name in names))
        if not spare or Measurement.get(console, console.options.update(width=10_000), table).maximum <= console.width:
            return table
        left_out.insert(0, spare.pop())
        names.remove(left_out[0])


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown; columns are the keys of the first row, numbers get one digit after the point."""
    columns = list(rows[0])
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1)]
    lines += [[f"{row[name]:.1f}" if isinstance(row[name], float) else str(row[name]) for name in columns] for row in rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def as_csv(report: Report) -> str:
    """All numbers, a row a run: where it is, its group, what tells the groups apart, seeds, scores, totals, mean times a round."""
    lines = []
    keys = dict.fromkeys([*(key for group in report.groups for key in group.settings), *SEEDS])
    for group in report.groups:
        for run in group.runs:
            line: dict[str, Any] = {"run": run.name, "group": group.label, "finished": run.finished}
            line |= {key: run.settings.get(key) for key in keys} | {"rounds played": run.rounds, "best round": run.best.get("round")}
            line |= {f"seed model {name}": value for name, value in run.seed_model.items() if name != "round"}
            line |= {f"best {name}": value for name, value in run.best.items() if name != "round"}
            line |= {name: run.value(name) for name in run.metrics if name.startswith(("traffic/", "clients/", "time/", "engine/"))}
            lines.append(line)
    file = io.StringIO()
    writer = csv.DictWriter(file, list(dict.fromkeys(name for line in lines for name in line)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return file.getvalue()


def sentences(report: Report) -> list[str]:
    """What the numbers say, in words: the groups that are best and worst, or all if they are few."""
    scored = report.ranked()
    chosen = scored if len(scored) <= 6 else [*scored[:3], scored[-1]]
    return [_sentence(report, group) for group in report.groups if group in chosen]


def _sentence(report: Report, group: Group) -> str:
    metric = report.metric
    before, after, change = group.score(metric, "seed"), group.score(metric), report.changes[group]
    percent = " %" if in_percent(metric) else ""
    if before is None or after is None:
        return f"{group.label}: {title(metric)} {number(after, metric)}{percent}."
    moved = f"{title(metric)} from {number(before, metric)} to {number(after, metric)}{percent}"
    if change is None:
        return f"{group.label} takes the {moved}."
    numbers = f"({minus(change)})"
    if change.low <= 0 <= change.high:
        return f"{group.label} takes the {moved} {numbers}: no change that the test set could tell from none."
    more = f" Against {report.baseline.label}: {minus(against)}." if report.baseline and (against := report.against[group]) else ""
    share = report.recovered[group]
    if share is not None and report.reference is not None and group is not report.reference:
        more += f" That is {minus(share)} % of what {report.reference.label} gains."
    return f"{group.label} {'lowers' if change.mean < 0 else 'raises'} the {moved} {numbers}.{more}"
