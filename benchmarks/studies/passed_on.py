"""FedMLAC with a few personal models for all clients, passed from client to client: a likely mistake in a simulation.

This is not FedMLAC, since private weights go from client to client. `fedmlac_keywords` and `fedmlac_wandering` run it
on one actor to see where the paper's order of methods may come from. A simulation that keeps a personal model in each
of its processes, instead of one for each client, does the same with as many models as it has processes. The models live
in the actor: such a run cannot resume, and several actors give other bits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from benchmarks import study
from fedray.algorithms import ALGORITHMS
from fedray.algorithms.fedmlac import FedMLAC, FedMLACSettings
from fedray.core.ranges import Count
from fedray.core.types import Client, Evaluation, Received, State, Update


@dataclass(frozen=True)
class PassedOnSettings(FedMLACSettings):
    models: Count = 1  # clients take them in turn


class PassedOn(FedMLAC):
    Settings = PassedOnSettings
    settings: PassedOnSettings

    # Attributes of an actor's copy. Actors get the class by value, and a cached_property cannot be pickled that way.
    carried: Mapping[int, State] = {}  # the trained models by number
    trained = scored = 0  # numbers of clients

    def client_update(self, client: Client, received: Received) -> Update:
        model = self.trained % self.settings.models
        update = super().client_update(self._with(model, client), received)
        self.trained += 1
        if update.state is not None:
            self.carried = {**self.carried, model: update.state}
        return update

    def evaluate_personal(
        self, client: Client, received: Received, data: Mapping[str, Any], final: bool
    ) -> Mapping[str, Evaluation]:
        model = self.scored % self.settings.models
        self.scored += 1
        return super().evaluate_personal(self._with(model, client), received, data, final)

    def _with(self, model: int, client: Client) -> Client:
        return replace(client, state=self.carried[model]) if model in self.carried else client


ALGORITHMS["passed_on"] = PassedOn


def overrides(models: int) -> list[str]:
    """The overrides that turn configs/fedmlac/embedded.yaml into this algorithm."""
    text = (study.ROOT / "configs/fedmlac/embedded.yaml").read_text(encoding="utf-8")
    given = yaml.safe_load(text)["algorithm"]
    # The better of 0.1 and 0.3 on dev, for one model.
    algorithm = given | {"kind": "passed_on", "models": models, "client": given["client"] | {"lr": 0.1}}
    return [
        f"imports=[{__name__}]", "engine.vectorise=never", "engine.lanes=1", "engine.actors=1",
        "engine.cpus_per_client=1", f"algorithm={json.dumps(algorithm)}",
    ]  # fmt: skip
