"""What `pip install fedray` installs: wheel and sdist are built, and the wheel is used in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fedray.cli import project
from fedray.config import shipped

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "RAY_ADDRESS")}


def files(folder: Path) -> set[str]:
    """The files below a folder, without those that Python compiles."""
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix() for path in found}


def build(folder: Path, *targets: str) -> Path:
    """Build the project in `folder`, and return the folder of the builds."""
    out = folder.parent / f"built-{folder.name}"
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(out)]
    done = subprocess.run(
        [*command, *(f"--target={target}" for target in targets)], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the sdist unpacks to."""
    out = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(out), "--target=sdist"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (archive,) = out.glob("fedray-*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(out, filter="data")
    (folder,) = out.glob("fedray-*/")
    return folder


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """The wheel, built from the sdist, as an installer does if it finds no wheel."""
    (found,) = build(sdist, "wheel").glob("fedray-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that has the wheel and sees this environment's dependencies."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], env=ENVIRONMENT, check=True)
    (packages,) = (home / "lib").glob("python*/site-packages")
    # A line of a .pth file adds a folder, but not the .pth files in it, so an editable fedray there is not seen.
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    return home / "bin"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """An empty folder, from which nothing in the clone is found."""
    return tmp_path


def run(installed: Path, here: Path, *arguments: str, status: int = 0) -> str:
    done = subprocess.run(
        [installed / arguments[0], *arguments[1:]], cwd=here, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_sdist_holds_the_package_and_its_tests(sdist: Path) -> None:
    for folder in ("fedray", "configs", "sweeps", "tests"):
        assert files(sdist / folder) == files(ROOT / folder)
    assert {"README.md", "LICENSE", "pyproject.toml", "Makefile", "CONTRIBUTING.md"} <= files(sdist)


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        held = {name for name in opened.namelist() if ".dist-info/" not in name}
    expected = {f"fedray/{name}" for name in files(ROOT / "fedray")}
    expected |= {f"fedray/shipped/{kind}/{name}" for kind in shipped.ENDINGS for name in files(ROOT / kind)}
    assert held == expected
    assert {"fedray/py.typed", "fedray/report/page.html", "fedray/shipped/configs/fednst/embedded.yaml"} <= held


@pytest.mark.long
def test_the_wheel_is_used_without_the_clone(installed: Path, here: Path) -> None:
    where = run(installed, here, "python", "-c", "import fedray; print(fedray.__file__)")
    assert where.startswith(str(installed.parent))
    assert run(installed, here, "fedray", "--version").startswith("fedray ")
    for kind in shipped.ENDINGS:
        listed = run(installed, here, "fedray", kind)
        assert all(f"  {name} " in listed for name in shipped.files(kind))


@pytest.mark.nightly
def test_a_configuration_and_one_that_extends_it_load_by_name(installed: Path, here: Path) -> None:
    assert "name: fednst-embedded\n" in run(installed, here, "fedray", "run", "fednst/embedded", "--dry-run")
    text = run(installed, here, "fedray", "run", "fednst/baselines/sfl", "rounds=3", "--dry-run")
    assert "kind: fedavg\n" in text and "rounds: 3\n" in text
    assert "the nearest names are fednst/embedded" in run(
        installed, here, "fedray", "run", "fednst/embeded", "--dry-run", status=2
    )


@pytest.mark.nightly
def test_the_base_of_a_sweep_is_found_from_any_folder(installed: Path, here: Path) -> None:
    assert "Swept:\n  regime" in run(installed, here, "fedray", "sweep", "gao_regimes", "--help")
    # The command reads the bases before it refuses the override of a swept key.
    text = run(installed, here, "fedray", "sweep", "fednst_lambda", "algorithm.alpha=x", status=2)
    assert "algorithm.alpha" in text and "there is no file" not in text


@pytest.mark.nightly
def test_a_new_project_loads(installed: Path, here: Path) -> None:
    run(installed, here, "fedray", "new", "mine", "--from", "fednst/embedded")
    assert files(here / "mine") == set(project.FILES)
    text = run(installed, here / "mine", "fedray", "run", "config.yaml", "--dry-run")
    assert "kind: mine\n" in text and "trust: 0.9\n" in text


@pytest.mark.nightly
def test_a_new_project_passes_its_test(installed: Path, here: Path, cache: Path) -> None:
    run(installed, here, "fedray", "new", "mine", "--from", "fednst/embedded")
    assert "1 passed" in run(installed, here / "mine", "python", "-m", "pytest")
    small = ["client", "server", "dev", "test", "test_server"]
    few = [f"data.options.{part}_speakers=4" for part in small]
    run(installed, here / "mine", "fedray", "run", "config.yaml", *few, "cohort.size=2", "--out", "run")
    assert "report: run/report.html" in run(installed, here / "mine", "fedray", "report", "run")


def test_constraints_satisfy_the_project_and_name_no_host() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    tested = {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needs = [*project["dependencies"], *(need for extra in extras.values() for need in extra)]
    for need in map(Requirement, needs):
        if need.name not in ("fedray", "optuna", "tensorboard") and (need.marker is None or need.marker.evaluate()):
            assert need.specifier.contains(tested[canonicalize_name(need.name)]), need
