"""`fedray privacy` prints tables of epsilon without training, draws a picture and refuses wrong input."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedray.cli import main
from fedray.cli.outcome import privacy_words
from fedray.cli.privacy import LOOSE

QUICK = ["privacy={kind: local, epsilon: 8, delta: 1e-7}", "cohort.limit=null", "rounds=20"]


def test_tables_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("dp_accounting", reason="epsilon is computed by dp-accounting, which is not installed")
    picture = tmp_path / "epsilon.png"
    assert main(["privacy", "privacy/embedded", *QUICK, "--out", str(picture)]) == 0
    said = capsys.readouterr().out
    assert all(title in said for title in ("Epsilon by rounds", "Noise by epsilon", "Epsilon by cohort"))
    assert picture.read_bytes().startswith(b"\x89PNG") and [*tmp_path.iterdir()] == [picture]


@pytest.mark.long
def test_both_kinds_of_noise_on_the_server_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("dp_accounting", reason="epsilon is computed by dp-accounting, which is not installed")
    picture = tmp_path / "kinds.svg"
    assert main(["privacy", "privacy/embedded", "rounds=20", "cohort.limit=null", "--out", str(picture)]) == 0
    assert "correlated, 20 bands" in " ".join(capsys.readouterr().out.split())
    assert "Noise in the model by kind" in picture.read_text(encoding="utf-8")


@pytest.mark.nightly
def test_a_loose_bound_is_explained_and_an_unknown_column_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("dp_accounting", reason="epsilon is computed by dp-accounting, which is not installed")
    skellam = ["privacy/keywords", "privacy.epsilon=null", "privacy.noise=1.1", "rounds=20"]
    assert main(["privacy", *skellam]) == 0
    said = capsys.readouterr().out
    assert LOOSE in said and "tight" not in said and "unknown" not in said
    gaussian = ["privacy/keywords", "privacy={kind: gaussian, noise: 8, delta: 1e-6}", "rounds=20"]
    assert main(["privacy", *gaussian]) == 0
    assert LOOSE not in capsys.readouterr().out
    assert main(["privacy", *gaussian, "cohort.size=100"]) == 0
    assert "tight" in capsys.readouterr().out


def test_what_it_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["privacy", "privacy/embedded", "--out", "epsilon.pdf"]) == 2
    assert "must end with .png or .svg" in capsys.readouterr().err
    assert main(["privacy", "privacy/embedded", "privacy=none"]) == 2
    assert "the configuration is not private" in capsys.readouterr().err


def test_the_end_of_a_run_gives_its_guarantee() -> None:
    spent = {"delta": 1e-6, "noise": 0.61, "rounds": 1200, "epsilon": 8.0004, "epsilon_renyi": 8.88}
    assert privacy_words(spent) == "privacy: epsilon 8 at delta 1e-06 after 1,200 rounds"
    assert privacy_words(spent | {"epsilon": None}) == "privacy: no guarantee after 1,200 rounds"
