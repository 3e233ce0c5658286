"""A cached seed model or pseudo-label is reused if, and only if, nothing that it depends on differs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from fedray import experiment
from fedray.algorithms.fednst import FedNST
from fedray.core.algorithm import Parts
from fedray.core.types import Server, ServerState
from fedray.experiment.cache_keys import caches, model_files
from fedray.experiment.description import differences
from fedray.models import MODELS
from fedray.models.conformer import Conformer
from tests import speech

pytestmark = pytest.mark.usefixtures("no_ray")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speech.write_corpus(tmp_path_factory.mktemp("tones")).parent


def found(folder: Path, *overrides: str, gpu: bool = False) -> tuple[Path | None, Path | None]:
    """The cache entries of theta_0 and of the clients' pseudo-labels."""
    config, source = experiment.load(speech.settings(folder, cohort={"size": 1}), overrides)
    data, _ = experiment.build_data(config, source)
    return caches(config, experiment.build_algorithm(config, data), data, gpu)


@pytest.mark.parametrize(
    "override",
    ["seed=1", "features.bins=24", "model.layers=2", "algorithm.pretrain.steps=31", "data.server.share=0.6"],
)
def test_what_the_seed_model_depends_on(folder: Path, override: str) -> None:
    (init, prepared), (other, labels) = found(folder), found(folder, override)
    assert init != other and prepared != labels


@pytest.mark.parametrize(
    "override", ["task.decode.beam=5", "algorithm.relabel=2", "data.clients={by: pooled}", "data.labelled={share: 0.5}"]
)
def test_what_pseudo_labels_depend_on_beside_it(folder: Path, override: str) -> None:
    (init, prepared), (other, labels) = found(folder), found(folder, override)
    assert init == other and prepared != labels


@pytest.mark.parametrize("override", ["rounds=9", "cohort.size=2", "algorithm.client.lr=0.1", "engine.lanes=1"])
def test_what_neither_depends_on(folder: Path, override: str) -> None:
    assert found(folder) == found(folder, override)


def test_given_weights_and_gpus_count(folder: Path, tmp_path: Path) -> None:
    config, source = experiment.load(speech.settings(folder))
    algorithm = experiment.build_algorithm(config, experiment.build_data(config, source)[0])
    torch.save(algorithm.task.flat("cpu").model.state_dict(), tmp_path / "given.pt")
    keys = {found(folder), found(folder, gpu=True), found(folder, f"model.init={tmp_path / 'given.pt'}")}
    os.utime(tmp_path / "given.pt", (1, 1))  # as another file of this name would have
    assert len(keys | {found(folder, f"model.init={tmp_path / 'given.pt'}")}) == 4


@dataclass(frozen=True)
class OwnSettings:
    hparams: str
    init: str | None = None


def test_a_file_that_a_users_model_names_counts_by_its_contents(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "hparams.yaml"
    monkeypatch.setitem(MODELS, "own", type("Own", (Conformer,), {"Settings": OwnSettings}))
    config, source = experiment.load(speech.settings(folder, model={"kind": "own", "hparams": str(file)}))
    data, _ = experiment.build_data(config, source)
    algorithm = experiment.build_algorithm(config, data)

    def given(contents: str) -> tuple[Path | None, dict[str, str]]:
        file.write_text(contents)
        return caches(config, algorithm, data, gpu=False)[0], model_files(config.model.settings)

    (narrow, first), (wide, second), (again, third) = given("width: 8"), given("width: 9"), given("width: 8")
    assert narrow == again != wide and first == third != second and list(first) == ["model.hparams"]
    before, now = ({"data": "x", "imports": {}, "settings": {}, "files": files} for files in (first, second))
    assert differences(before, now) == ["the file that model.hparams names has changed, or is gone"]
    file.unlink()
    assert model_files(config.model.settings) == {} and model_files(OwnSettings("x" * 5000)) == {}


def test_without_a_server_tokens_come_from_the_clients(folder: Path) -> None:
    untrained = "algorithm={kind: fedavg, client: {lr: 0.1, batch: 2}, pretrain: {steps: 0}}"
    alone = ["data.server.share=null", untrained]
    assert found(folder, *alone)[0] != found(folder, *alone, "data.clients={by: pooled}")[0]


def test_an_algorithm_with_a_start_of_its_own_shares_none(folder: Path) -> None:
    """A class with its own `init` has its own key; a subclass without one has the key of its parent."""

    class Own(FedNST):
        def init(self, server: Server) -> ServerState:
            return super().init(server)

    class Other(FedNST):
        pass

    config, source = experiment.load(speech.settings(folder))
    data, _ = experiment.build_data(config, source)
    settings, task = config.algorithm.settings, experiment.build_algorithm(config, data).task
    parts = Parts(task, config.strategy, config.server_optimizer, config.rounds)
    keys = {kind: caches(config, kind(settings, parts), data, gpu=False)[0] for kind in (FedNST, Own, Other)}
    assert keys[FedNST] == keys[Other] != keys[Own]
