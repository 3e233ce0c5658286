"""A run folder may come from anybody: what it names is not read, and what is too large is refused before it is read."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from fedray import cli, report
from fedray.config import bounded
from tests import small_corpus
from tests.report.folders import config, write

SECRET = "hunter2-is-the-secret"
pytestmark = pytest.mark.usefixtures("unrendered", "no_ray")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    monkeypatch.delenv("FEDRAY_AUDIO", raising=False)


def private(folder: Path) -> Path:
    """A folder of the reader that is none of the run's business: a recording, and a table that lists it."""
    folder.mkdir()
    small_corpus.write(folder, test=[(f"{name}-{number}", name, "one") for name in ("ann", "bob") for number in (0, 1)])
    header, *rows = (folder / "test.tsv").read_text().splitlines()
    rows = [f"{header}\tid", *(f"{row}\t{row.partition('.')[0]}" for row in rows)]
    (folder / "test.tsv").write_text("\n".join(rows) + "\n")
    (folder / "secret.txt").write_text(f"{SECRET}\n")
    return folder


def naming(folder: Path, data: dict[str, Any]) -> Path:
    """A run folder whose corpus is what a stranger wrote into its configuration."""
    made = write(folder)
    values = config() | {"data": config()["data"] | data}
    if "corpus" not in data:
        values["data"]["options"] = {"id_column": "id"} | data["options"]
    (made / "config.yaml").write_text(yaml.safe_dump(values))
    return made


def page_of(folder: Path, *audio: Path) -> str:
    return Path(report.write(folder, audio=audio)).read_text()


@pytest.mark.long
@pytest.mark.parametrize("named", [False, True], ids=["no folder named", "another folder named"])
def test_recordings_elsewhere_are_not_embedded(tmp_path: Path, named: bool) -> None:
    """By a root, by a table of the run that names absolute paths, by a table elsewhere, by a link."""
    mine, shared = private(tmp_path / "mine"), tmp_path / "shared"
    shared.mkdir()
    rows = (mine / "test.tsv").read_text().splitlines()
    absolute = [rows[0], *(f"{mine}/{row}" for row in rows[1:])]
    (shared / "absolute.tsv").write_text("\n".join(absolute) + "\n")
    (shared / "linked.tsv").write_text("\n".join(rows) + "\n")
    for recording in mine.glob("*.wav"):
        (shared / recording.name).symlink_to(recording)
    corpora = {
        "root": {"root": str(mine), "options": {"test": ["test.tsv"]}},
        "absolute": {"root": str(shared), "options": {"test": ["absolute.tsv"]}},
        "elsewhere": {"root": str(shared), "options": {"test": [str(mine / "test.tsv")]}},
        "above": {"root": str(shared), "options": {"test": ["../mine/test.tsv"]}},
        "link": {"root": str(shared), "options": {"test": ["linked.tsv"]}},
        "secret": {"root": str(shared), "options": {"test": ["../mine/secret.txt"]}},
        "synthetic": {"corpus": "embedded", "root": None, "options": {"test": [str(mine / "secret.txt")]}},
    }
    for name, data in corpora.items():
        text = page_of(naming(tmp_path / name, data), *[shared] * named)
        assert "<audio" not in text and "No audio" in text and SECRET not in text, name
    assert "<audio" in page_of(naming(tmp_path / "open", corpora["root"]), mine)  # the control


@pytest.mark.long
def test_the_environment_stays_closed(tmp_path: Path) -> None:
    for number, text in enumerate(["${oc.env:SECRET}", r"\${oc.env:SECRET}", r"\\${oc.env:SECRET}"]):
        data = {"root": f"/x/{text}", "options": {"test": [text], "text_column": text}}
        folder = naming(tmp_path / str(number), data)
        assert SECRET not in page_of(folder) and SECRET not in page_of(folder, tmp_path)


