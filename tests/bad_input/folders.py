"""Damaged run folders, caches and weights, and places where nothing can be written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from fedray.report.predictions import NEEDED
from tests.bad_input.case import RUN, Case, answer
from tests.bad_input.corpus import CONFIG, LATIN, both, put

TOTALS = {"traffic/total_bytes": 0, "clients/failed": 0, "time/total_s": 1.0}
RESULTS = {
    **TOTALS,
    "name": "case",
    "rounds": 3,
    "seed": {"round": 0, "test/wer": 50.0},
    "best": {"round": 2, "test/wer": 40.0},
}
BEGAN = {"data": "0", "data_copied": "0", "texts": [], "imports": {}, "files": {}, "settings": {}}


def run(*without: str, **files: str | bytes) -> Callable[[Path], object]:
    """Make a run folder `done` without some files and with others replaced by `files` (`__` stands for a dot)."""

    def make(folder: Path) -> None:
        done = folder / "done"
        done.mkdir()
        texts: dict[str, str | bytes] = {
            "config.yaml": CONFIG,
            "run.json": json.dumps(BEGAN),
            "results.json": json.dumps(RESULTS),
            "metrics.jsonl": json.dumps({"round": 1, "train/loss": 1.0}) + "\n",
        }
        for name, content in {**texts, **{name.replace("__", "."): text for name, text in files.items()}}.items():
            data = content.encode() if isinstance(content, str) else content
            if name not in without:
                (done / name).write_bytes(data)

    return make


def pruned(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def replaced(name: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    """Put something else in place of a file of the run folder."""

    def change(folder: Path) -> None:
        (folder / "done" / name).unlink()
        make(folder / "done" / name)

    return change


def linked(name: str) -> Callable[[Path], object]:
    return replaced(name, lambda path: path.symlink_to("../config.yaml"))


def piped(name: str) -> Callable[[Path], object]:
    return replaced(name, os.mkfifo)


def opened(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "done" / name).chmod(0o666)


LAUGHS = "a0: &a0 [1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 7)}]\n" for n in range(1, 9)
)
WATCH, RESUME, REPORT, EXPORT = "watch done", "resume done", "report done --out page", "export done"
FILE = put("file", "mine\n")


def weights(name: str, content: bytes, *says: str) -> Case:
    model = "{kind: conformer, d_model: 8, layers: 1, heads: 1, ffn: 8, kernel: 3, init: w.pt}"
    text = CONFIG.replace("{kind: conformer, d_model: 8, layers: 1, heads: 1, ffn: 8, kernel: 3}", model)
    return Case(f"weights: {name}", ("w.pt", *says), both(put("config.yaml", text), put("w.pt", content)))


def damaged(change: Callable[[bytes], bytes], name: str, hashed: bool) -> Callable[[Path], object]:
    """Make features with a run, then change a file of each feature cache. `hashed`: the caches keep their hashes."""

    def make(folder: Path) -> None:
        answer(folder, RUN, {})
        features = folder / "cache" / "features"
        for path in features.glob(f"*/{name}"):
            path.write_bytes(change(path.read_bytes()))
        for path in [] if hashed else features.glob("*.hashes"):
            path.unlink()

    return make


def cache(
    name: str,
    what: str,
    *says: str,
    change: Callable[[bytes], bytes] = lambda whole: whole[: len(whole) // 2],
    hashed: bool = False,
) -> Case:
    says = (name, "This is a cache: remove", *says)
    return Case(f"feature cache: {name} {what}", says, damaged(change, name, hashed))


CASES = (
    cache("frames.f16", "cut", "is truncated"),
    cache("frames.f16", "empty", "is truncated", change=lambda _: b""),
    cache(
        "frames.f16",
        "with other numbers",
        "has changed since it was written",
        change=lambda whole: whole[::-1],
        hashed=True,
    ),
    cache("offsets.npy", "cut", "is truncated"),
    cache("offsets.npy", "a pickle", change=lambda _: b"\x80\x04K\x01."),
    cache("store.json", "cut", "is damaged"),
    cache("store.json", "of another shape", "is damaged", change=lambda _: b"[1]"),
    Case("run folder: not there", ("nowhere", "is not a run folder"), command="watch nowhere"),
    Case("run folder: not there, in the browser", ("nowhere", "no such folder"), command="watch nowhere --web"),
    Case("run folder: several without --web", "add --web", command="watch one two"),
    Case("run folder: an empty name", "is empty", command="watch ''"),
    Case("run folder: a file", ("file", "is not a run folder"), FILE, "watch file"),
    Case("run folder: not there, resumed", ("nowhere", "is not a run folder"), command="resume nowhere"),
    Case("run folder: no config.yaml", ("done", "has no config.yaml"), run("config.yaml"), RESUME),
    Case("run folder: config.yaml cut", ("done/config.yaml", "is not valid YAML"), run(config__yaml="a: [1"), RESUME),
    Case("run folder: config.yaml empty", ("done/config.yaml", "cohort"), run(config__yaml=""), RESUME),
    Case("run folder: config.yaml in Latin-1", ("done/config.yaml", "UTF-8"), run(config__yaml=b"name: \xe9"), RESUME),
    Case("run folder: no run.json", ("done", "run.json"), run("run.json"), RESUME),
    Case("run folder: run.json cut", ("done/run.json", "not JSON"), run(run__json='{"data"'), RESUME),
    Case("run folder: run.json of another shape", "done/run.json", run(run__json="[1]"), RESUME),
    Case("run folder: run.json without its keys", "done/run.json", run(run__json="{}"), RESUME),
    Case("run folder: other data", ("done", "the data differ"), run(), RESUME),
    Case("run folder: an override of what may not change", "cannot be changed on resume", run(), f"{RESUME} seed=3"),
    Case("watch: results.json cut", ("done/results.json", "is not JSON"), run(results__json="{"), WATCH),
    Case("watch: results.json is a list", "done/results.json", run(results__json="[]"), WATCH),
    Case("watch: results.json is empty", ("done/results.json", "is not JSON"), run(results__json=""), WATCH),
    Case(
        "watch: results.json without scores",
        ("done/results.json", "lacks the scores"),
        run(results__json='{"rounds": 3}'),
        WATCH,
    ),
    Case(
        "watch: results.json with words for numbers",
        "done/results.json",
        run(results__json=json.dumps({**RESULTS, "best": {"round": 1, "test/wer": "x"}})),
        WATCH,
    ),
    Case("watch: results.json with rounds as a word", "done/results.json", run(results__json='{"rounds": "3"}'), WATCH),
    Case("watch: results.json in Latin-1", "done/results.json", run(results__json=b'{"name": "\xe9"}'), WATCH),
    Case("watch: results.json nested 100,000 deep", "done/results.json", run(results__json="[" * 100_000), WATCH),
    Case("watch: driver.json cut", ("done/driver.json", "is not JSON"), run(driver__json="{"), WATCH),
    Case("watch: driver.json of another shape", "done/driver.json", run(driver__json="[]"), WATCH),
    Case(
        "stop: results.json without scores",
        ("done/results.json", "lacks the scores"),
        run(results__json='{"rounds": 3}'),
        "stop done",
    ),
    Case(
        "report: config.yaml with aliases of aliases",
        ("done/config.yaml", "more than 100,000 values"),
        run(config__yaml=LAUGHS),
        REPORT,
    ),
    Case("report: config.yaml in itself", "more than 100,000 values", run(config__yaml="a: &a [*a]"), REPORT),
    Case("report: a link out of the folder", ("done/run.json", "is a link"), both(run(), linked("run.json")), REPORT),
    Case("report: a pipe", ("done/metrics.jsonl", "is a named pipe"), both(run(), piped("metrics.jsonl")), REPORT),
    Case("resume: a folder that all can write", "can be written by all", both(run(), opened("config.yaml")), RESUME),
    Case(
        "report: a folder without runs",
        ("done", "holds no run: a run folder"),
        lambda folder: (folder / "done").mkdir(),
        REPORT,
    ),
    Case("report: not there", "no such folder: name a run folder", command="report nowhere"),
    Case("report: config.yaml is no YAML", "done/config.yaml", run(config__yaml="a: [1"), REPORT),
    Case("report: config.yaml is a list", "done/config.yaml", run(config__yaml="[1]"), REPORT),
    Case("report: results.json cut", "done/results.json", run(results__json="{"), REPORT),
    Case("report: results.json without scores", "done/results.json", run(results__json="{}"), REPORT),
    Case(
        "report: results.json with words for numbers",
        "done/results.json",
        run(results__json=json.dumps({**RESULTS, "best": {"round": 1, "test/wer": "x"}})),
        REPORT,
    ),
    Case("report: metrics.jsonl cut", "done/metrics.jsonl:1", run(metrics__jsonl='{"round"\n'), REPORT),
    Case("report: metrics.jsonl of another shape", "done/metrics.jsonl:1", run(metrics__jsonl="3\n"), REPORT),
    Case(
        "report: metrics.jsonl with words for numbers",
        "done/metrics.jsonl:1",
        run(metrics__jsonl='{"round": 1, "train/loss": "x"}\n'),
        REPORT,
    ),
    Case(
        "report: metrics.jsonl nested 100,000 deep",
        "done/metrics.jsonl:1",
        run(metrics__jsonl="[" * 100_000 + "\n"),
        REPORT,
    ),
    Case(
        "report: clients.parquet with another header",
        ("done/clients.parquet", "is damaged"),
        run(clients__parquet=b"PAR1" + b"\xff" * 20 + b"\x0c\x00\x00\x00PAR1"),
        REPORT,
    ),
    Case(
        "report: clients.parquet with a column named in Latin-1",
        ("done/clients.parquet", "is damaged"),
        run(clients__parquet=LATIN),
        REPORT,
    ),
    Case(
        "report: trips.jsonl with another row",
        ("done/trips.jsonl:1", "is not a trip"),
        run(trips__jsonl='{"round": 1}\n'),
        REPORT,
    ),
    Case(
        "report: trips.parquet that is no Parquet file",
        ("done/trips.parquet", "is damaged"),
        run(trips__parquet="PAR1"),
        REPORT,
    ),
    Case("report: a target that nothing can reach", "has a dev score", run(), f"{REPORT} --target 40"),
    Case("report: metrics.jsonl in Latin-1", "done/metrics.jsonl", run(metrics__jsonl=b"\xe9\n"), REPORT),
    Case(
        "report: predictions.tsv without rows",
        ("done/predictions.tsv", "lists no utterances"),
        run(predictions__tsv="\t".join((*NEEDED, "errors")) + "\n"),
        REPORT,
    ),
    Case("report: predictions.tsv cut", "done/predictions.tsv", run(predictions__tsv="utterance\tmod"), REPORT),
    Case(
        "report: predictions.tsv in Latin-1", "done/predictions.tsv", run(predictions__tsv=b"utterance\n\xe9\n"), REPORT
    ),
    Case("report: a metric that no run has", ("no run has the metric", "test/wer"), run(), f"{REPORT} --metric wr"),
    Case("report: a baseline that is no group", "is not a group", run(), f"{REPORT} --baseline other"),
    Case("report: --out is a file", ("file", "is a file"), both(run(), FILE), "report done --out file"),
    Case("export: a run without a model", "done", run(), EXPORT),
    Case("run: --out is a file", ("file", "is a file"), FILE, "run config.yaml --out file"),
    Case("run: --out below a file", ("file", "is a file"), FILE, "run config.yaml --out file/run"),
    Case("run: --out in /proc", ("/proc/x",), command="run config.yaml --out /proc/x"),
    Case("run: --out of 300 characters", "x" * 300, command=f"run config.yaml --out {'x' * 300}"),
    Case("run: --out is empty", "is empty", command="run config.yaml --out ''"),
    Case(
        "run: --out holds other files",
        ("done", "is not empty"),
        both(run("config.yaml"), FILE),
        "run config.yaml --out done",
    ),
    Case("run: --out is an unknown scheme", "nfs5://x", command="run config.yaml --out nfs5://x/y"),
    Case("new: a folder that is not empty", ("done", "is not empty"), run(), "new done"),
    Case("new: a file", ("file is a file",), FILE, "new file"),
    Case("new: below a file", ("file", "is a file"), FILE, "new file/mine"),
    Case("data --show: a file", ("file", "is a file"), FILE, "data config.yaml --show file"),
    Case("data --lhotse: a file", ("file", "is a file"), FILE, "data config.yaml --lhotse file"),
    Case(
        "pretrain: --out is a file",
        ("file", "is a file"),
        both(FILE, put("pre.yaml", "data: {corpus: tsv, root: ., options: {train: [clients.tsv]}}\n")),
        "pretrain pre.yaml --out file",
    ),
    weights("empty", b"", "cut short"),
    weights("text", b"weights\n", "w.pt"),
    weights("a pickle", b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94.", "w.pt"),
    weights("a cut archive", b"PK\x03\x04" + b"\0" * 40, "w.pt"),
)
