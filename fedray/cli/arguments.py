"""The arguments of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

# Options of `fedray data` and the options of which they need one.
NEEDED = {"out": ("study",), "clients": ("study",), "embeddings": ("study",), "utterances": ("study", "show")}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The parsed arguments; ends the process with status 2 and a usage line where they are wrong."""
    front = parser()
    options, rest = front.parse_known_args(arguments)
    _check(front, options, rest)
    return options


def parser() -> argparse.ArgumentParser:
    """The parser of all commands. `parse` also checks what argparse cannot."""
    front = argparse.ArgumentParser(prog="fedray", description="Federated learning for speech, simulated on Ray.")
    commands = front.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a configuration", description="Run a configuration to its end.")
    run.add_argument("config", help="a YAML file, such as configs/fednst/embedded.yaml")
    run.add_argument(
        "overrides", nargs="*", metavar="key=value", help="dotted overrides, such as rounds=50 algorithm.alpha=0.3"
    )
    run.add_argument(
        "--out", metavar="DIR", help="the run folder, or its URI on object storage (default: runs/<name>-<time>)"
    )
    run.add_argument("--seed", type=int, metavar="N", help="the same as seed=N")
    run.add_argument(
        "--dry-run", action="store_true", help="check the configuration, print it with all defaults, and stop"
    )
    resume = commands.add_parser(
        "resume", help="resume a run", description="Resume a run from its newest checkpoint, bit for bit."
    )
    resume.add_argument("folder", metavar="RUN", help="a run folder")
    resume.add_argument("overrides", nargs="*", metavar="key=value", help="rounds=N, engine.actors=N, ...")
    for command in (run, resume):
        command.add_argument(
            "--detach", action="store_true", help="return once the run has started; the run outlives this terminal"
        )
    _add_attached(commands)
    _add_report(commands)
    _add_pretrain(commands)
    _add_data(commands)
    sweep = commands.add_parser(
        "sweep", help="run a sweep", description="The same as `python FILE`; FILE --help lists its options."
    )
    sweep.add_argument("file", metavar="FILE", help="a sweep, such as sweeps/fednst_lambda.py")
    sweep.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="options of the sweep, and overrides")
    doctor = commands.add_parser(
        "doctor",
        help="check this machine, or estimate the cost of a run",
        description="Show cores, GPUs, Ray and versions, and how fast runs are here; or estimate the cost of a run.",
    )
    doctor.add_argument(
        "--estimate", metavar="CONFIG", help="estimate time, core- or GPU-hours, traffic and disk of this configuration"
    )
    doctor.add_argument("overrides", nargs="*", metavar="key=value", help="dotted overrides of that configuration")
    return front


def _add_attached(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Commands that attach to a run in progress."""
    watch = commands.add_parser(
        "watch",
        help="show the progress of a run",
        description="Show the progress of a run until it ends, or how it ended. Ctrl-C stops watching, not the run.",
    )
    watch.add_argument("folder", metavar="RUN", help="a run folder")
    stop = commands.add_parser(
        "stop",
        help="end a run",
        description="End a run after its current round, with a checkpoint, and wait for its end.",
    )
    stop.add_argument("folder", metavar="RUN", help="a run folder")
    stop.add_argument("--now", action="store_true", help="end at once; the current round is lost")
    stop.add_argument("--no-wait", action="store_true", help="return without waiting for the end")


def _add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    report = commands.add_parser(
        "report",
        help="compare runs: a table, figures, a page",
        description="Compare runs: prints a table, and writes report.html, report.md, report.csv and figures/.",
    )
    report.add_argument(
        "paths", nargs="+", metavar="PATH", help="run folders, or folders that hold runs: studies, sweeps"
    )
    report.add_argument(
        "--out", metavar="DIR", help="where the files are written (default: PATH; ./report for several)"
    )
    report.add_argument(
        "--baseline",
        metavar="NAME",
        help="label of the group that the others are compared with; `first` is the first group",
    )
    report.add_argument(
        "--metric",
        metavar="KEY",
        help="the score to compare, such as test/wer_lm (default: test WER or accuracy; personal/... where scored)",
    )
    report.add_argument(
        "--group-by",
        nargs="+",
        default=[],
        metavar="KEY",
        help="keys whose values make a group (default: all but seeds)",
    )


def _add_pretrain(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    pretrain = commands.add_parser(
        "pretrain",
        help="pre-train a model without labels",
        description="Contrastive pre-training of weights.pt, for model.init of runs. The same command resumes it.",
    )
    pretrain.add_argument("config", help="a YAML file, such as configs/fedstar/pretraining.yaml")
    pretrain.add_argument(
        "overrides", nargs="*", metavar="key=value", help="dotted overrides, such as contrastive.epochs=100"
    )
    pretrain.add_argument("--out", metavar="DIR", help="where its files are written (default: runs/<name>)")


def _add_data(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    data = commands.add_parser(
        "data",
        help="show the clients and the problems of a configuration's data",
        description="Show who the clients of a configuration are (counts, hours, skew), and the problems of its data.",
    )
    data.add_argument("config", help="a YAML file, such as configs/fednst/embedded.yaml")
    data.add_argument("overrides", nargs="*", metavar="key=value", help="dotted overrides of the configuration")
    data.add_argument(
        "--study",
        nargs="+",
        metavar=("OTHER", "key=value"),
        help="write a report on how the recordings differ from those of another configuration",
    )
    data.add_argument(
        "--show",
        metavar="DIR",
        help="write DIR/utterances.html: spectrograms and audio of some utterances of each split and of some clients",
    )
    data.add_argument(
        "--lhotse", metavar="DIR", help="write the corpus as Lhotse's manifests, with each utterance's client"
    )
    data.add_argument(
        "--out", metavar="DIR", help="where the study's report is written (default: runs/data-<name>-<other name>)"
    )
    data.add_argument("--clients", type=int, metavar="N", help="study at most N clients (default: 100)")
    data.add_argument(
        "--utterances", type=int, metavar="N", help="at most N utterances of each client (default: 10, with --show 3)"
    )
    data.add_argument(
        "--embeddings", metavar="FILE", help="weights of a SpeechBrain ECAPA-TDNN, to tell speakers apart"
    )


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace, rest: list[str]) -> None:
    """Add the overrides that stand behind an option, and refuse options that do not go together."""
    # argparse takes positional arguments from one place only: overrides behind an option are left over.
    if unknown := [
        argument for argument in rest if argument.startswith("-") or "=" not in argument or "overrides" not in options
    ]:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if rest:
        options.overrides += rest
    if options.command == "data":
        for name, needed in NEEDED.items():
            if getattr(options, name) is not None and all(getattr(options, other) is None for other in needed):
                study = "belongs to a study: name the other configuration with --study OTHER"
                parser.error(f"--{name} {study}{' (or use --show DIR)' if 'show' in needed else ''}")
        chosen = [f"--{name}" for name in ("study", "show", "lhotse") if getattr(options, name) is not None]
        if len(chosen) > 1:
            parser.error(f"{' and '.join(chosen)} do not go together: use one at a time")
    if options.command == "doctor" and options.overrides and options.estimate is None:
        parser.error("doctor takes key=value only with --estimate CONFIG")
