"""The files of a report: a page that needs nothing but itself, Markdown, CSV, and the figures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import yaml
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

import fedray
from fedray.engine.folder import RunFolder
from fedray.report import clips, drawing, errors, tables
from fedray.report.canvas import COLOURS, Drawing
from fedray.report.errors import Errors
from fedray.report.figures import Bars, Curves, Figure, Own, Participation, Phases, Scatter, Speakers, Trend
from fedray.report.groups import SEEDS
from fedray.report.recorded import Run
from fedray.report.words import minus, number, title

if TYPE_CHECKING:
    from fedray.report.report import Report

SPEAKERS = 8  # listed, of the worst and of the best
FAILURES = 20  # shown, of a run
ENVIRONMENT = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
STYLESHEET = Markup(files("fedray.report").joinpath("page.css").read_text(encoding="utf-8"))
ENVIRONMENT.filters |= {"minus": minus, "number": number, "metric": title}


@dataclass(frozen=True)
class Audio:
    """Clips by utterance, or why there are none."""

    clips: Mapping[str, str]
    why_not: str = ""


def save(report: Report, out: RunFolder) -> str:
    """Write all files; each appears whole. Where report.html is."""
    drawn, missing = draw(report)
    for name, found in drawn.items():
        _write(out, f"figures/{name}.svg", found.svg.encode())
        _write(out, f"figures/{name}.png", found.png)
    texts = {"report.csv": tables.as_csv(report), "report.md": markdown(report, drawn), "report.html": html(report, drawn, missing)}
    for name, text in texts.items():
        _write(out, name, text.encode())
    return out.storage.shown("report.html")


def draw(report: Report) -> tuple[dict[str, Drawing], dict[str, str]]:
    """The figures by file name, and what cannot be drawn yet with the reason; a ValueError when there is nothing more to come."""
    drawn, missing = {}, {}
    for name, figure in named(figures(report)).items():
        try:
            drawn[name] = drawing.draw(figure, report)
        except ValueError as error:
            if all(run.finished for run in report.runs):
                raise
            missing[name] = str(error)
    return drawn, missing


def html(report: Report, drawn: Mapping[str, Drawing], missing: Mapping[str, str]) -> str:
    """The page; every text in it is escaped."""
    run, split = focus(report)
    found = errors.analyse(run.predictions, split) if run is not None and run.predictions is not None else None
    first = run or report.runs[0]
    template = ENVIRONMENT.from_string(files("fedray.report").joinpath("page.html").read_text(encoding="utf-8"))
    return template.render(
        report=report,
        sentences=tables.sentences(report),
        rows=tables.rows(report),
        figures={name: (found.words, Markup(found.inline(name))) for name, found in drawn.items()},
        missing=missing,
        run=first,
        errors=found,
        speakers=found.speakers if found else (),
        listed=SPEAKERS,
        audio=audio(first, found) if found is not None else Audio({}),
        failures=[(run.name, list(run.failures[:FAILURES]), len(run.failures)) for run in report.runs if run.failures],
        configuration=yaml.safe_dump(dict(first.config), sort_keys=False, allow_unicode=True),
        style=STYLESHEET,
        version=fedray.__version__,
    )


def markdown(report: Report, drawn: Mapping[str, Drawing]) -> str:
    parts = [f"# {report.title}", report.asked.question, "\n".join(f"- {sentence}" for sentence in tables.sentences(report))]
    parts += [tables.markdown(tables.rows(report)), report.caption]
    parts += [f"![{found.words}](figures/{name}.png)" for name, found in drawn.items()]
    return "\n\n".join(filter(None, parts)) + "\n"


def focus(report: Report) -> tuple[Run | None, str]:
    """The run whose errors are shown, the first of the best group, and the split; None: nothing was scored yet."""
    split = report.metric.rpartition("/")[0]
    for group in report.ranked():
        for run in group.finished:
            if run.predictions is not None:
                splits = run.predictions.splits
                return run, split if split in splits else ("test" if "test" in splits else splits[0])
    return None, split


def audio(run: Run, found: Errors) -> Audio:
    """Of the worst utterances. A report is as good without: what is in the way is said on the page."""
    try:
        heard = clips.embedded(run.folder, [utterance.id for utterance in found.worst])
    except (ValueError, OSError) as error:
        return Audio({}, f"No audio: the corpus of this run is not at hand on this machine ({error}).")
    missing = len(found.worst) - len(heard)
    return Audio(heard, f"No audio of {missing} utterances: the corpus has them no more." if missing else "")


def figures(report: Report) -> list[Figure]:
    """Those that the sweep asks for, then the usual ones that there are numbers for and that show something else."""
    asked = {name for figure in report.figures if isinstance(figure, Curves) for name in figure.metrics}
    usual = [figure for figure in _usual(report) if not (isinstance(figure, Curves) and asked.issuperset(figure.metrics))]
    return list(dict.fromkeys([*report.figures, *_comparisons(report), *usual]))


def _comparisons(report: Report) -> list[Figure]:
    if len(report.groups) < 2 or not any(group.score(report.metric) is not None for group in report.groups):
        return []
    swept = [key for key in report.asked.keys if key not in SEEDS]
    numbers = [key for key in swept if all(_numeric(run.settings.get(key)) for run in report.runs)]
    if len(report.groups) > len(COLOURS) and swept:
        return [Scatter(tuple(swept), report.metric)]
    if len(numbers) == 1 and len(swept) <= 2 and not report.figures:
        others = [key for key in swept if key not in numbers]
        return [Trend(numbers[0], report.metric, others[0] if others else None)]
    return [Bars(report.metric)]


def _usual(report: Report) -> list[Figure]:
    has = {name for run in report.runs for row in run.rows for name, value in row.items() if value is not None}
    alone = len(report.groups) == 1
    found: list[Figure] = [Curves((name,), baseline="seed") for name in ("dev/wer", "dev/accuracy") if name in has]
    losses = tuple(name for name in ("train/loss", "server/loss") if name in has)
    found += [Curves(losses)] if alone and losses else [Curves((name,)) for name in losses]
    found += [Curves((name,)) for name in ("train/label_wer",) if name in has]
    rates = tuple(sorted(name for name in has if name.startswith("lr/")))
    found += [Curves(rates[:1] if not alone else rates, title="Learning rate" if alone else "")] if rates else []
    traffic = tuple(name for name in ("traffic/total_bytes", "traffic/formula_bytes") if name in has and (alone or "total" in name))
    found += [Curves(traffic, title="Traffic, up and down")] if traffic else []
    if any(run.predictions is not None and run.predictions.counts("best", report.metric) for run in report.runs):
        found.append(Speakers(report.metric))
    if report.metric.startswith("own/") and any(run.own is not None for run in report.runs):
        found.append(Own(report.metric))
    found += [Phases()] if "time/round_s" in has else []
    return found + ([Participation()] if any(run.clients is not None and len(run.clients) for run in report.runs) else [])


def named(figures: Sequence[Figure]) -> dict[str, Figure]:
    """A file name each: the kind, and the metric that is drawn; the second of that name has a number."""
    found: dict[str, Figure] = {}
    times: Counter[str] = Counter()
    for figure in figures:
        values = figure.described()
        metrics = [values["metric"]] if "metric" in values else values.get("metrics", [])[:1]
        name = re.sub(r"[^\w.]+|_", "-", "-".join([values["kind"], *metrics]))
        times[name] += 1
        found[name if times[name] == 1 else f"{name}-{times[name]}"] = figure
    return found


def _numeric(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _write(out: RunFolder, name: str, data: bytes) -> None:
    out.export(name, lambda path: path.write_bytes(data))
