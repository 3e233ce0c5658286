"""The house has floors: a module imports what stands below it and nothing else; only the engine and what stands on it know Ray."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "fedray"
BELOW = {
    "core": set(),
    "data": {"core"},
    "models": {"core"},
    "training": {"core", "data", "models"},
    "algorithms": {"core", "training", "models"},
    "engine": {"core"},
    "report": {"core", "data", "engine", "experiment", "programs"},
}
RAY = {"engine", "experiment", "programs", "sweep", "cli", "doctor"}
FILES = sorted(path for path in ROOT.rglob("*.py") if path.name != "__init__.py" or path.parent != ROOT)


def imports(path: Path) -> set[str]:
    """All modules that a file imports, wherever in it, those of `if TYPE_CHECKING` too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the floor"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_keeps_to_its_floor(path: Path) -> None:
    floor = path.relative_to(ROOT).parts[0].removesuffix(".py")
    names = imports(path)
    if floor in BELOW:
        used = {name.split(".")[1] for name in names if name.startswith("fedray.")}
        assert used <= BELOW[floor] | {floor}
    if floor not in RAY:
        assert not any(name.split(".")[0] == "ray" for name in names)


def test_a_report_needs_of_the_engine_the_run_folder_alone() -> None:
    for path in (ROOT / "report").glob("*.py"):
        engine = {name for name in imports(path) if name.startswith("fedray.engine")}
        assert engine <= {"fedray.engine.folder", "fedray.engine.folder.RunFolder"}, path


def test_no_paper_imports_another() -> None:
    for path in (ROOT / "algorithms").glob("*.py"):
        if path.name != "__init__.py":
            assert not any(name.startswith("fedray.algorithms") for name in imports(path)), path


def test_no_file_is_longer_than_300_lines() -> None:
    folders = [ROOT, ROOT.parent / "tests", ROOT.parent / "benchmarks", ROOT.parent / "sweeps"]
    long = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for folder in folders for path in folder.rglob("*.py")}
    assert not {path: lines for path, lines in long.items() if lines > 300}
