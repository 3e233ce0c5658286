"""Tables of a report: for people a row per group, for programs a row per run."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from fedray.core.metrics import ALONE
from fedray.core.texts import cell, rich_text
from fedray.report import privacy, targets
from fedray.report.comparison import Comparison
from fedray.report.effort import spent
from fedray.report.groups import REPEATS, Group
from fedray.report.recorded import Run
from fedray.report.words import duration, in_percent, in_points, minus, number, rising, span, title, with_unit
from fedray.runs.scores import INITIAL, first_model

HEADER = 12  # characters per line
SHOWN = ("wer", "accuracy", "bleu", "chrf", "macro_f1")


def scores(comparison: Comparison) -> list[str]:
    """The metrics that a table shows besides the compared one: a sweep's own, error rates, accuracies and the like."""
    metric, swept = comparison.metric, comparison.sweep.metric
    best = {
        name: name.rpartition("/")[2].removeprefix("plugin_").removeprefix("both_")
        for run in comparison.runs
        for name in run.best
    }
    names = [name for name, score in best.items() if score.startswith(SHOWN) or name == swept]
    found = [name for name in names if name != metric and not name.endswith(ALONE)]
    return sorted(found, key=lambda name: name != swept)


def rows(comparison: Comparison) -> list[dict[str, str]]:
    """Column title -> cell, for each group."""
    return [_row(comparison, group) for group in comparison.groups]


def _row(comparison: Comparison, group: Group) -> dict[str, str]:
    done, runs, metric = len(group.finished), group.runs, comparison.metric
    cells = {"": group.label, "runs": str(len(runs)) if done == len(runs) else f"{done} of {len(runs)} finished"}
    cells["rounds"] = span(run.rounds for run in runs)
    if done < len(runs):
        cells["rounds"] += f" of {span(run.config.get('rounds', run.rounds) for run in runs)}"
    cells["best round"] = span(run.best["round"] for run in runs if "round" in run.best)
    if short := sum(run.still_improving(metric) for run in runs):
        whose = "personal models " if any(run.of_cohorts(metric) for run in runs) else ""
        cells["best round"] += f", {f'{short} of {len(runs)} ' * (short < len(runs))}{whose}still improving"
    before, after = group.score(metric, "seed"), group.score(metric)
    cells[with_unit(metric)] = _scores(group, metric)
    cells["change"] = minus(comparison.changes[group] or _plain_change(before, after, metric))
    if comparison.baseline is not None:
        cells[f"against {comparison.baseline.label}"] = minus(comparison.against[group] or "")
    if comparison.reference is not None:
        cells[f"share of {comparison.reference.label} (%)"] = minus(comparison.recovered[group] or "")
    finished = [run.results for run in runs if run.results is not None]
    cells["traffic (GB)"] = number(group.score("traffic/total_bytes"), "traffic/total_bytes")
    cells["time"] = duration(results["time/total_s"] for results in finished if "time/total_s" in results)
    failed = (run.results.get("clients/failed", 0) if run.results else len(run.failures) for run in runs)
    cells["failed clients"] = span(failed)
    for name in scores(comparison):
        cells[with_unit(name)] = _scores(group, name)
    return cells


def _scores(group: Group, metric: str) -> str:
    """The first model's score and the best round's: `61.2 → 25.9 ± 7.5`, with the SD over several runs."""
    before, after, deviation = group.score(metric, "seed"), group.score(metric), group.deviation(metric)
    both = " → ".join(number(value, metric) for value in (before, after) if value is not None)
    return both if deviation is None else f"{both} ± {number(deviation, metric)}"


def _plain_change(before: float | None, after: float | None, metric: str) -> str:
    """The change without an interval, for a metric that predictions.tsv lacks."""
    if before is None or after is None:
        return ""
    if in_points(metric):
        return f"{after - before:+.1f} points"
    return f"{100 * (after - before) / before:+.1f} %" if before else ""


def rich_table(comparison: Comparison, console: Console) -> Table:
    """A table no wider than the console. It leaves out further scores first; its caption names what is left out."""
    cells = rows(comparison)
    spare = ["best round", "rounds", "time", "traffic (GB)"]
    spare += ["failed clients"] if all(row["failed clients"] == "0" for row in cells) else []
    spare += [with_unit(metric) for metric in scores(comparison)]
    short = ["runs", with_unit(comparison.metric), "failed clients", *spare]
    return fitted(comparison.title, comparison.caption, cells, short, spare, console)


def fitted(
    title: str,
    caption: str,
    cells: Sequence[Mapping[str, str]],
    short: Sequence[str],
    spare: Sequence[str],
    console: Console,
) -> Table:
    """A table no wider than the console if possible: it leaves out `spare` columns, the last one first.

    The cells of `short` columns stay on one line.
    """
    for kept in range(len(spare), -1, -1):
        table = _rich_table(title, caption, cells, short, spare[kept:])
        width = Measurement.get(console, console.options.update(width=10_000), table).maximum
        if width <= console.width:
            break
    return table


