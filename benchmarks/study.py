"""Helpers for all benchmarks: runs that resume, the folder of real speech, and the pages of results."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import ray
import torch

import fedray
from benchmarks import counts
from benchmarks.counts import by_speaker, by_utterance, common, from_one_start, packed, predictions, right_by, unpacked
from fedray import experiment
from fedray.config.schema import plain
from fedray.config.source import override
from fedray.core.environment import processor
from fedray.core.machine import allowed
from fedray.report.bootstrap import change
from fedray.report.tables import markdown
from fedray.runs.folder import RunFolder
from fedray.storage.files import write_atomically

__all__ = [
    "best_rounds",
    "by_speaker",
    "by_utterance",
    "change",
    "chosen",
    "command",
    "common",
    "folder_name",
    "from_one_start",
    "gathered",
    "half_and_end",
    "machine",
    "on_page",
    "overrides",
    "packed",
    "page_before",
    "parser",
    "place",
    "predictions",
    "right_by",
    "rounds",
    "run",
    "seeds",
    "speech",
    "spread",
    "table",
    "unpacked",
    "write",
]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
Found = Mapping[str, Sequence[dict[str, Any]]]  # arm -> the results of its runs, each with its "seed"


def parser(
    script: str, about: str | None, folder: str, rounds: int | None = None, seeds: Sequence[int] = (0, 1, 2)
) -> argparse.ArgumentParser:
    """The options of a study: --seeds and --runs (default: `folder` below runs/).

    With `rounds` also --rounds and --actors. script: the module's name, `__spec__.name`; about: its docstring.
    """
    form = argparse.RawDescriptionHelpFormatter
    found = argparse.ArgumentParser(f"python -m {script}", description=about, formatter_class=form)
    found.add_argument("--seeds", type=int, nargs="+", default=list(seeds))
    if rounds is not None:
        found.add_argument("--rounds", type=int, default=rounds)
        found.add_argument("--actors", default="auto", help="client actors of a run, the same at each start")
    where = ROOT / "runs" / folder
    found.add_argument("--runs", type=Path, default=where, help="where the run folders are kept")
    return found


def command(parser: argparse.ArgumentParser, chosen: argparse.Namespace, **fixed: object) -> str:
    """The command that repeats a study: its options that are not at their defaults. `fixed` replaces chosen ones.

    It leaves out --seeds, which pages name next to it, and --runs and --actors, on which no number depends.
    """
    words = [parser.prog]
    for name, value in {**vars(chosen), **fixed}.items():
        if name not in ("seeds", "runs", "actors") and value != parser.get_default(name):
            values = value if isinstance(value, list) else [] if value is True else [value]
            words.append(f"--{name}")
            words += [shlex.quote(f"{one:g}" if isinstance(one, float) else str(one)) for one in values]
    return " ".join(words)


def speech(corpus: str) -> Path:
    """The folder of a small corpus of real speech (fsdd, arabic-commands, speechocean-mini) below FEDRAY_SPEECH.

    If there is no such folder, ends the program with a sentence that says what to set.
    """
    given = os.environ.get("FEDRAY_SPEECH")
    if not given:
        sys.exit(f"FEDRAY_SPEECH is not set: set it to the folder that holds {corpus}/")
    folder = Path(given).resolve() / corpus
    if not folder.is_dir():
        sys.exit(f"FEDRAY_SPEECH={given} holds no {corpus}/: set it to the folder that does")
    return folder


def run(config: str, overrides: Sequence[str], out: Path) -> dict[str, Any]:
    """The results of a run of `config` (relative to the repository) in the folder `out`.

    Starts the run, resumes it, or reads the results of a finished one. Ends the program if Ctrl-C stops the run, or
    it cannot be resumed; raises ValueError if `out` holds a run with other settings.
    """
    settings = plain(experiment.check(*experiment.load(ROOT / config, overrides)))
    try:
        if not (out / "config.yaml").exists():
            results = experiment.run(ROOT / config, overrides, out=out).results
        elif plain(experiment.load(out / "config.yaml")[0]) != settings:  # keys added since are at their defaults
            raise ValueError(f"{out} holds a run with other settings than {config} {' '.join(overrides)}: move it away")
        elif (out / "results.json").exists():
            results = json.loads((out / "results.json").read_text(encoding="utf-8"))
        else:
            try:
                results = experiment.resume(out).results
            except ValueError as error:  # its message says what has changed since
                sys.exit(f"{error}\nor move {out} away: the same command repeats it")
    except KeyboardInterrupt as error:
        sys.exit(f"{str(error) or 'interrupted'}; so does the same command")
    if "stopped" in results:
        sys.exit(f"stopped after round {results['stopped']} of {out}; the same command resumes the run")
    return results


def overrides(settings: Mapping[str, Any]) -> list[str]:
    """The overrides of dotted keys: `{"rounds": 3}` -> `["rounds=3"]`."""
    return [override(key, value) for key, value in settings.items()]


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """A table in Markdown. A cell that a row lacks is empty."""
    columns = dict.fromkeys(name for row in rows for name in row)
    return markdown([{name: row.get(name, "") for name in columns} for row in rows])


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation over seeds, or the one value."""
    return f"{mean(values):.1f} ± {stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def rounds(out: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl, one per round."""
    return RunFolder(out).rows("metrics.jsonl")


def machine() -> dict[str, Any]:
    """The machine, the versions and the date of a measurement."""
    return {
        "cpu": processor(),
        "cores": allowed().whole_cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "ray": ray.__version__,
        "fedray": fedray.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }


