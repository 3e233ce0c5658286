"""`fedray data`: a corpus's tables and problems, its utterances, a comparison with another, its Lhotse manifests."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from fedray import experiment
from fedray.cli import population
from fedray.data.corpora.formats.lhotse_writer import write_lhotse
from fedray.engine.driver import session
from fedray.report import data_study, utterances
from fedray.storage.claims import claim
from fedray.storage.local import LocalStorage, on_disk


def show(options: argparse.Namespace) -> int:
    """Do what the options ask for, by default print tables; returns the exit status.

    2: a problem stops a run, or makes its results wrong.
    """
    if options.study is not None:
        print(f"report: {_study(options)}")
    elif options.show is not None:
        chosen: dict[str, Any] = {} if options.utterances is None else {"each": options.utterances}
        chosen |= {} if options.only is None else {"only": options.only}
        print(f"page: {utterances.save(options.config, options.overrides, on_disk(options.show), **chosen)}")
    elif options.lhotse is not None:
        _write_lhotse(options)
    else:
        out = options.out or f"runs/data-{experiment.load(options.config, options.overrides)[0].name}"
        problems = population.show(options.config, options.overrides, Console(), out)
        return 2 if any(problem.stops or problem.wrong for problem in problems) else 0
    return 0


def _study(options: argparse.Namespace) -> Path:
    other, *overrides = options.study
    sides = (options.config, options.overrides), (other, overrides)
    names = [experiment.load(*side)[0].name for side in sides]
    out = on_disk(options.out or f"runs/data-{'-'.join(names)}")
    given = {name: getattr(options, name) for name in ("clients", "utterances", "embeddings")}
    settings = data_study.StudySettings(**{name: value for name, value in given.items() if value is not None})
    return data_study.study(*sides, out, settings)


def _write_lhotse(options: argparse.Namespace) -> None:
    claim(LocalStorage(on_disk(options.lhotse)), "Lhotse manifests")
    parts, clients = experiment.read_federation(*experiment.load(options.config, options.overrides))
    for part, count in write_lhotse(parts, clients, Path(options.lhotse), session.parallel).items():
        print(f"{options.lhotse}/supervisions_{part}.jsonl.gz: {count:,} utterances")
