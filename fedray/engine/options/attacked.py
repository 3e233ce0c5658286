"""An attacked run: its attackers, and lanes in which those that collude are together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any

from fedray.core.attackers import ATTACKS, Attack, Attackers, Colluding
from fedray.core.settings import kind_of
from fedray.core.types import Broadcast
from fedray.engine.lane.lane import Lane
from fedray.engine.round.option import Option
from fedray.engine.round.outcome import Outcome
from fedray.engine.round.rounds import Rounds
from fedray.runs.folder import Progress, RunFolder


class Attacked(Option):
    """Some of the clients attack."""

    def __init__(self, settings: Attack, rounds: Rounds) -> None:
        self.settings, self.seed, ids = settings, rounds.program.seed, rounds.program.data.client_ids()
        self.attackers, self.population = frozenset(settings.chosen(ids, self.seed)), len(ids)

    def words(self) -> str:
        kind, rounds = kind_of(self.settings, ATTACKS), self.settings.rounds
        when = "in all rounds" if rounds is None else f"in rounds {rounds[0]} to {rounds[1]}"
        return f"attack: {len(self.attackers):,} of {self.population:,} clients, by {kind}, {when}"

    def guard(self, lanes: Sequence[Lane], progress: Progress, broadcast: Broadcast, cohort: int) -> Sequence[Lane]:
        """The lanes with their attackers. Those that collude, and train from one model, are the last lane of it."""
        if not self.settings.active(progress.round):
            return lanes
        if isinstance(self.settings, Colluding):
            groups = (list(group) for _, group in groupby(lanes, attrgetter("trains_from")))
            lanes = [lane for group in groups for lane in self._parted(group)]
        attacked, present = [], sum(len(lane.clients) for lane in lanes)  # over-selection leaves some of `cohort` out
        for number, lane in enumerate(lanes):
            mine = self.attackers.intersection(client for client, _ in lane.clients)
            attack = Attackers(self.settings, mine, present, self.seed) if mine else None
            marker = None if lane.marker is None else lane.marker.with_name(f"lane_{number}")
            attacked.append(replace(lane, number=number, marker=marker, attack=attack))
        return attacked

    def finish(self, progress: Progress, outcome: Outcome, broadcast: Broadcast) -> None:
        """Count the attackers that sent an update."""
        active = self.settings.active(progress.round)
        found = sum(client in self.attackers for lane in outcome.lanes for client in lane.reports) if active else 0
        outcome.row["attack/clients"] = found

    def results(self, progress: Progress, folder: RunFolder) -> Mapping[str, Any]:
        """The kind of the attack and its clients."""
        return {"attack": {"kind": kind_of(self.settings, ATTACKS), "clients": sorted(self.attackers)}}

    def _parted(self, lanes: Sequence[Lane]) -> list[Lane]:
        """Lanes of honest clients, and one of all attackers."""
        honest = [replace(lane, clients=tuple(one for one in lane.clients if one[0] not in self.attackers))
                  for lane in lanes]  # fmt: skip
        attackers = tuple(one for lane in lanes for one in lane.clients if one[0] in self.attackers)
        return [lane for lane in (*honest, replace(lanes[0], clients=attackers)) if lane.clients]
