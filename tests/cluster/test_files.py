"""The cluster files: Ray accepts them, only ssh is open, every process asks for the token, and they hold no secret."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parents[2]
FILES = sorted(ROOT.glob("cluster*.yaml"))


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def file(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture
def described(file: Path) -> dict[str, Any]:
    return yaml.safe_load(file.read_text())


def starts(described: dict[str, Any]) -> list[str]:
    """The commands that start Ray, the head's first."""
    commands = [*described["head_start_ray_commands"], *described["worker_start_ray_commands"]]
    return [command for command in commands if "ray start" in command]


def test_both_kinds_are_there() -> None:
    assert [path.name for path in FILES] == ["cluster-local.yaml", "cluster.yaml"]


def test_ray_takes_it(described: dict[str, Any]) -> None:
    prepared = prepare_config(described)
    validate_config(prepared)
    workers = [kind for name, kind in prepared["available_node_types"].items() if name != "head"]
    assert all(kind["max_workers"] >= kind["min_workers"] > 0 for kind in workers), (
        "a run counts the machines when it begins"
    )


def test_ray_refuses_what_it_does_not_know(described: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="idle_minutes"):
        validate_config(prepare_config({**described, "idle_minutes": 5}))


def test_only_ssh_is_open(described: dict[str, Any]) -> None:
    opened = described["provider"].get("security_group", {}).get("IpPermissions", [])
    assert all(rule["FromPort"] == rule["ToPort"] == 22 for rule in opened)
    head, worker = starts(described)
    assert re.findall(r"--dashboard-host=(\S+)", head) == ["127.0.0.1"]
    assert "0.0.0.0" not in head + worker and "--ray-client-server-port" not in head


def test_the_token_is_on_and_no_secret_stands_in_the_file(file: Path, described: dict[str, Any]) -> None:
    assert described["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    (environment,) = [command for command in described["setup_commands"] if "RAY_AUTH_MODE=token" in command]
    assert environment.endswith("> ~/.fedray.sh") and any(
        "'. ~/.fedray.sh' >> ~/.bashrc" in c for c in described["setup_commands"]
    )
    text = file.read_text()
    assert not re.search(r"AKIA|BEGIN .*KEY|(?i:secret|password|RAY_AUTH_TOKEN)|[0-9a-f]{32}", text)


def test_what_is_installed_is_what_the_project_asks_for(described: dict[str, Any]) -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (wanted,) = [need for need in map(Requirement, project["dependencies"]) if need.name == "ray"]
    (version,) = re.findall(r"^ray==([\d.]+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert wanted.specifier.contains(version)
    installs = [command for name in described if name.endswith("setup_commands") for command in described[name]]
    installs = [command for command in installs if "pip install" in command]
    assert installs and all('--constraint "$HOME/fedray/constraints.txt"' in command for command in installs)
    for remote, local in described["file_mounts"].items():
        assert local.startswith("~") or (ROOT / local).exists(), f"{remote}: there is no {local}"
    needed = {"fedray", "pyproject.toml", project["readme"], *project["license-files"]}
    assert needed <= set(described["file_mounts"].values()), "the project cannot be installed from what is mounted"


def test_the_environment_is_what_runs_need(described: dict[str, Any]) -> None:
    said = " ".join([*described["setup_commands"], *described["head_setup_commands"]])
    for name in ("FEDRAY_RUNS", "FEDRAY_SHARED_CACHE", "FEDRAY_CACHE", "OMP_NUM_THREADS=1", "RAY_ADDRESS=auto"):
        assert f" {name}" in said
    assert not any("RAY_ADDRESS" in command for command in described["setup_commands"]), (
        "the workers' Ray is told where the head is"
    )
