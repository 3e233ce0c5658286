"""The files around the package: workflows, citation and Dockerfile agree with the project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import fedray

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def scripts(value: object) -> list[str]:
    """Every `run` of a workflow."""
    if isinstance(value, list):
        return [script for one in value for script in scripts(one)]
    if not isinstance(value, dict):
        return []
    return [str(one) for key, one in value.items() if key == "run"] + scripts(list(value.values()))


@pytest.mark.skipif(not WORKFLOWS, reason="an sdist has no workflows")
def test_workflows_call_what_is_there() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
        asked = re.findall(r"^make ([\w-]+)", "\n".join(scripts(workflow)), re.MULTILINE)
        matrices = [job.get("strategy", {}).get("matrix", {}) for job in workflow["jobs"].values()]
        assert {*asked, *(target for matrix in matrices for target in matrix.get("target", []))} <= targets, path.name
        assert workflow["permissions"] == {"contents": "read"}, f"{path.name}: a job asks for more where it needs it"


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == fedray.__version__
    assert all(len(line) <= 120 for line in (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()[4:])
