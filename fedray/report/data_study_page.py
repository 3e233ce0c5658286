"""The report of a data study: tables and figures of the acoustic differences between clients in two federations."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from matplotlib.figure import Figure as Canvas

import fedray
from fedray.core.texts import cell
from fedray.data.analysis.acoustics import MEASURES, UNITS
from fedray.data.analysis.differences import Sounds, Spread, picture, purity, spread
from fedray.report import canvas
from fedray.report.canvas import COLOURS, WIDTH, Drawing
from fedray.report.page import ENVIRONMENT, STYLESHEET
from fedray.report.tables import markdown
from fedray.storage.files import write_whole

Counts = npt.NDArray[np.int64]  # [clients]
STATISTICS = {"mean": "mean", "between": "SD between", "within": "SD of the SDs within", "kurtosis": "excess kurtosis"}
QUANTILES = {"fewest": 0.0, "lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75, "most": 1.0}
BINS = 30
NAMED = 10  # utterances that could not be measured, listed per federation


@dataclass(frozen=True)
class Federation:
    """One of a study's two federations; `described` names its corpus and sample in words."""

    name: str
    described: str
    utterances: Counts  # of each client
    sounds: Sounds
    spreads: Mapping[str, Spread]
    purity: float
    chance: float  # the purity after a random assignment of the utterances to clients

    @classmethod
    def of(cls, name: str, described: str, utterances: Counts, sounds: Sounds, seed: int) -> Federation:
        """Measure a federation's sounds. `seed`: for the draws and the chance level of purity."""
        shuffled = replace(sounds, clients=np.random.default_rng(seed).permutation(sounds.clients))
        found = {measure: spread(sounds, measure) for measure in MEASURES}
        return cls(name, described, utterances, sounds, found, purity(sounds, seed), purity(shuffled, seed))


@dataclass(frozen=True)
class DataStudy:
    """Two measured federations, and the sentences and tables that compare them."""

    one: Federation
    other: Federation
    embedding: str  # the name of the speaker embedding
    seed: int

    @property
    def sides(self) -> tuple[Federation, Federation]:
        return self.one, self.other

    @property
    def title(self) -> str:
        return f"{self.one.name} beside {self.other.name}"

    def amounts(self) -> list[dict[str, str]]:
        """A row per federation: the number of clients, and how many utterances they have."""
        return [
            {
                "federation": side.name,
                "clients": f"{len(side.utterances):,}",
                "utterances": f"{side.utterances.sum():,}",
            }
            | {words: f"{np.quantile(side.utterances, at):,.0f}" for words, at in QUANTILES.items()}
            for side in self.sides
        ]

    def rows(self) -> list[dict[str, str]]:
        """A row per measure and statistic, a column per federation."""
        return [
            {"measure": named(measure), "over the clients": words}
            | {side.name: digits(getattr(side.spreads[measure], key)) for side in self.sides}
            for measure in MEASURES
            for key, words in STATISTICS.items()
        ]

    def purities(self) -> list[dict[str, str]]:
        """A row per federation: how well clusters of its sounds match its clients, and the chance level."""
        return [
            {
                "federation": side.name,
                "clients": f"{side.sounds.population:,}",
                "utterances": f"{len(side.sounds.clients):,}",
                "purity": digits(side.purity),
                "by chance": digits(side.chance),
            }
            for side in self.sides
        ]

    def sentences(self) -> list[str]:
        """The findings of the tables in sentences."""
        said = []
        for words, key in (("Between clients", "between"), ("Within a client", "within")):
            one, other = ({measure: getattr(side.spreads[measure], key) for measure in MEASURES} for side in self.sides)
            wider = {self.one.name: [name for name in MEASURES if one[name] > other[name]]}
            wider[self.other.name] = [name for name in MEASURES if other[name] > one[name]]
            halves = [f"{name} varies more in {listed(measures)}" for name, measures in wider.items() if measures]
            said += [f"{words}, {'; '.join(halves)}."] if halves else []
        gains = {side.name: side.purity - side.chance for side in self.sides}
        shown = " and ".join(f"{digits(gain)} ({name})" for name, gain in gains.items())
        easier = max(gains, key=gains.__getitem__)
        alike = len({digits(gain) for gain in gains.values()}) == 1
        words = "equally easy to distinguish" if alike else f"easier to distinguish in {easier}"
        return [*said, f"Clients are {words}: purity above chance is {shown}."]


def save(study: DataStudy, out: Path) -> None:
    """Write report.html, report.md, report.csv and figures/ to the folder `out`, each file atomically."""
    with canvas.style():
        drawn = {figure.__name__: Drawing.of(figure(study)) for figure in (samples, means, clusters)}
    contents = {f"figures/{name}.svg": found.svg.encode() for name, found in drawn.items()}
    contents |= {f"figures/{name}.png": found.png for name, found in drawn.items()}
    contents |= {"report.csv": as_csv(study).encode(), "report.md": as_markdown(study, drawn).encode()}
    template = ENVIRONMENT.get_template("data_study.html")
    figures = {name: (found.words, Markup(found.inline(name))) for name, found in drawn.items()}
    page = template.render(study=study, figures=figures, named=NAMED, style=STYLESHEET, version=fedray.__version__)
    for name, content in (contents | {"report.html": page.encode()}).items():
        write_whole(out / name, content)


