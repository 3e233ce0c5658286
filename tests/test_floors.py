"""fedray has layers: a package imports only from those below it, no imports form a cycle, and only the
upper packages import Ray.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import cycles, imports, modules

ROOT = Path(__file__).parent.parent / "fedray"
LEARNING = {"core", "storage", "data", "models", "training"}
BELOW = {
    "core": set(),
    "config": {"core"},
    "storage": {"core"},
    "runs": {"core", "config", "storage"},
    "data": {"core", "config", "storage"},
    "models": {"core", "storage"},
    "training": {"core", "config", "storage", "data", "models"},
    "algorithms": LEARNING | {"config"},
    "engine": {"core", "config", "storage", "runs"},
    "experiment": LEARNING | {"config", "runs", "algorithms", "engine"},
    "report": LEARNING | {"config", "runs", "engine", "experiment"},
    "live": {"core", "config", "storage", "runs", "report"},
    "sweep": LEARNING | {"config", "runs", "engine", "experiment", "report"},
    "doctor": LEARNING | {"config", "runs", "engine", "experiment"},
    "cli": LEARNING | {"config", "runs", "algorithms", "engine", "experiment", "report", "live", "sweep", "doctor"},
}
RAY = {"engine", "experiment", "sweep", "doctor", "cli"}
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT)


def test_every_package_has_its_layer() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == set(BELOW), "a new package needs a line in BELOW"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_keeps_to_its_floor(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    names = imports(path)
    used = {name.split(".")[1] for name in names if name.startswith("fedray.")}
    assert used & set(BELOW) <= BELOW[package] | {package}
    if package not in RAY:
        assert not any(name.split(".")[0] == "ray" for name in names)


ENGINE = ["settings", "telemetry", "cluster", "jobs", "actors", "lane", "round", "options", "driver"]


def test_the_rooms_of_the_engine_stand_one_above_the_other() -> None:
    """A lane knows actors as types only, since it is trained without Ray."""
    for path in (ROOT / "engine").rglob("*.py"):
        room = path.relative_to(ROOT / "engine").parts[0].removesuffix(".py")
        used = {name.split(".")[2] for name in imports(path) if name.startswith("fedray.engine.")}
        assert room == "__init__" or used <= {*ENGINE[: ENGINE.index(room) + 1]}, path


def test_no_files_import_one_another_in_a_cycle() -> None:
    files = modules(ROOT)
    assert not cycles({name: imports(path) & set(files) - {name} for name, path in files.items()})


def test_private_names_of_ray_stand_in_one_file() -> None:
    private = re.compile(r"\bray\._(?!_)|\bray\.air\b|\b(logger|super\(\)|trial|actor)\._(?!_)")
    found = {path.name for path in FILES if path.relative_to(ROOT).parts[0] in RAY and private.search(path.read_text())}
    assert found == {"ray_private.py"}


def test_no_paper_imports_another() -> None:
    papers = [path for path in (ROOT / "algorithms").glob("*.py") if path.stem not in ("__init__", "base")]
    for path in papers:
        others = {name for name in imports(path) if name.startswith("fedray.algorithms.")}
        assert all(name.startswith("fedray.algorithms.base") for name in others), path


def test_no_file_is_longer_than_300_lines() -> None:
    folders = [ROOT, ROOT.parent / "tests", ROOT.parent / "benchmarks", ROOT.parent / "sweeps"]
    long = {
        str(path): len(path.read_text(encoding="utf-8").splitlines())
        for folder in folders
        for path in folder.rglob("*.py")
    }
    assert not {path: lines for path, lines in long.items() if lines > 300}


def test_actors_do_not_load_what_few_runs_need() -> None:
    """Each of thousands of actors would pay at its start: half a second for SciPy's parts, another for plots."""
    heavy = ("scipy.stats", "scipy.optimize", "matplotlib", "pandas", "torchaudio", "speechbrain", "ray.tune")
    code = f"import sys, fedray.engine.driver.driver; print(*[name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT.parent, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_help_loads_neither_torch_nor_ray() -> None:
    code = (
        "import sys, fedray.cli; print(*[name for name in ('torch', 'ray', 'pandas', 'scipy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT.parent, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