def page_before(study: str, **same: Any) -> dict[str, Any]:
    """The numbers of a study's earlier page, empty without one. A page with other settings ends the program.

    From it a study takes the runs whose folders are gone, so that seeds and arms can be added on another machine. A
    page without its settings is from an earlier version: nothing is taken from it, and the new page replaces it.
    """
    path = RESULTS / f"{study}.json"
    page = counts.whole(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
    if page and not page.keys() >= same.keys():
        print(f"{path} is of an earlier version of the study: the new page replaces it, without its runs")
        return {}
    if page and (other := {key: page[key] for key in same}) != same:
        sys.exit(f"{path} is of {other}, not of {same}, and its runs would be lost: move it and its .md away first")
    return page


def gathered(
    before: Found, arms: Iterable[str], chosen: argparse.Namespace, place: Callable[[str, int], Path],
    play: Callable[[str, int, Path], dict[str, Any]],
) -> dict[str, list[dict[str, Any]]]:  # fmt: skip
    """The runs of each of a study's arms: those on the page `before`, and those of the chosen seeds and arms.

    `chosen`: --seeds and --arms; a text of --arms chooses the arm of that name, else all arms with it in their names.
    `place` gives the folder of an arm and a seed, and `play` the results of a run there. A run on the page is repeated
    only if its folder exists. All arms of a seed are played before the next seed, so that a study that is cut short has
    whole seeds. Each run names its processor for `write`.
    """
    arms = list(arms)
    wanted = [arm for arm in arms if any(arm == text if text in arms else text in arm for text in chosen.arms)]
    runs = {(arm, run["seed"]): run for arm, found in before.items() for run in found}
    for seed in chosen.seeds:
        for arm in wanted:
            folder = place(arm, seed)
            if (arm, seed) not in runs or folder.exists():
                print(f"seed {seed}: {folder}", flush=True)
                runs[arm, seed] = {**play(arm, seed, folder), "cpu": processor()}
    found = {arm: [runs[at] for at in sorted(runs) if at[0] == arm] for arm in arms}
    return {arm: results for arm, results in found.items() if results}


def place(runs: Path) -> Callable[[str, int], Path]:
    """The folder of an arm and a seed below `runs`, for `gathered`."""
    return lambda arm, seed: runs / f"seed-{seed}" / folder_name(arm)


def chosen(
    parser: argparse.ArgumentParser, arms: Iterable[str] | Callable[[argparse.Namespace], Iterable[str]],
    arguments: Sequence[str] | None = None,
) -> argparse.Namespace:  # fmt: skip
    """The options of a study, --arms of `gathered` among them. A text that is in no arm's name ends the program.

    `arms`: the study's arms, or a function of the other options that names them. `arguments`: None: the program's.
    """
    parser.add_argument(
        "--arms", nargs="+", default=[""], help="only the arms of these names, or with a text in theirs"
    )
    options = parser.parse_args(arguments)
    known = list(arms(options) if callable(arms) else arms)
    for text in options.arms:
        if not any(text in arm for arm in known):
            parser.error(f"--arms: no arm has {text!r} in its name: {'; '.join(known)}")
    return options


def folder_name(arm: str) -> str:
    """An arm's name in paths: lower case, with a dash for each character but letters and digits."""
    return "".join(letter if letter.isalnum() else "-" for letter in arm.lower())


def on_page(arms: Iterable[str], *parts: Found) -> list[str]:
    """--arms of the command that repeats the runs of a page's parts: the default if they hold all arms."""
    held = dict.fromkeys(arm for found in parts for arm in found)
    return [""] if held.keys() == set(arms) else [*held]


def best_rounds(best: Sequence[int], rounds: Sequence[int]) -> str:
    """The best round of each run, of all its rounds; marked if in the last tenth, as more rounds might be better."""
    return ", ".join(
        f"{at} of {length}" + (" (still improving)" if 10 * at > 9 * length else "")
        for at, length in zip(best, rounds, strict=True)
    )


def half_and_end(runs: Sequence[dict[str, Any]]) -> str:
    """The score in "rounds" [(round, score), ...] at half time and after the last round, each a `spread` over runs."""
    scores = [[score for _, score in run["rounds"]] for run in runs]
    return f"{spread([each[(len(each) - 1) // 2] for each in scores])}, {spread([each[-1] for each in scores])}"


def seeds(*found: Found) -> list[int]:
    """The seeds of all runs of a page's parts."""
    return sorted({run["seed"] for part in found for runs in part.values() for run in runs})


def _processors(numbers: object) -> set[str]:
    """The processors that the runs among a page's numbers name."""
    if isinstance(numbers, list):
        return set().union(*map(_processors, numbers))
    if not isinstance(numbers, Mapping):
        return set()
    return set().union(*map(_processors, numbers.values()), {numbers["cpu"]} if "cpu" in numbers else set())


def write(study: str, text: str, numbers: Mapping[str, Any], command: str, seeds: Sequence[int]) -> None:
    """Write benchmarks/results/<study>.md (`text`, command, seeds, machine, date) and <study>.json.

    The same seeds give other bits on other processors, so the page names all processors of its runs.
    """
    here = machine()
    source = f"`{command}`, seeds {', '.join(map(str, seeds))};\n{here['cpu']}, {here['cores']} cores, "
    if others := sorted(_processors(numbers) - {here["cpu"]}):
        source += f"some runs on {' and '.join(others)}, "
    source += (
        f"Python {here['python']}, torch {here['torch']}, Ray {here['ray']}, fedray {here['fedray']}; {here['date']}."
    )
    described = {"command": command, "seeds": list(seeds), "machine": here, **numbers}
    contents = {
        f"{study}.md": f"{text.rstrip()}\n\n{source}\n",
        f"{study}.json": json.dumps(counts.thinned(described), indent=1) + "\n",
    }
    for name, content in contents.items():
        write_atomically(RESULTS / name, lambda path, content=content: path.write_text(content, encoding="utf-8"))
