"""`fedray data`: tables of a configuration's clients and server, and the problems of its data."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from fedray import experiment
from fedray.cli import cleaning
from fedray.cli.auditing import audit, look
from fedray.cli.counts import histogram, spread
from fedray.cli.learning import unlearnable
from fedray.cli.tables import titled
from fedray.config.source import ConfigError, Source
from fedray.core.texts import rich_text
from fedray.core.types import OWN
from fedray.data.analysis import inspection
from fedray.data.analysis.cleaning import Cleanings, odd_texts
from fedray.data.analysis.inspection import Population, Problem
from fedray.data.corpora.official.layout import collected
from fedray.data.corruption import corrupt_labels, noisy_rows
from fedray.data.federation.dealing import deal
from fedray.data.federation.speech_data import NoSpeakers, divide
from fedray.data.manifest import Manifest
from fedray.data.text.normalisation import watched
from fedray.engine.driver import session
from fedray.experiment import Config
from fedray.training.tasks import TASKS

SPREAD = "* minimum / quartiles / maximum"


def show(
    config_path: str | os.PathLike[str], overrides: Iterable[str], console: Console, out: str | None = None
) -> list[Problem]:
    """Print the tables and return the problems. ConfigError: the configuration itself is wrong.

    `out`: the folder of the audit's picture; None: it is not drawn.
    """
    overrides = list(overrides)
    config, source = experiment.load(config_path, overrides)
    problems: list[Problem] = []
    cleanings = Cleanings()
    clients: dict[str, np.ndarray] = {}
    parts: dict[str, Manifest] = {}
    labelled: np.ndarray | None = None
    try:
        with collected() as left_out, watched(cleanings.add):
            splits = experiment.read_corpus(config.data, source)
        problems += map(Problem, left_out)
        parts = splits  # shown undivided if dividing them fails
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoSpeakers)  # listed with the problems
            server, mine, scored = divide(splits, config.data)
        parts = ({"server": server} if server is not None else {}) | {"clients": mine} | scored
        clients, own, labelled = deal(mine, config.data)
        if own is not None:  # what clients hold out is no part of their training data
            kept = ~pc.is_in(mine.table["utterance"], own.table["utterance"].combine_chunks()).to_numpy()
            position = np.cumsum(kept) - 1
            parts |= {"clients": mine.take(np.flatnonzero(kept)), OWN: own}
            clients = {client: position[rows] for client, rows in clients.items()}
            labelled = None if labelled is None else labelled[kept]
    except ConfigError:
        raise
    except ValueError as error:  # no run can use these data either: listed with the other problems
        problems.append(Problem(str(error), stops=True))
    place = f" in {config.data.root}" if config.data.root else ""
    console.print(
        f"[bold]{rich_text(config.name)}[/bold]: corpus {config.data.corpus}{rich_text(place)}",
        highlight=False,
        soft_wrap=True,
    )
    if parts:
        console.print(split_table(parts))
        if (words := vocabulary_table(parts)).row_count:
            console.print(words)
    for changes in cleaning.tables(cleanings):
        console.print(changes)
    if clients:
        held = inspection.population(parts["clients"], clients)
        console.print(client_table(config, parts, clients, held, labelled))
        console.print(histogram(held.utterances))
        problems += cohort_problems(config, len(clients))
    if not any(problem.stops for problem in problems):
        problems += setup_problems(config, source)
    if parts:
        problems += seed_problems(config, parts)
        found, broken = part_problems(config, parts, console)
        problems += found
        heard = {name: manifest for name, manifest in parts.items() if len(manifest)}
        problems += audit(config, heard, clients, broken, out, console) if heard else []
    if clients and not any(problem.stops for problem in problems):
        problems += unlearnable(config, parts, clients, labelled, console)
    list_problems(problems, console, lambda names: look(os.fspath(config_path), overrides, names))
    return problems


def split_table(parts: Mapping[str, Manifest]) -> Table:
    """Utterances, hours and speakers of the server, the clients and each split."""
    table = titled("Speech", "", "utterances", "hours", "speakers", "seconds*", caption=SPREAD)
    for name, manifest in parts.items():
        speakers = "unknown" if manifest.anonymous else f"{pc.count_distinct(manifest.table['speaker']).as_py():,}"
        table.add_row(
            rich_text(name),
            f"{len(manifest):,}",
            f"{manifest.hours:,.2f}",
            speakers,
            spread(manifest.array("seconds"), "{:.1f}"),
        )
    return table


def vocabulary_table(parts: Mapping[str, Manifest]) -> Table:
    """Words and characters of the transcripts, and the share of words that the training transcripts lack."""
    source = token_source(parts)
    table = titled("Transcripts", "", "words", "distinct", "characters", "new")
    table.caption = f"new: share of the words that do not occur in the transcripts of {source}"
    known = pc.unique(inspection.words(parts[source]))
    for name, manifest in parts.items():
        if not len(spoken := inspection.words(manifest)):
            continue
        new = "" if name == source else f"{100 * (1 - pc.mean(pc.is_in(spoken, value_set=known)).as_py()):.1f} %"
        distinct, characters = pc.count_distinct(spoken).as_py(), len(inspection.characters(manifest))
        table.add_row(rich_text(name), f"{len(spoken):,}", f"{distinct:,}", f"{characters:,}", new)
    return table


def client_table(
    config: Config,
    parts: Mapping[str, Manifest],
    clients: Mapping[str, np.ndarray],
    held: Population,
    labelled: np.ndarray | None,
) -> Table:
    """Number, sizes, labels and hours of the clients. `labelled`: bool, by row of the clients' manifest."""
    manifest = parts["clients"]
    table = titled("Clients", "", "", show_header=False, caption=SPREAD)
    table.add_row("number", f"{len(clients):,}, divided by {config.data.clients.by}")
    table.add_row("utterances a client*", spread(held.utterances, "{:,.0f}"))
    table.add_row("minutes a client*", spread(held.seconds / 60, "{:,.1f}"))
    largest = "held by the largest client" if held.tenth == 1 else "held by the largest 10 %"
    table.add_row(largest, f"{100 * held.largest_tenth:.1f} % of the utterances")
    if held.label_distance is not None:
        table.add_row(
            "label distance (0 alike, 1 disjoint)",
            f"{held.label_distance:.3f} from all labels' distribution, on average",
        )
    if labelled is not None:
        whole = sum(bool(labelled[rows].all()) for rows in clients.values())
        table.add_row(
            "labelled",
            f"{100 * labelled.sum() / held.utterances.sum():.1f} % of their utterances; all of {whole:,} clients",
        )
    for what, rows in damaged(config, manifest, clients, labelled).items():
        table.add_row(what, f"{int(rows.sum()):,} of their utterances (data.corruption)")
    if left := len(manifest) - int(held.utterances.sum()):
        table.add_row(
            "utterances of no client", f"{left:,} of {len(manifest):,} (data.clients or data.labelled leaves them out)"
        )
    batch = getattr(getattr(config.algorithm.settings, "client", None), "batch", None)
    if batch is not None:
        table.add_row(f"with less than a batch of {batch}", f"{int((held.utterances < batch).sum()):,} clients")
    owned = "nothing"
    if (server := parts.get("server")) is not None and len(server):
        utterances, hours = len(server) / (len(server) + len(manifest)), server.hours / (server.hours + manifest.hours)
        owned = f"{100 * utterances:.1f} % of the speech for training, {100 * hours:.1f} % in hours"
    table.add_row(
        "the server has",
        owned + (", which the client has too" if config.data.clients.by in ("pooled", "server") else ""),
    )
    return table


