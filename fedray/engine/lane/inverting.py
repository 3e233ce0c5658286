"""The job of an audit by inversion: clients train on a few utterances, and an attacker reconstructs these."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast, final

import numpy as np
import torch

from fedray.core.privacy.audits import Inversion
from fedray.core.privacy.likeness import Reconstructed, in_order
from fedray.core.seeds import numpy_generator, seed_all
from fedray.core.types import Broadcast
from fedray.data.features.dataset import Batch, Utterances, collate
from fedray.engine.actors.serial import StatesInMemory
from fedray.engine.jobs.job import Job, Workplace
from fedray.engine.lane.lane import Failure
from fedray.engine.lane.observing import HalfOf, Released, trained
from fedray.runs.client_states import Written
from fedray.training.inversion import invert
from fedray.training.task import Task, targets_at


@final
@dataclass(frozen=True)
class Invert(Job[tuple[list[Reconstructed], list[Failure]]]):
    """Reconstructions of what clients train on, from the updates that they send. No state reaches the disk."""

    clients: tuple[tuple[str, Written | None], ...]
    model: Released
    settings: Inversion

    def run(
        self, workplace: Workplace, last: Broadcast, before: Broadcast | None
    ) -> tuple[list[Reconstructed], list[Failure]]:
        """`before`: the broadcast of round 0, if clients prepare."""
        found, failures, program = list[Reconstructed](), list[Failure](), workplace.program
        for place, (client, written) in enumerate(self.clients):
            workplace.progress(place, len(self.clients), "inverting updates")
            states = StatesInMemory()
            states.restore({}, program.states)
            data = self._some(client, program.data.load(client), program.seed)
            alone = replace(program, states=states, data=cast(Any, HalfOf(data)))
            sent, result = trained(replace(workplace, program=alone), (client, written), self.model, 0, last, before)
            failures += result.failures
            if sent is not None:
                try:
                    found += self._reconstructed(workplace, client, data, sent[0], last)
                except RuntimeError as error:
                    failures.append(Failure.of(client, error))
        return found, failures

    def _some(self, client: str, data: Utterances, seed: int) -> Utterances:
        """The utterances of a client that it trains on."""
        order = numpy_generator(seed, "audit", client, "utterances").permutation(len(data))
        return data.take(np.sort(order[: self.settings.utterances]))

    def _reconstructed(
        self, workplace: Workplace, client: str, data: Utterances, update: np.ndarray, last: Broadcast
    ) -> list[Reconstructed]:
        task = cast(Task, cast(Any, workplace.program.algorithm).task)
        received = workplace.receive(last, self.model.round)
        batch, targets = collate(data, np.arange(len(data))), task.targets(data)
        targets = targets_at(targets, batch.positions)
        seed_all(workplace.program.seed, "audit", client, "inversion")
        inverted = invert(
            task, received.params, update, batch.lengths, targets, workplace.device, self.settings.steps,
            self.settings.rate,
        )  # fmt: skip
        true, made = _cut(batch.features, batch), _cut(inverted.features, batch)
        words = [str(word) for word in data.column(task.column(task.settings))]
        made = in_order(made, true, words)
        return [
            Reconstructed(client, data.ids[position], word, *pair, match=inverted.match)
            for position, word, pair in zip(batch.positions.tolist(), words, zip(true, made, strict=True), strict=True)
        ]


def _cut(features: torch.Tensor, batch: Batch) -> list[np.ndarray]:
    return [row[:length].numpy() for row, length in zip(features, batch.lengths.tolist(), strict=True)]
