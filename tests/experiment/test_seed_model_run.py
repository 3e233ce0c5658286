"""The seed model of a run of FedNST on one, two and three actors."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedray
from tests import speech
from tests.engine.runs import bits, rows


@pytest.mark.long
@pytest.mark.usefixtures("in_process")
def test_any_number_of_actors_trains_the_same_seed_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three runs, each with an empty cache, store the same seed model under the same name."""
    speech.write_corpus(tmp_path / "tones")
    kept = []
    for actors in (1, 2, 3):
        cache = tmp_path / f"cache-{actors}"
        monkeypatch.setenv("FEDRAY_CACHE", str(cache))
        values = speech.settings(tmp_path / "tones", rounds=1)
        values["algorithm"] = {**values["algorithm"], "pretrain": {"steps": 12, "warmup": 2, "batch": 6, "shards": 3}}
        values["engine"] = {**values["engine"], "actors": actors, "cpus_per_client": 0.5}
        folder = fedray.run(values, out=tmp_path / f"run-{actors}").folder
        (entry,) = (cache / "init").glob("*.pt")
        kept.append((entry.name, entry.read_bytes(), bits(folder, 0), bits(folder, 1), rows(folder)))
    assert kept[1] == kept[0] and kept[2] == kept[0]
