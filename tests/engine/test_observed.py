"""Audits of updates on the toy: who takes no part, the same bits for any number of actors, and what defences leave."""

from __future__ import annotations

from dataclasses import dataclass
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
AUDIT = Updates(clients=20, attributes=["kind"], auxiliary=0.5)


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
    assert audit["kind"] == "updates" and (audit["clients"], audit["auxiliary"], audit["sum"]) == (20, AUXILIARY, 1)
    assert audit["attributes"]["kind"]["accuracy"] == 1.0 and audit["attributes"]["kind"]["clients"] == 20
    assert audit["same_client"]["auroc"] > 0.95 and audit["same_client"]["clients"] == 20
    played(tmp_path / "resumed", rounds=2, actors=3)
    again = played(tmp_path / "resumed", actors=3)
    same(tmp_path / "one", tmp_path / "resumed")
    assert again["audit"] == audit and sketch_of(tmp_path / "one") == sketch_of(tmp_path / "resumed")
    assert len(sketch_of(tmp_path / "one").splitlines()) == 1 + 2 * 20


@dataclass(frozen=True)
class Without(ToyData):
    """The same federation without auxiliary clients, and without an audit."""

    def client_ids(self) -> list[str]:
        return Observed().client_ids()

    def load(self, client: str) -> np.ndarray:
        return Observed().load(client)


@pytest.mark.usefixtures("cluster")
def test_the_run_is_the_one_without_auxiliary_clients(tmp_path: Path) -> None:
    results, plain = played(tmp_path / "audited"), play(tmp_path / "plain", data=Without())
    same(tmp_path / "audited", tmp_path / "plain")
    assert "audit" not in plain and results["best"] == plain["best"]
    summed = played(tmp_path / "summed", audit=Updates(clients=20, attributes=["kind"], auxiliary=0.5, sum=5))
    same(tmp_path / "audited", tmp_path / "summed")
    assert summed["audit"]["sum"] == 5
    assert summed["audit"]["same_client"]["auroc"] < results["audit"]["same_client"]["auroc"]


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
    audit = played(tmp_path, **options)["audit"]
    assert accuracy[0] <= audit["attributes"]["kind"]["accuracy"] <= accuracy[1]
    assert recognised[0] <= audit["same_client"]["auroc"] <= recognised[1]


@pytest.mark.long
@pytest.mark.usefixtures("cluster")
def test_sums_carry_the_servers_noise(tmp_path: Path) -> None:
    summed = Updates(clients=20, attributes=["kind"], auxiliary=0.5, sum=2)
    found = [
        played(tmp_path / str(noise), audit=summed, **mechanism(Gaussian(delta=1e-3, noise=noise, clip=CLIP)))["audit"]
        for noise in (1e-3, 10.0)
    ]
    assert found[0]["same_client"]["auroc"] > found[1]["same_client"]["auroc"] + 0.1
