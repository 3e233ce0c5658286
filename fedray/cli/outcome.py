"""Prints how a run ended, or how to follow one that continues without the command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from fedray.cli.tables import titled
from fedray.core.metrics import ALONE
from fedray.core.texts import printable, rich_text

if TYPE_CHECKING:
    from fedray import Result
    from fedray.runs.folder import RunFolder
    from fedray.runs.standing import Standing

INTERRUPTED = 130  # exit status


def show_end(result: Result) -> int:
    """Print how a run of this process ended; returns the exit status."""
    from fedray.runs.folder import RunFolder

    folder, results = RunFolder(result.folder), result.results
    place = folder.place
    if not results:
        return detached(place)
    if "stopped" in results:
        print(f"Stopped {_after(results['stopped'])}. Go on with: fedray resume {quote(place)}")
        return INTERRUPTED
    show_results(folder, results, Console())
    return 0


def show_standing(folder: RunFolder, standing: Standing) -> None:
    """Print the state of a run without a driver."""
    done, again = _after(standing.round), f"Go on with: fedray resume {quote(folder.place)}"
    if standing.state == "finished":
        show_results(folder, standing.results, Console())
    elif standing.state == "failed":
        print(f"Failed {done}: {printable(standing.error)}")
        print(f"The traceback is in {folder.storage.shown('error.txt')}. {again}")
    else:
        print(f"{standing.state.capitalize()} {done}. {again}")


def detached(place: str, log: Path | None = None) -> int:
    """Print how to watch and stop a run that continues without this command; returns the exit status."""
    print(f"run folder: {place}")
    if log is not None:
        print(f"its output: {log}")
    print(f"fedray watch {quote(place)}  # shows its progress")
    print(f"fedray stop {quote(place)}  # ends it after its round, with a checkpoint")
    return 0


def show_results(folder: RunFolder, results: Mapping[str, Any], console: Console) -> None:
    """Print results.json: a table of the scores of the first model and of the best round, and the totals."""
    from fedray.runs.scores import WITHOUT, first_model_in, scores, shown_round

    found = scores(results)
    title = f"{rich_text(results['name'])}: {results['rounds']} rounds"
    table = titled(title, "", first_model_in(folder), shown_round(results), "change")
    for score in found:
        table.add_row(rich_text(score.title), f"{score.seed:.2f}", f"{score.best:.2f}", score.change)
    console.print(table if found else f"{table.title}\n{WITHOUT}", highlight=False)
    if personal := results.get("personal"):
        console.print(personal_table(personal))
    if spent := results.get("privacy"):
        console.print(privacy_words(spent), soft_wrap=True, markup=False, highlight=False)
    console.print(
        f"traffic {results['traffic/total_bytes'] / 1e9:.3f} GB, failed clients {results['clients/failed']:g}, "
        f"time {results['time/total_s']:.0f} s\n"
        f"run folder: {folder.place}",
        soft_wrap=True,
        markup=False,
        highlight=False,
    )


def personal_table(personal: Mapping[str, Any]) -> Table:
    """Mean and standard deviation of the clients' scores; two columns if the shared model was scored alone too."""
    from fedray.runs.scores import with_unit

    names = [name for name in personal if f"{name}_sd" in personal and not name.endswith(ALONE)]
    both = any(name + ALONE in personal for name in names)
    columns = ("", "alone", "personal") if both else ("", "personal")
    table = titled(f"personal models of {rich_text(str(personal['clients']))} clients", *columns)
    for name in names:
        scores = [
            f"{personal[key]:.2f} ± {personal[f'{key}_sd']:.2f}" if key in personal else ""
            for key in (name + ALONE, name)
        ]
        table.add_row(rich_text(with_unit(name)), *scores[not both :])
    return table


def privacy_words(spent: Mapping[str, Any]) -> str:
    """The section `privacy` of results.json as a line: its tight epsilon, where lines of rounds have Renyi's."""
    epsilon = spent["epsilon"]
    given = "no guarantee" if epsilon is None else f"epsilon {epsilon:.3g} at delta {spent['delta']:g}"
    return f"privacy: {given} after {spent['rounds']:,} rounds"


def _after(round: int) -> str:
    return f"after round {round}" if round else "before round 1"
