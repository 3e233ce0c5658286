"""The command line: fedray run | resume | data."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedray.core.types import RunError


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="fedray", description="Federated learning for speech, simulated on Ray.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a configuration", description="Run a configuration to its end.")
    run.add_argument("config", help="a YAML file, such as configs/fednst/embedded.yaml")
    run.add_argument("overrides", nargs="*", metavar="key=value", help="dotted overrides, such as rounds=50 algorithm.alpha=0.3")
    run.add_argument("--out", metavar="DIR", help="the run folder itself (default: runs/<name>-<time>)")
    run.add_argument("--seed", type=int, metavar="N", help="the same as seed=N")
    run.add_argument("--dry-run", action="store_true", help="check the configuration, print it with all defaults, and stop")
    resume = commands.add_parser("resume", help="go on with a run", description="Go on from the newest checkpoint, bit for bit.")
    resume.add_argument("folder", metavar="RUN", help="a run folder")
    resume.add_argument("overrides", nargs="*", metavar="key=value", help="rounds=N, engine.actors=N, ...")
    data = commands.add_parser(
        "data", help="show who the clients are", description="Counts, hours, skew and problems of a configuration's data."
    )
    data.add_argument("config")
    data.add_argument("overrides", nargs="*", metavar="key=value")
    options, rest = parser.parse_known_args(arguments)
    # argparse takes positionals from one place only: overrides that stand behind an option are left over.
    if unknown := [argument for argument in rest if argument.startswith("-") or "=" not in argument or "overrides" not in options]:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if rest:
        options.overrides += rest
    try:
        return {"run": _run, "resume": _resume, "data": _data}[options.command](options)
    except ValueError as error:
        print(f"fedray: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"fedray: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fedray: interrupted; what is in the cache stays there", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    from fedray import experiment

    overrides = [*options.overrides, *([f"seed={options.seed}"] if options.seed is not None else [])]
    if options.dry_run:
        import yaml

        config, _ = experiment.load(options.config, overrides)
        print(yaml.safe_dump(experiment.plain(config), sort_keys=False, allow_unicode=True), end="")
        return 0
    _show(experiment.run(options.config, overrides, out=options.out))
    return 0


def _resume(options: argparse.Namespace) -> int:
    from fedray import experiment

    _show(experiment.resume(options.folder, options.overrides))
    return 0


def _data(options: argparse.Namespace) -> int:
    from fedray.overview import show

    problems = show(options.config, options.overrides, Console())
    return 1 if any(problem.stops for problem in problems) else 0


def _show(result: Any) -> None:
    """The table of results."""
    console, results = Console(), result.results
    if "stopped" in results:
        done = "before round 1" if results["stopped"] is None else f"after round {results['stopped']}"
        console.print(f"Stopped {done}. Go on with: fedray resume {result.folder}", soft_wrap=True)
        return
    table = Table(title=f"{results['name']}: {results['rounds']} rounds", title_justify="left")
    table.add_column("")
    for title in ("seed model", f"best round ({results['best']['round']})", "change"):
        table.add_column(title, justify="right")
    for name in (name for name in results["best"] if name != "round"):
        before, after = results["seed"][name], results["best"][name]
        change = f"{100 * (after - before) / before:+.1f} %" if before else ""
        table.add_row(
            f"{name} (%)" if name.rpartition("/")[2].startswith(("wer", "cer")) else name, f"{before:.2f}", f"{after:.2f}", change
        )
    console.print(table)
    console.print(
        f"traffic {results['traffic/total_bytes'] / 1e9:.3f} GB, failed clients {results['clients/failed']:g}, "
        f"time {results['time/total_s']:.0f} s\n"
        f"run folder: {Path(result.folder)}",
        soft_wrap=True,
        highlight=False,
    )


if __name__ == "__main__":
    sys.exit(main())