def laughs() -> str:
    lines = ["a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return "\n".join(lines) + "\n"


def sparse(path: Path, size: int) -> None:
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def linked(path: Path) -> None:
    target = path.parents[1] / "secret.txt"
    target.write_text(f"{{secret: {SECRET}}}")
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def piped(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def repeated(path: Path) -> None:
    """Thirty million times nothing, in a few kilobytes."""
    pq.write_table(pa.table({"client": pa.nulls(3 * 10**7)}), path, compression="zstd")
    assert path.stat().st_size < 10**6


def endless(path: Path) -> None:
    """A reference of twenty thousand words, which nobody says."""
    header, row, *rest = path.read_text().splitlines()
    cells = row.split("\t")
    cells[header.split("\t").index("reference")] = "ha " * 20_000
    path.write_text("\n".join([header, "\t".join(cells), *rest]) + "\n")


HOSTILE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "aliases of aliases": ("config.yaml", lambda path: path.write_text(laughs()), "more than 100,000 values"),
    "a value in itself": ("config.yaml", lambda path: path.write_text("a: &a [*a]\n"), "more than 100,000 values"),
    "deep YAML": ("config.yaml", lambda path: path.write_text("[" * 5_000), "config.yaml: is not YAML"),
    "large YAML": ("config.yaml", lambda path: sparse(path, 10**7), "config.yaml: is larger than 4 MB"),
    "deep JSON": ("results.json", lambda path: path.write_text("[" * 10**6), "results.json: is nested too deep"),
    "large JSON": ("results.json", lambda path: sparse(path, 10**10), "results.json: is larger than 64 MB"),
    "a large table": ("metrics.jsonl", lambda path: sparse(path, 10**12), "metrics.jsonl: is larger than 1,000 MB"),
    "a configuration elsewhere": ("config.yaml", linked, "config.yaml: is a link that leads out of the run folder"),
    "scores elsewhere": ("results.json", linked, "results.json: is a link that leads out of the run folder"),
    "a table elsewhere": ("audit.tsv", linked, "audit.tsv: is a link that leads out of the run folder"),
    "reconstructions elsewhere": ("audit.pt", linked, "audit.pt: is a link that leads out of the run folder"),
    "large reconstructions": ("audit.pt", lambda path: sparse(path, 10**12), "audit.pt: is larger than 1,000 MB"),
    "a pipe": ("failures.jsonl", piped, "failures.jsonl is a named pipe, not a file"),
    "a Parquet bomb": ("clients.parquet", repeated, "clients.parquet: is damaged (it holds 30,000,000 rows"),
    "endless speech": ("predictions.tsv", endless, "predictions.tsv: a text has more than 50,000 bytes"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_refused_at_once(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, spoil, words = HOSTILE[kind]
    folder = write(tmp_path / "run")
    spoil(folder / name)
    before = time.monotonic()
    assert cli.main(["report", str(folder)]) == 2
    assert time.monotonic() - before < 20
    said = capsys.readouterr().err
    assert words in said and SECRET not in said and not (folder / "report.html").exists()


def test_only_own_links_lead_to_further_runs(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make another user's link")
    write(tmp_path / "mine" / "private")
    shared = tmp_path / "shared"
    write(shared / "run")
    (shared / "linked").symlink_to(tmp_path / "mine" / "private")
    assert len(report.read(shared).runs) == 2
    os.lchown(shared / "linked", 65534, 65534)
    assert len(report.read(shared).runs) == 1


def test_runs_are_listed_without_running_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`fedray runs` imports nothing, resolves nothing and opens no pipe."""
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("raise SystemExit('imported')")
    write(tmp_path / "runs" / "a", config(imports=["evil"], name="${oc.env:SECRET}"))
    (write(tmp_path / "runs" / "b") / "config.yaml").write_text(laughs())
    piped(write(tmp_path / "runs" / "c") / "error.txt")
    shutil.copy(write(tmp_path / "runs" / "d") / "run.json", "other.json")
    assert cli.main(["runs", "runs"]) == 0
    said = capsys.readouterr().out
    assert "0 of 3" in said and "more than 100,000 values" in said and "named pipe" in said and SECRET not in said


def test_only_own_folders_are_resumed_and_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both import the modules that a configuration names."""
    if os.getuid() != 0:
        pytest.skip("only root can make another user's folder")
    folder = write(tmp_path / "run", config(imports=["evil"]))
    (folder / "model").mkdir()
    (folder / "model" / "model.pt").touch()
    os.chown(folder / "config.yaml", 65534, 65534)
    for command in ("resume", "export"):
        assert cli.main([command, str(folder)]) == 2
        said = capsys.readouterr().err
        assert "config.yaml belongs to the user" in said and "copy the folder if you trust that user" in said
    os.chown(folder / "config.yaml", 0, 0)
    (folder / "config.yaml").chmod(0o666)
    assert cli.main(["resume", str(folder)]) == 2 and "can be written by all users" in capsys.readouterr().err


def test_ordinary_aliases_are_read() -> None:
    text = "a: &a {x: 1, y: [2, 3]}\nb: *a\nc: {<<: *a, x: 4}\n"
    assert bounded.plain(text) == json.loads(
        '{"a": {"x": 1, "y": [2, 3]}, "b": {"x": 1, "y": [2, 3]}, "c": {"x": 4, "y": [2, 3]}}'
    )


def test_a_link_to_a_run_is_no_second_run(tmp_path: Path) -> None:
    write(tmp_path / "runs" / "one", config(seed=1))
    (tmp_path / "runs" / "latest").symlink_to("one")
    assert len(report.read(tmp_path / "runs").runs) == 1
