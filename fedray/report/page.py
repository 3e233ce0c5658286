"""The files of a report: a self-contained HTML page, Markdown, CSV, and figures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import fedray
from fedray.core.ranges import is_number
from fedray.report import clips, errors, further, tables, translations
from fedray.report.canvas import COLOURS, Drawing
from fedray.report.comparison import Comparison
from fedray.report.drawing import draw as drawing
from fedray.report.drawing import inversions
from fedray.report.errors import Errors
from fedray.report.figures import (
    Audits,
    Bars,
    Curves,
    Fairness,
    Figure,
    Inversions,
    Labels,
    Participation,
    Personal,
    Phases,
    Scatter,
    Speakers,
    Staleness,
    Trend,
    Trips,
)
from fedray.report.groups import REPEATS
from fedray.report.recorded import Run
from fedray.report.words import kept, minus, number, of_clients, title
from fedray.runs.folder import RunFolder
from fedray.runs.scores import first_model

SPEAKERS = 8  # listed among the worst, and as many among the best
FAILURES = 20  # shown per run
# Drawn over the rounds; personal scores are those of a round's cohort, on dev and on what clients hold out.
SCORED = ("dev/wer", "dev/accuracy", "dev/bleu", "personal/accuracy", "personal/own_accuracy")
ENVIRONMENT = Environment(
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    loader=PackageLoader("fedray.report", ""),
)
STYLESHEET = Markup(files("fedray.report").joinpath("page.css").read_text(encoding="utf-8"))
ENVIRONMENT.filters |= {"minus": minus, "number": number, "metric": title, "kept": kept}


@dataclass(frozen=True)
class Audio:
    """Utterance -> data URI of its clip, and the reason why clips are missing."""

    clips: Mapping[str, str]
    why_not: str = ""


def save(comparison: Comparison, out: RunFolder) -> str:
    """Write all files, each atomically; returns the path or URI of report.html."""
    drawn, missing = draw(comparison)
    for name, found in drawn.items():
        _write(out, f"figures/{name}.svg", found.svg.encode())
        _write(out, f"figures/{name}.png", found.png)
    texts = {
        "report.csv": tables.as_csv(comparison),
        "report.md": markdown(comparison, drawn),
        "report.html": html(comparison, drawn, missing),
    }
    for name, text in texts.items():
        _write(out, name, text.encode())
    return out.storage.shown("report.html")


def draw(comparison: Comparison) -> tuple[dict[str, Drawing], dict[str, str]]:
    """Figures by file name, and the reasons why others cannot be drawn yet, also by file name.

    Raises ValueError for such a figure if all runs are finished.
    """
    drawn, missing = {}, {}
    for name, figure in named([part for whole in figures(comparison) for part in whole.parts()]).items():
        try:
            drawn[name] = drawing.draw(figure, comparison)
        except ValueError as error:
            if all(run.finished for run in comparison.runs):
                raise
            missing[name] = str(error)
    return drawn, missing


def html(comparison: Comparison, drawn: Mapping[str, Drawing], missing: Mapping[str, str]) -> str:
    """The HTML page; the template escapes all text."""
    run, split = focus(comparison)
    found = errors_of(run, split)
    first = run or comparison.runs[0]
    return ENVIRONMENT.get_template("page.html").render(
        report=comparison,
        sentences=tables.sentences(comparison),
        tables=[*further.main(comparison), *further.tables(comparison)],
        figures=[Markup(found.inline(name)) for name, found in drawn.items()],
        missing=missing,
        run=first,
        first_model=first_model(first.config),
        errors=found,
        speakers=found.speakers if found else (),
        listed=SPEAKERS,
        audio=audio(first, found, comparison.audio) if found is not None else Audio({}),
        failures=[(run.name, run.failures[:FAILURES], len(run.failures)) for run in comparison.runs if run.failures],
        configuration=yaml.safe_dump(dict(first.config), sort_keys=False, allow_unicode=True),
        style=STYLESHEET,
        version=fedray.__version__,
    )


def markdown(comparison: Comparison, drawn: Mapping[str, Drawing]) -> str:
    """The report as Markdown: title, question, sentences, tables, figures."""
    parts = [
        f"# {comparison.title}",
        comparison.sweep.question,
        "\n".join(f"- {sentence}" for sentence in tables.sentences(comparison)),
    ]
    parts += [tables.markdown(tables.rows(comparison)), comparison.caption]
    for table in further.tables(comparison):
        parts += [f"## {table.title}", tables.markdown(table.rows), table.caption]
    parts += [f"![{found.words}](figures/{name}.png)" for name, found in drawn.items()]
    return "\n\n".join(filter(None, parts)) + "\n"


def focus(comparison: Comparison) -> tuple[Run | None, str]:
    """The run whose errors the page shows (the first of the best group) and the split; None if nothing was scored."""
    split = comparison.metric.rpartition("/")[0]
    for group in comparison.ranked():
        for run in group.finished:
            if run.predictions is not None:
                splits = run.predictions.splits
                return run, split if split in splits else ("test" if "test" in splits else splits[0])
    return None, split


def errors_of(run: Run | None, split: str, worst: int = 12) -> Errors | None:
    """The errors of a run on a split, with its `worst` worst utterances; None if the run was not scored."""
    if run is None or run.predictions is None:
        return None
    if run.predictions.kind == "translation":
        return translations.analyse(run.predictions, split, worst)
    return errors.analyse(run.predictions, split, worst=worst)


def audio(run: Run, found: Errors, folders: Sequence[Path]) -> Audio:
    """Clips of the worst utterances, from audio in these folders; the page says why if there are none."""
    try:
        heard = clips.embedded(run.folder, [utterance.id for utterance in found.worst], folders)
    except clips.NotNamed as error:
        return Audio({}, f"No audio: {error}.")
    except (ValueError, OSError) as error:
        return Audio({}, f"No audio: the corpus of this run is not at hand on this machine ({error}).")
    missing = len(found.worst) - len(heard)
    return Audio(heard, f"No audio for {missing} utterances: the corpus no longer has them." if missing else "")


def figures(comparison: Comparison) -> list[Figure]:
    """The figures of the sweep, then standard figures of the runs' other metrics."""
    curves = [figure for figure in comparison.figures if isinstance(figure, Curves)]
    drawn = {(name, figure.over) for figure in curves for name in figure.metrics}
    standard = [
        figure
        for figure in _standard(comparison)
        if not (isinstance(figure, Curves) and drawn.issuperset((name, figure.over) for name in figure.metrics))
    ]
    return list(dict.fromkeys([*comparison.figures, *_comparisons(comparison), *standard]))


