"""The plan of a run: the parts of the configuration that the engine itself reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fedray.core.attackers import Attack, NoAttack
from fedray.core.devices.clock import Clock
from fedray.core.privacy.audits import Audit, NoAudit
from fedray.core.privacy.mechanism import Mechanism
from fedray.engine.settings import CohortSettings, EngineSettings, EvaluationSettings


@dataclass(frozen=True)
class Plan:
    """The settings of a run that the engine reads itself."""

    rounds: int
    cohort: CohortSettings
    engine: EngineSettings
    evaluation: EvaluationSettings
    together: int = 1  # clients of a lane that are trained side by side, from `engine.vectorise`
    privacy: Mechanism | None = None
    clock: Clock | None = None  # with `devices`
    audit: Audit | NoAudit = NoAudit()
    attack: Attack | NoAttack = NoAttack()

    def scored(self, splits: Iterable[str]) -> list[str]:
        """Which of the splits are scored after rounds: dev, and the one whose score chooses the best round."""
        return [split for split in splits if split in ("dev", self.evaluation.judge)]

    def scores(self, round: int) -> bool:
        """Whether the model is scored after a round (from 1)."""
        return round % self.evaluation.every == 0 or round == self.rounds
