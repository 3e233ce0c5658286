"""`fedray new`: the project of every configuration loads, and those of typical ones pass their test and run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedray import experiment
from fedray.cli import main, project
from fedray.config import shipped
from fedray.config.schema import plain

ROOT = Path(__file__).parents[2]
RUNS = [name for name in shipped.files("configs") if not name.startswith("fedstar/pretraining")]  # no federation
# One of each algorithm, with and without a decoder, and a model that needs pretrained weights.
KINDS = [
    "ditto/embedded", "fedavg/keywords", "fedlora/embedded", "fedlora/translation", "fedlora/whisper_small",
    "fedmem/embedded", "fedmem/translation", "fedmem/ablations/attention", "fedmlac/embedded",
    "fedmlac/baselines/fedprox", "fednst/librispeech", "fednst/baselines/nst", "fedstar/embedded",
    "fedstar/baselines/central", "fedstar/baselines/supervised", "gao/ablations/attention", "scaffold/embedded",
]  # fmt: skip


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the modules of another test's project."""
    for module in ("my_algorithm", "test_my_algorithm"):
        monkeypatch.delitem(sys.modules, module, raising=False)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in ("fednst/embedded", *KINDS) else pytest.mark.nightly) for name in RUNS],
)
def test_a_project_has_the_settings_of_its_configuration(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write(tmp_path / "mine", name)
    monkeypatch.chdir(tmp_path / "mine")
    config, source = experiment.load("config.yaml")
    experiment.check_setup(config, source)
    mine, theirs = plain(config), plain(experiment.load(name)[0])
    assert {key for key in mine if mine[key] != theirs[key]} <= {"name", "rounds", "imports", "algorithm"}
    mine, theirs = mine["algorithm"], theirs["algorithm"]
    changed = {key for key in mine if mine[key] != theirs.get(key)}
    assert {"kind", "trust"} <= changed <= {"kind", "trust", "pretrain"} and set(theirs) <= set(mine)
    assert max(len(line) for line in Path("config.yaml").read_text().splitlines()) <= 120


def test_the_files_of_a_project_are_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "my project"
    assert main(["new", str(folder)]) == 0
    said = capsys.readouterr().out
    assert sorted(path.name for path in folder.iterdir()) == sorted(project.FILES)
    assert said.endswith(f"Next:\n  cd '{folder}'\n  python run.py\n  python -m pytest\n")
    assert "name: my-project\n" in (folder / "config.yaml").read_text()
    ruff = ["ruff", "check", "--isolated", "--line-length=120", "--select=E,F,B,UP,SIM", "."]
    subprocess.run([sys.executable, "-m", *ruff], cwd=folder, check=True)
    subprocess.run([sys.executable, "-m", "ruff", "format", "--line-length=120", "--diff", "."], cwd=folder, check=True)


@pytest.mark.parametrize("name", ["true", "1e5", "null", "0x10"])
def test_a_folder_may_have_the_name_of_a_value(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write(tmp_path / name, "fednst/embedded")
    monkeypatch.chdir(tmp_path / name)
    assert experiment.load("config.yaml")[0].name == name


def test_a_corpus_on_disk_asks_for_its_folder(tmp_path: Path) -> None:
    said = project.write(tmp_path / "mine", "configs/fednst/librispeech.yaml")
    assert "  python run.py data.root=FOLDER  # of the corpus librispeech\n" in said
    assert "\ndata:\n  root: null  # the folder of" in (tmp_path / "mine" / "config.yaml").read_text()


def test_a_file_of_the_users_own_is_extended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "helper_of_mine.py").write_text("")
    mine = "cohort: {size: 2}\nrounds: 7\nname: mine\ndata: {corpus: tsv, root: speech, options: {train: [a.tsv]}}\n"
    mine += "task: recognition\nmodel: conformer\nalgorithm: fedprox\nimports: [helper_of_mine]\n"
    (tmp_path / "mine.yaml").write_text(mine)
    assert main(["new", "project", "--from", "mine.yaml"]) == 0
    said = capsys.readouterr().out
    assert (
        f"  export PYTHONPATH={tmp_path}  # for helper_of_mine, which ../mine.yaml imports\n  python run.py\n" in said
    )
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.syspath_prepend(tmp_path)
    config, _ = experiment.load("config.yaml")
    assert config.imports == ["helper_of_mine", "my_algorithm"] and config.data.root == str(tmp_path / "speech")
    assert config.algorithm.kind == "mine" and config.cohort.size == 2 and config.rounds == project.ROUNDS
    assert "class MyAlgorithm(FedProx)" in Path("my_algorithm.py").read_text()
    (tmp_path / "my_algorithm.py").write_text("")
    (tmp_path / "mine.yaml").write_text(mine.replace("helper_of_mine", "my_algorithm"))
    monkeypatch.delitem(sys.modules, "my_algorithm")
    with pytest.raises(ValueError, match="imports my_algorithm, as the project's own file is called: rename the file"):
        project.write(tmp_path / "again", str(tmp_path / "mine.yaml"))


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    for folder, wrong in ((tmp_path, "not empty"), (tmp_path / "file", "a file")):
        assert main(["new", str(folder)]) == 2
        assert f"{folder} is {wrong}: name a new folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("fednst/embeded", "the nearest names are fednst/embedded"),
        ("fedstar/pretraining", "not one for `fedray pretrain`"),
    ],
)
def test_what_is_no_run_is_refused(name: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        project.write(tmp_path / "mine", name)
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["fednst/embedded", *KINDS])
def test_the_test_of_a_project_passes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workbench: None
) -> None:
    project.write(tmp_path / "mine", name)
    monkeypatch.chdir(tmp_path / "mine")
    monkeypatch.syspath_prepend(tmp_path / "mine")
    import test_my_algorithm  # the test of the project

    test_my_algorithm.test_a_run_ends_with_a_score(tmp_path)


@pytest.mark.nightly
def test_a_project_runs_and_sweeps(tmp_path: Path, cache: Path) -> None:
    """A project passes its test, runs and sweeps as its README says, on a smaller corpus."""
    project.write(tmp_path / "mine", "fednst/embedded")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_ADDRESS": ""}
    few = [f"data.options.{part}_speakers=4" for part in ("server", "client", "dev", "test", "test_server")]
    small = [*few, "cohort.size=2", "algorithm.pretrain.steps=20"]
    for command in (["-m", "pytest"], ["run.py", *small], ["sweep.py", "--smoke", *small]):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path / "mine", env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "mine" / "runs" / "trust" / "report.html").exists()