def _comparisons(comparison: Comparison) -> list[Figure]:
    if len(comparison.groups) < 2 or not any(group.score(comparison.metric) is not None for group in comparison.groups):
        return []
    swept = [key for key in comparison.sweep.keys if key not in REPEATS]
    numbers = [key for key in swept if all(is_number(run.settings.get(key)) for run in comparison.runs)]
    if len(comparison.groups) > len(COLOURS) and swept:
        return [Scatter(tuple(swept), comparison.metric)]
    if len(numbers) == 1 and len(swept) <= 2 and not comparison.figures:
        others = [key for key in swept if key not in numbers]
        return [Trend(numbers[0], comparison.metric, others[0] if others else None)]
    return [Bars(comparison.metric)]


def _standard(comparison: Comparison) -> list[Figure]:
    has = {name for run in comparison.runs for row in run.rows for name, value in row.items() if value is not None}
    alone = len(comparison.groups) == 1
    found: list[Figure] = [Curves((name,), baseline="seed") for name in SCORED if name in has]
    axes = {"hours": "virtual/hours"}
    if not alone:  # what one method needs fewer of, another may need more of
        axes |= {"device_hours": "virtual/device_hours", "energy": "virtual/energy_wh"}
        axes |= {"visits": "clients/ok", "steps": "train/steps", "bytes": "traffic/total_bytes"}
    counted = [axis for axis, name in axes.items() if name in has]
    found += [replace(curves, over=axis) for curves in found for axis in counted if isinstance(curves, Curves)]
    losses = tuple(name for name in ("train/loss", "server/loss") if name in has)
    found += [Curves(losses)] if alone and losses else [Curves((name,)) for name in losses]
    found += [Curves((name,)) for name in ("train/label_wer", "train/label_bleu") if name in has]
    rates = tuple(sorted(name for name in has if name.startswith("lr/")))
    found += [Curves(rates[:1] if not alone else rates, title="Learning rate" if alone else "")] if rates else []
    kinds = ("traffic/total_bytes", "traffic/formula_bytes") if alone else ("traffic/total_bytes",)
    traffic = tuple(name for name in kinds if name in has)
    found += [Curves(traffic, title="Traffic, up and down")] if traffic else []
    spent = {"privacy/epsilon": "Epsilon spent", "privacy/snr": "Signal to noise"}
    found += [Curves((name,), title=words) for name, words in spent.items() if name in has]
    clipped = tuple(sorted(name for name in has if name.partition("|")[0] == "privacy/clipped"))
    if clipped and (len(clipped) == 1 or alone and len(clipped) <= len(COLOURS)):
        found.append(Curves(clipped, title="Share of clients clipped"))
    if any(
        run.predictions is not None and run.predictions.counts("best", comparison.metric) for run in comparison.runs
    ):
        found.append(Speakers(comparison.metric))
    if of_clients(comparison.metric) and any(run.personal is not None for run in comparison.runs):
        found.append(Personal(comparison.metric))
    if any(run.audit is not None for run in comparison.runs):
        found.append(Audits())
    if any(map(inversions.there, comparison.runs)):
        found.append(Inversions())
    if "time/round_s" in has:
        found.append(Phases())
    if any(run.clients is not None and len(run.clients) for run in comparison.runs):
        found.append(Participation())
    return found + _of_devices(comparison)


def _of_devices(comparison: Comparison) -> list[Figure]:
    """Figures of runs with devices."""
    found: list[Figure] = []
    by_label = [run for run in comparison.runs if run.settings.get("devices.by") == "label"]
    if errors.of_labels(by_label, comparison.metric, "best"):
        found.append(Labels(comparison.metric))
    if any(run.trips is not None and len(run.trips) for run in comparison.runs):
        found.append(Trips())
    if any(row.get("virtual/staleness_most") for run in comparison.runs for row in run.rows):
        found.append(Staleness())
    if any(run.devices for run in comparison.runs):
        found.append(Fairness())
    return found


def named(figures: Sequence[Figure]) -> dict[str, Figure]:
    """Figures by file name: the kind and the metric; another figure of the same name gets a number."""
    found: dict[str, Figure] = {}
    times: Counter[str] = Counter()
    for figure in figures:
        values = figure.described()
        metrics = [values["metric"]] if "metric" in values else values.get("metrics", [])[:1]
        over = [values["over"]] if values.get("over", "round") != "round" else []
        name = re.sub(r"[^\w.]+|_", "-", "-".join([values["kind"], *metrics, *over]))
        times[name] += 1
        found[name if times[name] == 1 else f"{name}-{times[name]}"] = figure
    return found


def _write(out: RunFolder, name: str, data: bytes) -> None:
    out.export(name, lambda path: path.write_bytes(data))
