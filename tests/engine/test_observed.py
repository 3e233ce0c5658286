"""Audits of updates on the toy: who takes no part, the same bits for any number of actors, and what defences leave."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedray.core.compression.settings import TopKUpload
from fedray.core.privacy.audits import Updates
from fedray.core.privacy.mechanism import Mechanism
from fedray.core.privacy.settings import ClipSettings, Gaussian, Local, Private, Skellam
from fedray.core.seeds import numpy_generator
from fedray.core.strategies import Uniform
from fedray.engine.settings import CohortSettings
from fedray.runs.folder import RunFolder
from tests.engine.runs import same
from tests.engine.toys import SIZE, ToyData, play

EVERYBODY, AUXILIARY = 48, 24
AUDIT = Updates(clients=20, attributes=["kind"], auxiliary=0.5, sums=[1, 5])


@dataclass(frozen=True)
class Observed(ToyData):
    """Clients of two kinds, which pull the parameters in opposite directions; the first of them are auxiliary."""

    clients: int = EVERYBODY
    pull: float = 1.0

    @property
    def candidates(self) -> dict[str, bool]:
        names = super().client_ids()
        return dict.fromkeys(names[:AUXILIARY], False) | dict.fromkeys(names[AUXILIARY : AUXILIARY + 20], True)

    @property
    def attributes(self) -> dict[str, dict[str, str]]:
        return {"kind": {name: self.kind(name) for name in super().client_ids()}}

    def client_ids(self) -> list[str]:
        return super().client_ids()[AUXILIARY:]

    def kind(self, client: str) -> str:
        return "up" if int(client[-2:]) % 2 else "down"

    def load(self, client: str) -> np.ndarray:
        sign = 1 if self.kind(client) == "up" else -1
        common = self.pull * numpy_generator("toy", "kind").standard_normal(SIZE)
        return np.asarray(super().load(client) + sign * common, np.float32)

    def half(self, client: str, part: int) -> np.ndarray:
        noise = 0.5 * numpy_generator("toy", client, part).standard_normal(SIZE)
        return np.asarray(self.load(client) + noise, np.float32)


def played(folder: Path, **options: Any) -> dict[str, Any]:
    return play(folder, **{"data": Observed(), "audit": AUDIT} | options)


def sketch_of(folder: Path) -> str:
    return RunFolder(folder).read_text("audit.tsv")


@pytest.mark.usefixtures("cluster")
def test_an_attribute_is_read_off_updates_with_the_same_bits(tmp_path: Path) -> None:
    results = played(tmp_path / "one")
    audit = results["audit"]
    assert audit["kind"] == "updates" and (audit["clients"], audit["auxiliary"]) == (20, AUXILIARY)
    alone, summed = audit["sums"]["1"], audit["sums"]["5"]
    assert alone["attributes"]["kind"]["accuracy"] == 1.0 and alone["attributes"]["kind"]["clients"] == 20
    assert alone["same_client"]["auroc"] > 0.95 and alone["same_client"]["clients"] == 20
    assert summed["same_client"]["auroc"] < alone["same_client"]["auroc"]
    played(tmp_path / "resumed", rounds=2, actors=3)
    again = played(tmp_path / "resumed", actors=3)
    same(tmp_path / "one", tmp_path / "resumed")
    assert again["audit"] == audit and sketch_of(tmp_path / "one") == sketch_of(tmp_path / "resumed")
    assert len(sketch_of(tmp_path / "one").splitlines()) == 1 + 2 * 2 * 20


@dataclass(frozen=True)
class Without(ToyData):
    """The same federation without auxiliary clients, and without an audit."""

    def client_ids(self) -> list[str]:
        return Observed().client_ids()

    def load(self, client: str) -> np.ndarray:
        return Observed().load(client)


@pytest.mark.long
@pytest.mark.usefixtures("cluster")
def test_the_run_is_the_one_without_auxiliary_clients(tmp_path: Path) -> None:
    results, plain = played(tmp_path / "audited"), play(tmp_path / "plain", data=Without())
    same(tmp_path / "audited", tmp_path / "plain")
    assert "audit" not in plain and results["best"] == plain["best"]
    for count, found in results["audit"]["sums"].items():
        alone = played(tmp_path / count, audit=replace(AUDIT, sums=[int(count)]))
        same(tmp_path / "audited", tmp_path / count)
        assert alone["audit"]["sums"] == {count: found}


def mechanism(settings: Private) -> dict[str, Any]:
    sampling = "uniform" if isinstance(settings, Skellam) else "poisson"
    private = Mechanism(settings, settings.noise or 0.0, 6)
    return {"privacy": private, "strategy": Uniform(), "cohort": CohortSettings(size=6, sampling=sampling)}


CLIP = ClipSettings(norm=1.0)


@pytest.mark.long
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("options", "accuracy", "recognised"),
    [
        ({"upload": TopKUpload(share=0.05)}, (0.9, 1.0), (0.7, 1.0)),
        (mechanism(Gaussian(delta=1e-3, noise=3.0, clip=CLIP)), (0.95, 1.0), (0.95, 1.0)),
        (mechanism(Local(delta=1e-3, noise=3.0, clip=CLIP)), (0.2, 0.8), (0.35, 0.65)),
        (mechanism(Skellam(delta=1e-3, noise=30.0, clip=CLIP, bits=24)), (0.2, 0.8), (0.35, 0.65)),
        (mechanism(Skellam(delta=1e-3, noise=0.01, clip=CLIP, bits=24)), (0.95, 1.0), (0.95, 1.0)),
    ],
    ids=["top k", "gaussian", "local", "much skellam", "little skellam"],
)
def test_what_defences_leave(
    tmp_path: Path, options: dict[str, Any], accuracy: tuple[float, float], recognised: tuple[float, float]
) -> None:
    """The server adds Gaussian noise, so that it sees updates without it; local and Skellam noise are clients' own."""
    audit = played(tmp_path, **options)["audit"]["sums"]["1"]
    assert accuracy[0] <= audit["attributes"]["kind"]["accuracy"] <= accuracy[1]
    assert recognised[0] <= audit["same_client"]["auroc"] <= recognised[1]


@pytest.mark.long
@pytest.mark.usefixtures("cluster")
def test_sums_carry_the_servers_noise(tmp_path: Path) -> None:
    found = []
    for noise in (1e-3, 10.0):
        private = mechanism(Gaussian(delta=1e-3, noise=noise, clip=CLIP))
        audit = played(tmp_path / str(noise), audit=replace(AUDIT, sums=[2]), **private)["audit"]
        found.append(audit["sums"]["2"]["same_client"]["auroc"])
    assert found[0] > found[1] + 0.1
