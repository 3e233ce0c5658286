"""An audit by inversion: at the end of a run clients train once more, and an attacker reconstructs what they said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedray.core.privacy.audits import Inversion, drawn
from fedray.core.privacy.likeness import MODELS, Found, findings
from fedray.core.types import RunError
from fedray.engine.lane.inverting import Invert
from fedray.engine.options.audits import TABLE
from fedray.engine.options.observed import began, ended, pieces, released
from fedray.engine.options.private import PrivateRounds
from fedray.engine.round.option import Option
from fedray.engine.round.rounds import Rounds
from fedray.runs.folder import Progress, RunFolder
from fedray.storage.serialize import save

FEATURES = "audit.pt"


class Inverting(Option):
    """An audit by inversion. `private`: the option that its rounds are private by; None: they are not."""

    def __init__(self, settings: Inversion, rounds: Rounds, private: PrivateRounds | None) -> None:
        self.settings, self.rounds, self.private = settings, rounds, private

    def words(self) -> str:
        some = "one utterance" if self.settings.utterances == 1 else f"{self.settings.utterances} utterances"
        return f"audit: after the last round {self.settings.clients:,} clients train again, on {some} each"

    def results(self, progress: Progress, folder: RunFolder) -> Mapping[str, Any]:
        """The section `audit`. Writes audit.tsv with a row for each utterance, and audit.pt with the features."""
        self.rounds.note("phase", {"text": "audit"})
        sections, table, features = dict[str, Any](), list[dict[str, Any]](), dict[str, Any]()
        for model, one in zip(MODELS, (began(progress, folder), ended(progress)), strict=True):
            found = self._reconstructed(one)
            sections[model], rows = findings(found)
            table += [{"model": model, **row} for row in rows]
            features[model] = {each.utterance: {"true": each.true, "made": each.made} for _, each in found}
        folder.write_table(TABLE, table)
        folder.export(FEATURES, lambda path: save(features, path))
        return {"audit": {"kind": "inversion", "clients": self.settings.clients, **sections}}

    def _reconstructed(self, start: Progress) -> Found:
        """What the attacker makes of the updates of clients that train from this model, with these states."""
        rounds = self.rounds
        names = drawn(rounds.program.data.client_ids(), self.settings, rounds.program.seed)

        def work() -> dict[int, Any]:
            posted = rounds.put(start.state, start.round)
            model = released(rounds, self.private, start, posted)
            jobs = {
                number: Invert(clients, model, self.settings, inputs=(posted.clients, rounds.first), cost=cost)
                for number, (clients, cost) in enumerate(pieces(rounds, names, start))
            }
            return rounds.pool.run(jobs)

        parts = rounds.again(work)
        rounds.check([failure for _, failures in parts.values() for failure in failures], len(names))
        found = [one for number in sorted(parts) for one in parts[number][0]]
        if len(found) < 2:
            raise RunError("audit: fewer than two utterances were reconstructed, and none can be compared with others")
        return found