def damaged(
    config: Config, manifest: Manifest, clients: Mapping[str, np.ndarray], labelled: np.ndarray | None
) -> dict[str, np.ndarray]:
    """What `data.corruption` does -> which rows of the clients' manifest it does it to, bool [rows]."""
    settings, seed = config.data.corruption, config.data.seed
    mine = np.zeros(len(manifest), bool)
    mine[np.concatenate(list(clients.values()))] = True
    found = {}
    if settings.label_errors:
        target = TASKS[config.task.kind].column(config.task.settings)
        found[f"wrong {target}s"] = corrupt_labels(manifest, settings, seed, target, clients, labelled).changed & mine
    if settings.snr_db is not None:
        found[f"white noise at {settings.snr_db:g} dB"] = noisy_rows(manifest, settings, seed, clients) & mine
    return found


def setup_problems(config: Config, source: Source) -> list[Problem]:
    """Sections of the configuration that do not fit together."""
    try:
        experiment.check_setup(config, source)
    except ConfigError as error:
        return [Problem(str(error), stops=True)]
    return []


def cohort_problems(config: Config, population: int) -> list[Problem]:
    """What is wrong with the section `cohort` for a population of this size."""
    try:
        size = config.cohort.count(population)
    except ValueError as error:
        return [Problem(str(error), stops=True)]
    awake = config.cohort.availability * population
    if size > awake:
        return [
            Problem(
                f"cohort: a round draws {size:,} clients, but only about {awake:,.0f} of {population:,} are available: "
                "cohorts will be smaller"
            )
        ]
    return []


