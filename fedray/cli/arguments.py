"""The arguments of the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import fedray
from fedray.cli import attached, caches, completion, device_options, model, starting
from fedray.cli.parsing import Commands, add_config, at_home, command

# Options of `fedray data`, each with the options of which it needs one.
NEEDED = {"clients": ("study",), "embeddings": ("study",), "utterances": ("study", "show"), "only": ("show",)}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The parsed arguments; ends the process with status 2 and a usage line if they are wrong."""
    parser = command_line()
    options, rest = parser.parse_known_args(list(map(at_home, sys.argv[1:] if arguments is None else arguments)))
    _check(parser, options, rest)
    return options


def command_line() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="fedray",
        description="Federated learning for speech, simulated on Ray.",
        epilog="examples:\n  fedray configs\n  fedray run fednst/embedded rounds=5\n  fedray run --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-V", "--version", action="version", version=f"fedray {fedray.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    starting.add_to(commands)
    _add_runs(commands)
    attached.add_to(commands)
    _add_report(commands)
    _add_export(commands)
    _add_pretrain(commands)
    _add_data(commands)
    model.add_to(commands)
    _add_privacy(commands)
    device_options.add_to(commands)
    _add_sweep(commands)
    _add_doctor(commands)
    caches.add_to(commands)
    completion.add_to(commands)
    return parser


def _add_runs(commands: Commands) -> None:
    """Commands that start a run."""
    run = command(
        commands,
        "run",
        "run a configuration",
        "Run a configuration to its end, and print the scores before and after. Ctrl-C ends the run after its round. "
        "Another kind, such as algorithm.kind=fedprox, replaces the whole section: give the section's other keys again "
        "to keep them.",
        "fedray run fednst/embedded rounds=50 algorithm.alpha=0.3 --out runs/mine",
    )
    add_config(run, "fednst/embedded", "rounds=50 algorithm.alpha=0.3")
    run.add_argument(
        "--out", metavar="DIR", help="the run folder, or its URI on object storage (default: runs/<name>-<time>)"
    )
    run.add_argument("--seed", type=int, metavar="N", help="the same as seed=N")
    run.add_argument(
        "--dry-run", action="store_true", help="check the configuration, print it with all defaults, and stop"
    )
    run.add_argument(
        "--debug",
        action="store_true",
        help="run in one process without Ray, and stop where a client fails: with its traceback, on a terminal in pdb. "
        "Breakpoints work. Nothing is saved",
    )
    resume = command(
        commands,
        "resume",
        "resume a run",
        "Resume a run from its newest checkpoint. The result has the same bits as that of an uninterrupted run.",
        "fedray resume runs/mine rounds=100",
    )
    resume.add_argument("folder", metavar="RUN", help="a run folder")
    resume.add_argument(
        "overrides", nargs="*", metavar="key=value", help="what may change in a run, such as rounds=100 engine.actors=4"
    )
    resume.add_argument(
        "--accept-changes",
        action="store_true",
        help="resume even if packages, code, processor or config.yaml have changed; the report says so",
    )
    for parser in (run, resume):
        parser.add_argument(
            "--detach", action="store_true", help="return once the run has started; the run outlives this terminal"
        )


def _add_report(commands: Commands) -> None:
    report = command(
        commands,
        "report",
        "compare runs: a table, figures, a page",
        "Compare runs. Print a table, and write report.html, report.md, report.csv and figures/.",
        "fedray report runs/study --baseline first",
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
        help="the group that the others are compared with: its label, or the name or path of a run folder in it; "
        "`first` is the first group",
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
    report.add_argument(
        "--target",
        type=float,
        metavar="SCORE",
        help="show what runs spend until dev has this score (default: with devices, the best that all runs reach)",
    )
    report.add_argument(
        "--audio",
        action="append",
        default=[],
        metavar="DIR",
        help="a folder whose audio the page may contain, such as data.root of the runs; may be given several times "
        "(default: the folders in $FEDRAY_AUDIO)",
    )


def _add_export(commands: Commands) -> None:
    export = command(
        commands,
        "export",
        "write a run's model as ONNX",
        "Write model.onnx (waveform to scores) and stream.py into the folder model/ of a finished run.",
        "fedray export runs/mine",
    )
    export.add_argument("folder", metavar="RUN", help="a run folder")


def _add_pretrain(commands: Commands) -> None:
    pretrain = command(
        commands,
        "pretrain",
        "pre-train a model without labels",
        "Pre-train a model on clips without labels by contrastive learning. Write weights.pt, for model.init of "
        "runs. The same command resumes an interrupted pre-training.",
        "fedray pretrain fedstar/pretraining --out runs/pretrained",
    )
    add_config(pretrain, "fedstar/pretraining", "contrastive.epochs=100")
    pretrain.add_argument("--out", metavar="DIR", help="where the files are written (default: runs/<name>)")


def _add_data(commands: Commands) -> None:
    data = command(
        commands,
        "data",
        "show the clients and the problems of a configuration's data",
        "Show who the clients of a configuration are (counts, hours, skew), and the problems of its data. "
        "The exit status is 2 if a problem would stop a run, or make its results wrong.",
        "fedray data fednst/librispeech data.root=/corpora",
    )
    add_config(data, "fednst/embedded", "data.root=/corpora")
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
        "--out",
        metavar="DIR",
        help="where the picture of the audit is written (default: runs/data-<name>), or the study's report "
        "(default: runs/data-<name>-<other name>)",
    )
    data.add_argument(
        "--only", nargs="+", metavar="NAME", help="with --show: these utterances, and utterances of these clients"
    )
    data.add_argument("--clients", type=int, metavar="N", help="study at most N clients (default: 100)")
    data.add_argument(
        "--utterances", type=int, metavar="N", help="at most N utterances of each client (default: 10, with --show 3)"
    )
    data.add_argument(
        "--embeddings", metavar="FILE", help="weights of a SpeechBrain ECAPA-TDNN, to tell speakers apart"
    )


