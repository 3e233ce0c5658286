"""Wheels for a machine without a network that has torch, torchaudio, numpy, scipy, pyarrow and transformers.

`python -m tests.gpu.wheels download DIR` here downloads what that machine may lack, except Ray. `python -m
tests.gpu.wheels install DIR` there installs what it does lack.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# Needed by the modules of fedray that the checks import, in the versions of this machine. Ray is not among them.
PACKAGES = (
    "speechbrain",
    "HyperPyYAML",
    "ruamel.yaml",
    "ruamel.yaml.clib",
    "omegaconf",
    "jiwer",
    "RapidFuzz",
    "click",
    "soundfile",
    "cffi",
    "pycparser",
    "sentencepiece",
    "faiss-cpu",
    "filelock",
    "platformdirs",
    "PyYAML",
    "rich",
    "Pygments",
    "markdown-it-py",
    "mdurl",
    "joblib",
    "tqdm",
    "packaging",
    "typing_extensions",
)
STANDS_IN = {"faiss-cpu": "faiss-gpu"}  # either of the two will do, here and there
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
LARGEST = 60e6  # bytes of all wheels, of the 64 MiB that may travel with a clone


def download(folder: Path, python: str, also: Sequence[str] = ()) -> int:
    """Download the wheels for another Python on x86-64 Linux. Status 1: pip failed, or they are too large."""
    wanted = [f"{name}=={version}" if (version := _version(name)) else name for name in (*PACKAGES, *also)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", python, "--implementation", "cp", "--dest", str(folder)]
    for platform in (*PLATFORMS, "manylinux1_x86_64"):
        command += ["--platform", platform]
    status = subprocess.run([*command, *wanted], check=False).returncode
    size = sum(path.stat().st_size for path in folder.glob("*.whl"))
    print(f"{folder}: {size / 1e6:.1f} MB in {len(list(folder.glob('*.whl')))} wheels")
    if size > LARGEST:
        print(f"more than {LARGEST / 1e6:.0f} MB: leave out what --also names", file=sys.stderr)
    return int(status != 0 or size > LARGEST)


def install(folder: Path) -> int:
    """Install the wheels of packages that this Python lacks. Installed packages stay, whatever their versions."""
    found = sorted(folder.glob("*.whl"))
    if not found:
        print(f"{folder} holds no wheels: make it with `python -m tests.gpu.wheels download {folder}`", file=sys.stderr)
        return 1
    missing = [path for path in found if not _there(path.name.partition("-")[0])]
    print(f"installing {', '.join(path.name.partition('-')[0] for path in missing) or 'nothing'}")
    if not missing:
        return 0
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    return subprocess.run(
        [*command, "--no-index", "--find-links", str(folder), *map(str, missing)], check=False
    ).returncode


def _there(name: str) -> bool:
    plain = re.sub(r"[-_.]+", "-", name).lower()
    return bool(_version(plain) or (plain in STANDS_IN and _version(STANDS_IN[plain])))


def _version(name: str) -> str:
    """The installed version; empty if the package is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.wheels")
    parser.add_argument("what", choices=("download", "install"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", help="the Python of the other machine")
    parser.add_argument("--also", nargs="*", default=[], help="further packages to download, such as scipy")
    arguments = parser.parse_args()
    if arguments.what == "install":
        return install(arguments.folder)
    return download(arguments.folder, arguments.python, arguments.also)


if __name__ == "__main__":
    sys.exit(main())
