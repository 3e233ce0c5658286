"""`fedray privacy`: what the section `privacy` of a configuration guarantees, and what other noise or cohorts would."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Canvas
from rich.console import Console
from rich.table import Table

from fedray import experiment
from fedray.cli.tables import titled
from fedray.config.source import Source
from fedray.core.privacy.accounting import Account
from fedray.core.privacy.audits import Audit
from fedray.core.privacy.guarantee import Guarantee, noise_for
from fedray.core.privacy.noise_by_kind import NoiseByKind, noise_by_kind
from fedray.core.privacy.settings import Correlated, Gaussian, Private, Skellam
from fedray.experiment import Config
from fedray.experiment.audits import population
from fedray.experiment.checks import corpus_reader, most_clients
from fedray.experiment.private import guarantee_of
from fedray.report import canvas
from fedray.report.canvas import Drawing
from fedray.storage.files import write_whole

EPSILONS = (1.0, 2.0, 4.0, 8.0)
POINTS = 40  # per curve over rounds
# Theorem 9 of the paper covers any noise. For noise without a largest privacy loss, its terms of the third and higher
# powers of the sampling rate have the factor 2, however much noise there is. Gaussian noise has a bound of its own.
LOOSE = (
    "The epsilon of Skellam noise in drawn cohorts is an upper bound (Wang, Balle, Kasiviswanathan, AISTATS 2019). It "
    "always holds, but is loose where more than a few percent of the clients are drawn: part of it does not shrink as "
    "noise grows, so epsilon may rise with the cohort because of the bound alone."
)


def show(options: argparse.Namespace, console: Console) -> int:
    """Print the tables. ValueError: the configuration is not private, or --out is not a picture file."""
    out = Path(options.out) if options.out is not None else None
    if out is not None and out.suffix not in (".png", ".svg"):
        raise ValueError(f"--out {out}: the picture's name must end with .png or .svg")
    config, source = experiment.load(options.config, options.overrides)
    experiment.check_setup(config, source)
    if not isinstance(config.privacy, Private):
        raise ValueError("the configuration is not private: set privacy.kind, or name one such as privacy/keywords")
    guarantee = guarantee_of(config, config.privacy, _population(config, source))
    console.print(guarantee.words(), highlight=False, soft_wrap=True)
    console.print(_by_rounds(guarantee, config.rounds))
    console.print(_by_epsilon(guarantee.claimed))
    cohorts = by_cohort(guarantee.claimed)
    console.print(_by_cohort(cohorts))
    if guarantee.claimed.sampling.drawn and isinstance(config.privacy, Skellam):
        console.print(LOOSE, highlight=False, soft_wrap=True)
    kinds = []
    if isinstance(config.privacy, Gaussian | Correlated):
        kinds = [noise_by_kind(guarantee.claimed, epsilon) for epsilon in EPSILONS]
        console.print(_by_kind(kinds))
    if out is not None:
        drawing = _draw(guarantee.claimed, cohorts, kinds)
        write_whole(out, drawing.png if out.suffix == ".png" else drawing.svg)
        print(f"picture: {out}")
    return 0


def _population(config: Config, source: Source) -> int:
    most = most_clients(config.data, corpus_reader(config.data, source))
    # Audited clients take no part, and Dirichlet's shares may leave a client without speech.
    if most is None or isinstance(config.audit, Audit) or config.data.clients.by == "dirichlet":
        most = len(experiment.read_federation(config, source)[1])
    return population(config, most)


def _number(value: float | None) -> str:
    return "unknown" if value is None else "none" if math.isinf(value) else f"{value:,.4g}"


def _by_rounds(guarantee: Guarantee, rounds: int) -> Table:
    """Epsilon of the claimed federation by both accounts and, where it differs, that of the simulated one."""
    scaled = guarantee.claimed.sampling != guarantee.simulated.sampling
    names = ("as if, tight", "as if, Renyi", "as simulated") if scaled else ("tight", "Renyi")
    rows = {}
    for after in sorted({max(1, rounds // 4), max(1, rounds // 2), rounds, 2 * rounds}):
        rows[after] = [guarantee.claimed.tight(after), guarantee.claimed.epsilon(after)]
        rows[after] += [guarantee.simulated.guarantee(after)] if scaled else []
    known = [place for place in range(len(names)) if any(found[place] is not None for found in rows.values())]
    table = titled("Epsilon by rounds", "rounds", *(names[place] for place in known))
    for after, found in rows.items():
        table.add_row(f"{after:,}", *(_number(found[place]) for place in known))
    return table


def _by_epsilon(account: Account) -> Table:
    """The noise multipliers that other epsilons need."""
    table = titled("Noise by epsilon", "epsilon", "noise multiplier z")
    for epsilon in EPSILONS:
        try:
            noise = noise_for(replace(account.settings, epsilon=epsilon, noise=None), account.sampling, account.rounds)
        except ValueError:  # no noise reaches this epsilon
            noise = None
        table.add_row(f"{epsilon:g}", _number(noise))
    return table


def by_cohort(account: Account) -> list[tuple[int, float, float]]:
    """(cohort, z, Renyi epsilon) of cohorts that double in size, all with the account's noise in their means."""
    sampling, found = account.sampling, []
    size = max(1, round(sampling.cohort / 4))
    while size <= sampling.population:
        limit = None if sampling.limit is None else max(1, round(sampling.limit * size / sampling.cohort))
        noise = account.noise * size / sampling.cohort
        larger = replace(account, noise=noise, sampling=replace(sampling, cohort=size, limit=limit))
        found.append((size, noise, larger.epsilon()))
        size *= 2
    return found


