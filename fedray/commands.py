"""What can be said to fedray on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

OF_A_STUDY = ("out", "clients", "utterances", "embeddings")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fedray", description="Federated learning for speech, simulated on Ray.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a configuration", description="Run a configuration to its end.")
    run.add_argument("config", help="a YAML file, such as configs/fednst/embedded.yaml")
    run.add_argument("overrides", nargs="*", metavar="key=value", help="dotted overrides, such as rounds=50 algorithm.alpha=0.3")
    run.add_argument("--out", metavar="DIR", help="the run folder itself, or its URI on object storage (default: runs/<name>-<time>)")
    run.add_argument("--seed", type=int, metavar="N", help="the same as seed=N")
    run.add_argument("--dry-run", action="store_true", help="check the configuration, print it with all defaults, and stop")
    resume = commands.add_parser("resume", help="go on with a run", description="Go on from the newest checkpoint, bit for bit.")
    resume.add_argument("folder", metavar="RUN", help="a run folder")
    resume.add_argument("overrides", nargs="*", metavar="key=value", help="rounds=N, engine.actors=N, ...")
    for command in (run, resume):
        command.add_argument("--detach", action="store_true", help="return when the run is under way; it outlives this terminal")
    watch = commands.add_parser(
        "watch",
        help="show how a run goes",
        description="Show how a run goes until it ends, or what has become of it. Ctrl-C leaves it alone.",
    )
    watch.add_argument("folder", metavar="RUN", help="a run folder")
    stop = commands.add_parser(
        "stop", help="end a run", description="Have a run end after its round, with a checkpoint, and wait for that."
    )
    stop.add_argument("folder", metavar="RUN", help="a run folder")
    stop.add_argument("--now", action="store_true", help="end at once: the round that is being played is lost")
    stop.add_argument("--no-wait", action="store_true", help="ask, and do not wait for the end")
    report = commands.add_parser(
        "report",
        help="tables, figures and a page from runs",
        description="Compare runs: a table here, report.html, report.md, report.csv and figures/ on disk.",
    )
    report.add_argument("paths", nargs="+", metavar="PATH", help="run folders, or folders that hold some: studies, sweeps")
    report.add_argument("--out", metavar="DIR", help="where the files go (default: PATH; ./report for several)")
    report.add_argument("--baseline", metavar="NAME", help="the group that the others are compared with, by its label; first: the first")
    report.add_argument(
        "--metric",
        metavar="KEY",
        help="what is compared, such as test/wer_lm (default: WER or accuracy on test, of clients' own models where they were scored)",
    )
    report.add_argument("--group-by", nargs="+", default=[], metavar="KEY", help="the keys that tell groups apart (default: all but seeds)")
    pretrain = commands.add_parser(
        "pretrain",
        help="train a model to start from, without labels",
        description="Contrastive pre-training, whose weights.pt runs start from (model.init). The same command goes on where it was cut.",
    )
    pretrain.add_argument("config", help="a YAML file, such as configs/fedstar/pretraining.yaml")
    pretrain.add_argument("overrides", nargs="*", metavar="key=value", help="dotted overrides, such as contrastive.epochs=100")
    pretrain.add_argument("--out", metavar="DIR", help="where its files go (default: runs/<name>)")
    sweep = commands.add_parser("sweep", help="run a sweep", description="The same as `python FILE`: FILE --help tells its options.")
    sweep.add_argument("file", metavar="FILE", help="a sweep, such as sweeps/fednst_lambda.py")
    sweep.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its own options and overrides")
    data = commands.add_parser(
        "data", help="show who the clients are", description="Counts, hours, skew and problems of a configuration's data."
    )
    data.add_argument("config")
    data.add_argument("overrides", nargs="*", metavar="key=value")
    data.add_argument(
        "--study",
        nargs="+",
        metavar=("OTHER", "key=value"),
        help="compare what recordings sound like with those of another configuration, overrides of its own behind it: a report",
    )
    data.add_argument("--out", metavar="DIR", help="where the study's report goes (default: runs/data-<name>-<other name>)")
    data.add_argument("--clients", type=int, metavar="N", help="that a study listens to, at most (default: 100)")
    data.add_argument("--utterances", type=int, metavar="N", help="of each of them, at most (default: 10)")
    data.add_argument("--embeddings", metavar="FILE", help="weights of a SpeechBrain ECAPA-TDNN, to tell speakers apart by")
    doctor = commands.add_parser(
        "doctor", help="what will run here", description="Cores, GPUs, Ray, versions: what will run here and how fast; or what a run costs."
    )
    doctor.add_argument("--estimate", metavar="CONFIG", help="time, core- or GPU-hours, traffic and disk of this configuration's run")
    doctor.add_argument("overrides", nargs="*", metavar="key=value", help="of that configuration")
    options, rest = parser.parse_known_args(arguments)
    # argparse takes positionals from one place only: overrides that stand behind an option are left over.
    if unknown := [argument for argument in rest if argument.startswith("-") or "=" not in argument or "overrides" not in options]:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if rest:
        options.overrides += rest
    if (
        options.command == "data"
        and options.study is None
        and (given := [name for name in OF_A_STUDY if getattr(options, name) is not None])
    ):
        parser.error(f"--{given[0]} is a study's: name the other configuration with --study OTHER")
    if options.command == "doctor" and options.overrides and options.estimate is None:
        parser.error("doctor takes key=value only with --estimate CONFIG")
    return options
