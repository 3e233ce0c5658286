"""The site is built strictly: a broken link, a page outside the navigation or a missing docstring fails the build."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(importlib.util.find_spec("mkdocstrings") is None, reason="pip install fedray[docs]"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site and return its folder."""
    folder = tmp_path_factory.mktemp("site")
    build = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert build.returncode == 0, build.stderr
    assert "excluded from the built site" not in build.stderr
    return folder


def test_links_to_sources_lead_to_pages(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    assert 'href="reference/api/fedray.algorithms.fednst.html"' in home
    assert 'href="configurations.html"' in home and 'href="benchmarks/results/engine.html"' in home
    assert (site / "source" / "cluster.yaml.html").exists()


def test_looking_at_a_page_needs_no_network(site: Path) -> None:
    loaded = re.compile(r"<(?:script|link|img)\b[^>]*(?:src|href)=\"(?:https?:)?//[^\"]*\"")
    found = {page: loaded.findall(page.read_text(encoding="utf-8")) for page in site.rglob("*.html")}
    assert found and not {page: links for page, links in found.items() if links}


def test_functions_and_fields_stand_in_the_reference(site: Path) -> None:
    assert 'id="fedray.run"' in (site / "reference/api/index.html").read_text(encoding="utf-8")
    keys = (site / "reference/configuration/algorithm.html").read_text(encoding="utf-8")
    assert "algorithm.pretrain.weight_decay" in keys
