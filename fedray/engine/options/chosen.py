"""The options that the configuration of a run asks for."""

from __future__ import annotations

from fedray.core.attackers import Attack
from fedray.core.privacy.audits import Audit, Inversion, Updates
from fedray.engine.options.attacked import Attacked
from fedray.engine.options.audits import Audited
from fedray.engine.options.inverted import Inverting
from fedray.engine.options.observed import Observing
from fedray.engine.options.private import PrivateRounds
from fedray.engine.options.virtual import VirtualRounds
from fedray.engine.round.option import Option
from fedray.engine.round.rounds import Rounds


def chosen(rounds: Rounds) -> list[Option]:
    """The options of a run's rounds. An audit's canaries are in the sum before it is released with noise."""
    plan, options = rounds.plan, list[Option]()
    private = None if plan.privacy is None else PrivateRounds(plan.privacy, rounds.layers, rounds.program.seed)
    if isinstance(plan.attack, Attack):
        options.append(Attacked(plan.attack, rounds))
    if isinstance(plan.audit, Updates):
        options.append(Observing(plan.audit, rounds, private))
    elif isinstance(plan.audit, Inversion):
        options.append(Inverting(plan.audit, rounds, private))
    elif isinstance(plan.audit, Audit):
        options.append(Audited(plan.audit, rounds, private))
    if private is not None:
        options.append(private)
    if plan.clock is not None:
        options.append(VirtualRounds(plan.clock, rounds))
    return options