def _add_privacy(commands: Commands) -> None:
    privacy = command(
        commands,
        "privacy",
        "show what a private configuration guarantees",
        "Show epsilon of a configuration by rounds and by cohort, the noise that other epsilons need, and which of "
        "independent and correlated noise is smaller. Nothing is trained.",
        "fedray privacy privacy/keywords privacy.epsilon=2 --out privacy.png",
    )
    add_config(privacy, "privacy/keywords", "privacy.epsilon=2")
    privacy.add_argument("--out", metavar="FILE", help="a .png or .svg file for plots of epsilon")


def _add_sweep(commands: Commands) -> None:
    sweep = command(
        commands,
        "sweep",
        "run a sweep",
        "Run all trials of a sweep with Ray Tune, and write the report. The sweep's own help lists its options "
        "(fedray sweep SWEEP --help).",
        "fedray sweep fednst_lambda --smoke",
    )
    sweep.add_argument(
        "file", metavar="SWEEP", help="a Python file, or a name that `fedray sweeps` lists, such as fednst_lambda"
    )
    sweep.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="options of the sweep, and overrides")


def _add_doctor(commands: Commands) -> None:
    doctor = command(
        commands,
        "doctor",
        "check this machine, or estimate the cost of a run",
        "Show cores, GPUs, Ray and versions, and how fast runs are here; or estimate the cost of a run.",
        "fedray doctor --estimate fednst/embedded rounds=50",
    )
    doctor.add_argument(
        "--estimate",
        metavar="CONFIG",
        help="estimate time, core- or GPU-hours, traffic, memory and disk of this configuration",
    )
    doctor.add_argument("overrides", nargs="*", metavar="key=value", help="dotted overrides of that configuration")


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace, rest: list[str]) -> None:
    """Add the overrides that follow an option, and refuse options that cannot be combined."""
    # argparse takes positional arguments from one place only: overrides after an option are left over.
    if unknown := [
        argument for argument in rest if argument.startswith("-") or "=" not in argument or "overrides" not in options
    ]:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if rest:
        options.overrides += rest
    if options.command == "data":
        for name, needed in NEEDED.items():
            if getattr(options, name) is not None and all(getattr(options, other) is None for other in needed):
                study = "needs a study: name the other configuration with --study OTHER (or use --show DIR)"
                study = study if "show" in needed else study.removesuffix(" (or use --show DIR)")
                parser.error(f"--{name} {study if 'study' in needed else 'needs --show DIR'}")
        chosen = [f"--{name}" for name in ("study", "show", "lhotse") if getattr(options, name) is not None]
        if options.out is not None and chosen and options.study is None:
            parser.error(f"--out is for the audit and for --study: {chosen[0]} names its own folder")
        if len(chosen) > 1:
            parser.error(f"{' and '.join(chosen)} cannot be combined: use one at a time")
    if options.command == "run" and options.debug and (options.detach or options.dry_run or options.out is not None):
        parser.error("--debug writes no run folder and stays in this process: leave out --out, --detach and --dry-run")
    if options.command == "devices" and (problem := device_options.problem(options)) is not None:
        parser.error(problem)
    if options.command == "watch" and not options.web and (len(options.folders) > 1 or options.port is not None):
        parser.error("several runs and --port are for the page: add --web")
    if options.command == "doctor" and options.overrides and options.estimate is None:
        parser.error("doctor takes key=value only with --estimate CONFIG")
