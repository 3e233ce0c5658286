"""rayjob.yaml: KubeRay's published schema accepts it, and it agrees with cluster.yaml and the project."""

from __future__ import annotations

import copy
import gzip
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "rayjob.yaml").read_text(encoding="utf-8")


@pytest.fixture
def documents() -> dict[str, dict[str, Any]]:
    """The objects of the file, by kind."""
    return {document["kind"]: document for document in yaml.safe_load_all(TEXT)}


@pytest.fixture
def job(documents: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return documents["RayJob"]


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    if "FEDRAY_SPEECH" not in os.environ:
        pytest.skip("FEDRAY_SPEECH names no folder, which has KubeRay's schema in kuberay/ray.io_rayjobs.yaml.gz")
    file = Path(os.environ["FEDRAY_SPEECH"]) / "kuberay" / "ray.io_rayjobs.yaml.gz"
    if not file.exists():
        pytest.skip(f"there is no {file}")
    definition = yaml.load(gzip.decompress(file.read_bytes()), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    assert definition["spec"]["names"]["kind"] == "RayJob"
    (version,) = [version for version in definition["spec"]["versions"] if version["name"] == "v1"]
    return strict(version["schema"]["openAPIV3Schema"])


def strict(schema: Any) -> Any:
    """The schema, but refusing unknown keys, which Kubernetes would drop."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "type" in schema:
        found.setdefault("additionalProperties", False)
    return found


def wrong(schema: dict[str, Any], job: dict[str, Any]) -> list[str]:
    whole = {**schema["properties"], "metadata": {"type": "object"}}
    errors = Draft202012Validator({**schema, "properties": whole}).iter_errors(job)
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]


def containers(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The container of each group, by the group's name."""
    cluster = job["spec"]["rayClusterSpec"]
    groups = {"head": cluster["headGroupSpec"]} | {group["groupName"]: group for group in cluster["workerGroupSpecs"]}
    return {name: group["template"]["spec"]["containers"][0] for name, group in groups.items()}


def test_kuberay_takes_it(job: dict[str, Any], schema: dict[str, Any]) -> None:
    assert job["apiVersion"] == "ray.io/v1"
    assert not wrong(schema, job)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("backoffLimit", "twice", "is not of type 'integer'"),
        ("backofLimit", 2, "'backofLimit' was unexpected"),
        ("rayClusterSpec", {"rayVersion": "2.60.0"}, "'headGroupSpec' is a required property"),
    ],
)
def test_mistakes_are_found(job: dict[str, Any], schema: dict[str, Any], key: str, value: Any, says: str) -> None:
    changed = copy.deepcopy(job)
    changed["spec"][key] = value
    assert any(says in error for error in wrong(schema, changed))


def test_mistakes_in_a_pod_are_found(job: dict[str, Any], schema: dict[str, Any]) -> None:
    changed = copy.deepcopy(job)
    containers(changed)["gpu"]["volumeMount"] = []
    assert any("'volumeMount' was unexpected" in error for error in wrong(schema, changed))


def test_versions_are_those_of_the_project(job: dict[str, Any]) -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    (ray,) = re.findall(r"^ray==([\d.]+)$", constraints, re.MULTILINE)
    assert job["spec"]["rayClusterSpec"]["rayVersion"] == ray
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "--constraint /home/ray/fedray/constraints.txt" in dockerfile
    ((image, major, minor),) = re.findall(r"^FROM rayproject/ray:([\d.]+)-py(\d)(\d+)$", dockerfile, re.MULTILINE)
    assert image == ray and SpecifierSet(project["requires-python"]).contains(f"{major}.{minor}")


def test_machines_are_those_of_the_cloud(job: dict[str, Any]) -> None:
    cloud = yaml.safe_load((ROOT / "cluster.yaml").read_text(encoding="utf-8"))["available_node_types"]
    found = containers(job)
    for name, kind in (("head", "head"), ("gpu", "worker")):
        limits = found[name]["resources"]["limits"]
        assert {"CPU": limits["cpu"], "GPU": limits.get("nvidia.com/gpu", 0)} == cloud[kind]["resources"]
    workers = {group["groupName"]: group for group in job["spec"]["rayClusterSpec"]["workerGroupSpecs"]}
    assert workers["gpu"]["replicas"] == cloud["worker"]["min_workers"]
    for group in workers.values():  # a run counts the machines when it begins
        assert group["minReplicas"] == group["replicas"] == group["maxReplicas"]
    assert all(box["resources"]["limits"] == box["resources"]["requests"] for box in found.values())


def test_all_pods_share_the_volume_and_the_environment(
    job: dict[str, Any], documents: dict[str, dict[str, Any]]
) -> None:
    claim = documents["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    cluster = job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        (shared,) = [volume for volume in pod["volumes"] if volume["name"] == "shared"]
        assert shared["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        environment = {item["name"]: item["value"] for item in pod["containers"][0]["env"]}
        assert environment == {
            "OMP_NUM_THREADS": "1",
            "FEDRAY_RUNS": f"{mounts['shared']}/runs",
            "FEDRAY_SHARED_CACHE": f"{mounts['shared']}/cache",
            "FEDRAY_CACHE": mounts["cache"],
        }
    assert cluster["authOptions"] == {"mode": "token"}


@pytest.mark.parametrize("by", ["HTTP", "ray job submit"])
def test_the_entrypoint_runs_a_configuration_and_resumes_it(by: str, job: dict[str, Any], tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = job["spec"]["entrypoint"].replace("/shared/runs/fednst-embedded", str(run))
    if by == "ray job submit":
        command = subprocess.list2cmdline(shlex.split(command))  # as Ray's command line does
    (config,) = re.findall(r"\S+embedded\.yaml", command)
    assert (ROOT / config.removeprefix("/home/ray/fedray/")).is_file()
    (tmp_path / "fedray").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "fedray").chmod(0o755)

    def said() -> str:
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, check=True).stdout

    assert said() == f"run {config} rounds=50 --out {run}\n"
    run.mkdir()
    (run / "config.yaml").touch()
    assert said() == f"resume {run}\n"