def seed_problems(config: Config, parts: Mapping[str, Manifest]) -> list[Problem]:
    """The problem of an algorithm that trains a seed model although the server has no data."""
    pretraining = getattr(config.algorithm.settings, "pretrain", None)
    if pretraining is None or not pretraining.steps or "server" in parts:
        return []
    told = f"algorithm.pretrain.steps={pretraining.steps} trains a seed model on the server's data, and it has none"
    remedy = "set data.server, or algorithm.pretrain.steps=0 to train from scratch"
    return [Problem(f"{told}: {remedy}", stops=True)]


def part_problems(config: Config, parts: Mapping[str, Manifest], console: Console) -> tuple[list[Problem], set[str]]:
    """What is wrong with the splits: empty ones, shared speakers, repeated ids, unusable transcripts.

    Also returns the paths of audio that is missing or broken.
    """
    problems = [Problem(f"{name} is empty", stops=True) for name, manifest in parts.items() if not len(manifest)]
    parts = {name: manifest for name, manifest in parts.items() if len(manifest)}
    if "dev" not in parts:
        problems.append(
            Problem(
                "there is no dev split to choose the best round by: set data.dev_share, or name one in data.options"
            )
        )
    others = {name: manifest for name, manifest in parts.items() if name != OWN}  # whose speakers are the clients'
    problems += inspection.duplicate_ids(parts) + inspection.shared_speakers(others)
    problems += inspection.unknown_speakers(parts, config.data.clients.by)
    tokens = getattr(config.task.settings, "tokens", None)
    if tokens is not None and token_source(parts) in parts:
        task = config.task.settings
        left_out, column = task.unknown == "leave_out", TASKS[config.task.kind].column(task)
        problems += odd_texts(parts, column)
        problems += inspection.texts(parts, token_source(parts), tokens == "characters", left_out, column)
    broken, looked, paths = inspection.broken_audio(
        parts, session.parallel, config.data.seed, not config.data.skip_broken, config.features.sample_rate
    )
    console.print(f"Audio: {looked}.", highlight=False, soft_wrap=True)
    return problems + broken, paths


def token_source(parts: Mapping[str, Manifest]) -> str:
    """The part whose transcripts the tokeniser is trained on, as in SpeechData.transcripts."""
    return next(name for name in ("server", "clients", "train", *parts) if name in parts)


def list_problems(problems: Iterable[Problem], console: Console, look: Callable[[Sequence[str]], str]) -> None:
    """Print the problems, those that stop a run first, with the commands (`look`) that show what they name."""
    problems = sorted(problems, key=lambda problem: (not problem.stops, not problem.wrong))
    console.print(
        "No problems found." if not problems else f"[bold]Problems found: {len(problems)}[/bold]", highlight=False
    )
    for problem in problems:
        mark = "[red]makes a run wrong:[/red]" if problem.wrong else "[yellow]warning:[/yellow]"
        mark = "[red]stops a run:[/red]" if problem.stops else mark
        console.print(f"  {mark} {rich_text(problem.text)}", highlight=False, soft_wrap=True)
        if problem.names:
            console.print(f"    look and listen: {rich_text(look(problem.names))}", highlight=False, soft_wrap=True)