def _rich_table(
    title: str, caption: str, cells: Sequence[Mapping[str, str]], short: Sequence[str], left_out: Sequence[str]
) -> Table:
    words = f" No room here for {', '.join(left_out)}: see report.html." if left_out else ""
    below = rich_text(caption + words)
    table = Table(title=rich_text(title), title_justify="left", caption=below, caption_justify="left")
    names = [name for name in cells[0] if name not in left_out]
    for name in names:
        header = rich_text(textwrap.fill(name, HEADER, break_long_words=False))
        table.add_column(header, justify="right" if name else "left", no_wrap=name in short, overflow="fold")
    for row in cells:
        table.add_row(*(rich_text(row[name]) for name in names))
    return table


def markdown(rows: Sequence[Mapping[str, object]]) -> str:
    """A Markdown table; its columns are the keys of the first row, floats get one decimal place."""
    columns = list(rows[0])
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1)]
    for row in rows:
        values = [row[name] for name in columns]
        lines.append([f"{value:.1f}" if isinstance(value, float) else str(value) for value in values])
    return "\n".join(f"| {' | '.join(map(_markdown_cell, line))} |" for line in lines)


def _markdown_cell(text: str) -> str:
    """The text as one Markdown cell, without line breaks or HTML."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split("\n"))


def as_csv(comparison: Comparison) -> str:
    """A row per run: its name, group, settings, seeds, scores, totals, and means over the rounds."""
    lines, target = [], comparison.target
    keys = dict.fromkeys([*(key for group in comparison.groups for key in group.settings), *REPEATS])
    for group in comparison.groups:
        for run in group.runs:
            line: dict[str, object] = {"run": run.name, "group": group.label, "finished": run.finished}
            line |= {key: run.settings.get(key) for key in keys}
            line |= {"rounds done": run.rounds, "best round": run.best.get("round")}
            line |= {"still improving": run.still_improving(comparison.metric), "gradient steps": _steps(run)}
            line |= {f"seed model {name}": value for name, value in run.seed_model.items() if name != "round"}
            line |= {f"best {name}": value for name, value in run.best.items() if name != "round"}
            totals = ("traffic/", "clients/", "time/", "engine/", "virtual/")
            line |= {name: run.value(name) for name in run.metrics if name.startswith(totals)}
            line |= {
                f"privacy {name}": value for name, value in privacy.part(run, "privacy").items() if name != "rounds"
            }
            line |= targets.of_run(run, target) if target is not None else {}
            lines.append(line)
    file = io.StringIO()
    writer = csv.DictWriter(file, list(dict.fromkeys(name for line in lines for name in line)), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: cell(value) for name, value in line.items()} for line in lines)
    return file.getvalue()


def _steps(run: Run) -> float | None:
    """The gradient steps of a run; None if its rows do not record them."""
    steps = spent(run, "steps")
    return float(steps[-1]) if len(steps) and steps[-1] == steps[-1] else None


def sentences(comparison: Comparison) -> list[str]:
    """A sentence per group: all groups if there are few, else the best three and the worst.

    Then a sentence for each run that was resumed after something changed that its bits depend on, and for each whose
    nodes differ.
    """
    scored = comparison.ranked()
    chosen = scored if len(scored) <= 6 else [*scored[:3], scored[-1]]
    changed = [sentence for run in comparison.runs for sentence in _changed(run)]
    return [_sentence(comparison, group) for group in comparison.groups if group in chosen] + changed


def _changed(run: Run) -> Iterator[str]:
    for change in run.versions.get("changes", []):
        what = "; ".join(change["differences"])
        when = f"after round {change.get('after_round')}"
        yield f"{run.name} was resumed {when} although its bits depend on changes: {what}."
    if mixed := run.versions.get("mixed"):
        yield f"{run.name} ran on nodes that differ, so that a repetition may have other bits: {'; '.join(mixed)}."


def _sentence(comparison: Comparison, group: Group) -> str:
    metric, baseline, reference = comparison.metric, comparison.baseline, comparison.reference
    before, after, change = group.score(metric, "seed"), group.score(metric), comparison.changes[group]
    percent = " %" if in_percent(metric) else ""
    against = comparison.against[group]
    units = f"over {comparison.units}"
    more = f" Against {baseline.label}: {minus(against)} {units}." if baseline and against else ""
    if before is None or after is None:
        return f"{group.label}: {title(metric)} {number(after, metric)}{percent}.{more}"
    moved = f"{title(metric)} from {number(before, metric)} to {number(after, metric)}{percent}"
    if in_percent(metric) and not rising(metric) and max(before, after) >= 100:
        whose = "still" if after >= 100 else f"the {comparison.start(metric)} made"
        return f"{group.label} takes the {moved}: {whose} at least as many errors as there are words.{more}"
    if not metric.startswith("personal/") and all(first_model(run.config) == INITIAL for run in group.runs):
        return f"{group.label} reaches a {title(metric)} of {number(after, metric)}{percent} from random weights.{more}"
    if change is None:
        return f"{group.label} takes the {moved}."
    numbers = f"({minus(change)} {units})"
    if change.low <= 0 <= change.high:
        return f"{group.label} takes the {moved} {numbers}: no significant change on this test set."
    share = comparison.recovered[group]
    if share is not None and reference is not None and group is not reference:
        more += f" That is {minus(share)} % of what {reference.label} gains."
    return f"{group.label} {'lowers' if change.mean < 0 else 'raises'} the {moved} {numbers}.{more}"
