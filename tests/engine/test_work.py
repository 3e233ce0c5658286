"""A client actor's work that is kept in the cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedray.core.types import Server
from fedray.engine.jobs import work
from tests.engine import toys
from tests.storage.test_cache import as_reader


def test_theta_0_is_found_by_a_user_who_may_not_write_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`init` looks before it locks; only what is missing needs the right to write."""
    plain = toys.assignment(tmp_path / "run", settings=toys.ToySettings(folder=str(tmp_path))).program
    program = replace(plain, init_cache=tmp_path / "cache" / "init" / "theta.pt")

    def make() -> Server:
        return work.server(program, None, "cpu", {}, lambda *progress: None)

    (made, found), (first, again) = work.init(program, make), work.init(program, make)
    assert (found, again) == (False, True) and (tmp_path / "inits").read_text() == "x"
    as_reader(monkeypatch)
    read, found = work.init(program, make)
    assert found and read.params.tobytes() == made.params.tobytes() == first.params.tobytes()
    missing = replace(program, init_cache=tmp_path / "cache" / "init" / "other.pt")
    with pytest.raises(ValueError, match="other.pt: is not there, and you may not write it: set FEDRAY_CACHE"):
        work.init(missing, make)