def _by_cohort(cohorts: Sequence[tuple[int, float, float]]) -> Table:
    table = titled(
        "Epsilon by cohort, with the same noise in the mean", "cohort", "noise multiplier z", "Renyi epsilon"
    )
    for size, noise, epsilon in cohorts:
        table.add_row(f"{size:,}", _number(noise), _number(epsilon))
    return table


def _by_kind(kinds: Sequence[NoiseByKind]) -> Table:
    title = "Noise in the model by kind: root mean square over rounds, in bounds C"
    table = titled(
        title, "epsilon", "independent, Poisson cohorts", f"correlated, {kinds[0].bands} bands, cyclic cohorts"
    )
    for one in kinds:
        table.add_row(f"{one.epsilon:g}", _number(one.independent), _number(one.correlated))
    return table


def _draw(account: Account, cohorts: Sequence[tuple[int, float, float]], kinds: Sequence[NoiseByKind]) -> Drawing:
    """Draw epsilon over rounds for a few noise multipliers, epsilon by cohort, and the kinds of noise by epsilon."""
    with canvas.style():
        panels = 3 if kinds else 2
        drawn = Canvas(figsize=(panels * canvas.WIDTH, canvas.HEIGHT), layout="constrained")
        left, right, *others = drawn.subplots(1, panels)
        rounds = sorted({max(1, account.rounds * i // POINTS) for i in range(1, POINTS + 1)})
        for factor, colour in zip((0.7, 1.0, 1.5), canvas.COLOURS, strict=False):
            one = replace(account, noise=factor * account.noise)
            left.plot(rounds, [one.epsilon(each) for each in rounds], color=colour, label=f"z = {one.noise:.3g}")
        left.set(title="Epsilon over rounds (Renyi)", xlabel="rounds", ylabel="epsilon")
        left.legend()
        finite = [(size, epsilon) for size, _, epsilon in cohorts if 0 < epsilon < math.inf]
        right.plot(*np.array(finite).reshape(-1, 2).T, "o-", markersize=4, color=canvas.COLOURS[0])
        right.set(title="Epsilon by cohort, with the same noise in the mean", xlabel="clients of a round")
        right.set(ylabel="epsilon")
        for axis in ("x", "y"):
            canvas.logarithmic(right, axis)
        for axes in others:
            for kind, colour in zip(("independent", "correlated"), canvas.COLOURS, strict=False):
                points = [(one.epsilon, getattr(one, kind)) for one in kinds if getattr(one, kind) is not None]
                axes.plot(*np.array(points).reshape(-1, 2).T, "o-", markersize=4, color=colour, label=kind)
            axes.set(title="Noise in the model by kind", xlabel="epsilon", ylabel="bounds C, root mean square")
            axes.set_xscale("log")
            axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
            axes.minorticks_off()
            axes.set_ylim(bottom=0)
            axes.legend()
        return Drawing.of(drawn)
