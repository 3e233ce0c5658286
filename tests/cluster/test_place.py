"""`make cluster-check` refuses a clone or a Python in a folder that each of its hosts replaces by its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import check


def test_a_clone_below_the_temporary_folder_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (Path("/tmp") / "clone", Path("/dev/shm") / "clone"):
        monkeypatch.setattr(check, "ROOT", place)
        with pytest.raises(SystemExit, match=r"lies below .*, and each host has its own: clone fedray elsewhere"):
            check.main()


def test_a_python_below_the_temporary_folder_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "ROOT", Path("/srv") / "clone")  # wherever this clone lies
    monkeypatch.setattr(check.sys, "prefix", str(Path("/tmp") / "venv"))
    with pytest.raises(SystemExit, match="venv lies below"):
        check.main()
