"""The job of an audit by inversion: clients train on a few utterances, and an attacker reconstructs these."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast, final

import numpy as np

from fedray.core.privacy.audits import Inversion
from fedray.core.privacy.likeness import Found
from fedray.core.seeds import numpy_generator, seed_all
from fedray.core.types import Broadcast
from fedray.engine.jobs.job import Job, Workplace
from fedray.engine.lane.lane import Failure
from fedray.engine.lane.observing import PartOf, Released, apart, trained
from fedray.runs.client_states import Written


@final
@dataclass(frozen=True)
class Invert(Job[tuple[Found, list[Failure]]]):
    """Reconstructions of what clients train on, from the updates that they send. No state reaches the disk."""

    clients: tuple[tuple[str, Written | None], ...]
    model: Released
    settings: Inversion

    def run(self, workplace: Workplace, last: Broadcast, before: Broadcast | None) -> tuple[Found, list[Failure]]:
        """`before`: the broadcast of round 0, if clients prepare."""
        found, failures, program = Found(), list[Failure](), workplace.program
        received, search = workplace.receive(last, self.model.round), (self.settings.steps, self.settings.rate)
        for place, (client, written) in enumerate(self.clients):
            workplace.progress(place, len(self.clients), "inverting updates")
            data = self._some(client, program.data.load(client), program.seed)
            alone = replace(apart(program), data=cast(Any, PartOf(data)))
            sent, result = trained(replace(workplace, program=alone), (client, written), self.model, 0, last, before)
            failures += result.failures
            if sent is not None:
                seed_all(program.seed, "audit", client, "inversion")
                try:
                    parts = program.algorithm.reconstruct(data, sent[0], received, *search)
                    found += [(client, part) for part in parts]
                except RuntimeError as error:
                    failures.append(Failure.of(client, error))
        return found, failures

    def _some(self, client: str, data: Any, seed: int) -> Any:
        """The utterances of a client that it trains on."""
        order = numpy_generator(seed, "audit", client, "utterances").permutation(len(data))
        return data.take(np.sort(order[: self.settings.utterances]))