def as_markdown(study: DataStudy, drawn: Mapping[str, Drawing]) -> str:
    """The study as Markdown, with links to its figures."""
    parts = [f"# {study.title}", "\n".join(f"- {sentence}" for sentence in study.sentences())]
    parts += [
        "\n".join(f"- {side.name}: {side.described}" for side in study.sides),
        markdown(study.amounts()),
        markdown(study.rows()),
        markdown(study.purities()),
    ]
    parts += [f"![{found.words}](figures/{name}.png)" for name, found in drawn.items()]
    return "\n\n".join(parts) + "\n"


def as_csv(study: DataStudy) -> str:
    """A row per federation, client and measure: mean and SD over the client's utterances, and how many have a value."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["federation", "client", "measure", "utterances", "mean", "sd"])
    for side in study.sides:
        for client in np.unique(side.sounds.clients):
            for place, measure in enumerate(MEASURES):
                values = side.sounds.values[side.sounds.clients == client, place]
                values = values[~np.isnan(values)]
                mean = values.mean() if len(values) else math.nan
                sd = values.std(ddof=1) if len(values) > 1 else math.nan
                writer.writerow([cell(side.name), cell(side.sounds.names[client]), measure, len(values), mean, sd])
    return file.getvalue()


def samples(study: DataStudy) -> Canvas:
    """The paper's figure 2: the share of clients by number of utterances."""
    drawn = Canvas(figsize=(2 * WIDTH, 3), layout="constrained")
    drawn.suptitle("Clients by their number of utterances", x=0.01, ha="left", weight="bold")
    axes = drawn.add_subplot()
    most = max(side.utterances.max() for side in study.sides)
    edges = np.unique(np.geomspace(1, most + 1, BINS + 1).round()).tolist()
    for side, colour in zip(study.sides, COLOURS, strict=False):
        share = np.full(len(side.utterances), 100 / len(side.utterances))
        axes.hist(side.utterances, edges, weights=share, alpha=0.35, color=colour, label=side.name)
        axes.hist(side.utterances, edges, weights=share, histtype="step", color=colour)
    canvas.logarithmic(axes, "x")
    axes.set_xlabel("utterances of a client")
    axes.set_ylabel("clients (%)")
    axes.legend()
    return drawn


def means(study: DataStudy) -> Canvas:
    """The left part of the paper's figure 1: the mean of each client, for every measure."""
    drawn = Canvas(figsize=(2 * WIDTH, 3), layout="constrained")
    drawn.suptitle("Clients' means", x=0.01, ha="left", weight="bold")
    generator = np.random.default_rng(study.seed)
    for place, measure in enumerate(MEASURES, 1):
        axes = drawn.add_subplot(1, len(MEASURES), place)
        for row, (side, colour) in enumerate(zip(study.sides, COLOURS, strict=False)):
            values = side.sounds.means(measure)
            spot = row + generator.uniform(-0.3, 0.3, len(values))
            axes.scatter(spot, values, s=9, alpha=0.6, color=colour, linewidths=0, label=side.name)
        axes.set_xticks(range(2), [_short(side.name) for side in study.sides])
        axes.set_xlim(-0.5, 1.5)
        axes.set_title(measure)
        axes.set_ylabel(UNITS[measure])
    return drawn


def clusters(study: DataStudy) -> Canvas:
    """The right part of the paper's figure 1: t-SNE of the embeddings of the clients with the most utterances."""
    drawn = Canvas(figsize=(2 * WIDTH, 4), layout="constrained")
    drawn.suptitle(f"Utterances by t-SNE of {study.embedding}, a colour per client", x=0.01, ha="left", weight="bold")
    for place, side in enumerate(study.sides, 1):
        axes = drawn.add_subplot(1, 2, place)
        owners, points = picture(side.sounds, study.seed)
        for client, colour in zip(np.unique(owners), cycle(COLOURS), strict=False):
            x, y = points[owners == client].T
            axes.scatter(x, y, s=14, color=colour, alpha=0.8, linewidths=0)
        axes.set_title(side.name)
        axes.set_xticks([])
        axes.set_yticks([])
    return drawn


def named(measure: str) -> str:
    """The measure's name with its unit."""
    return f"{measure} ({UNITS[measure]})" if UNITS[measure] else measure


def digits(value: float) -> str:
    """Three significant digits; a dash for NaN."""
    return "–" if math.isnan(value) else f"{value:.3g}" if abs(value) >= 1 else f"{value:.3f}"


def listed(names: Sequence[str]) -> str:
    """Names joined as in a sentence: "a, b and c"."""
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else "".join(names)


def _short(name: str) -> str:
    return name if len(name) <= 16 else name[:15] + "…"
