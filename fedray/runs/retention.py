"""Which checkpoints and client states of a run stay, and which are removed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import pairwise

from fedray.core.types import RunError
from fedray.runs.client_states import MODELS, ClientStore, described
from fedray.runs.folder import Progress, RunFolder


class Retention:
    """Removes checkpoints and client states that a run no longer needs.

    `keep`: how many of the newest checkpoints stay, in addition to the best one and the first one.
    `pinned()`: rounds whose checkpoints a sweep's trial refers to. These and all newer ones stay (None: no sweep).
    """

    def __init__(
        self, folder: RunFolder, states: ClientStore, keep: int, pinned: Callable[[], Collection[int] | None]
    ) -> None:
        self.folder, self.states, self.keep, self.pinned = folder, states, keep, pinned
        self._best: dict[int, int] = {}  # round -> the best round by then
        # Versions (client, version) that are no longer current, by the newest checkpoint that names them. A round looks
        # only at those of the checkpoints that it removed.
        self._held: dict[int, list[tuple[str, int]]] = {}
        self._models: dict[int, set[int]] = {}  # round of a checkpoint -> the models that it names

    def resume(self, saved: Collection[int]) -> None:
        """Go on from these checkpoints. States that none of them names are removed: their rounds were not committed.

        RunError: a state that the newest of them names is missing, or has another size.
        """
        named: dict[str, set[int]] = {}  # client -> versions
        self.states.storage.sync(())  # a killed process may not have synced
        sizes = self.states.storage.sizes()
        for round in saved:
            progress = self.folder.load(round)
            if round == max(saved):
                self._check(progress, sizes)
            self.note_best(progress)
            self._models[round] = set(progress.models)
            for client, written in progress.files():
                named.setdefault(client, set()).add(written.version)
        self.states.keep_only({(client, version) for client, versions in named.items() for version in versions}, sizes)
        named.pop(MODELS, None)
        for client, versions in named.items():
            for version, following in pairwise(sorted(versions)):
                self._hold(client, version, following, saved)

    def _check(self, progress: Progress, sizes: Mapping[str, int]) -> None:
        """Check that all client states of a checkpoint exist. Their contents are checked when they are loaded."""
        lost = list(self.states.lost(progress.files(), sizes))
        if lost:
            client, what = lost[0]
            more = f", and {len(lost) - 1:,} more are lost" if len(lost) > 1 else ""
            raise RunError(
                f"{what}. It is {described(client)}{more}: put back what the checkpoint of round "
                f"{progress.round} names, or remove {self.folder.checkpoints.shown(progress.round)} to continue from "
                "the previous checkpoint"
            )

    def note_best(self, progress: Progress) -> None:
        if progress.best is not None:
            self._best[progress.round] = int(progress.best["round"])

    def prune(self, progress: Progress) -> None:
        """Remove the checkpoints that are not needed after this round."""
        latest = self.folder.saved_rounds()[-self.keep :]
        best = {int(progress.best["round"])} if progress.best else set()
        best |= self._best_of(latest)  # a run may have to go on from an earlier one
        kept = {0, *latest} | best | self._pinned()
        self.folder.prune(kept)
        self._best = {round: of for round, of in self._best.items() if round in kept}

    def collect(self, superseded: Iterable[tuple[str, int]], progress: Progress) -> None:
        """Remove client states and models named neither by a checkpoint nor by `progress`, which may be unsaved.

        `superseded`: (client, version) replaced in this round.
        """
        saved, round = self.folder.saved_rounds(), progress.round
        self._collect_models(saved, progress)
        gone = [(held, self._held.pop(held)) for held in set(self._held).difference(saved)]
        loose = [(client, version, round) for client, version in superseded]
        loose += [(client, version, held) for held, versions in gone for client, version in versions]
        self.states.remove_all(
            [(client, since) for client, since, until in loose if not self._hold(client, since, until, saved)]
        )

    def _collect_models(self, saved: Collection[int], progress: Progress) -> None:
        self._models[progress.round] = set(progress.models)
        gone = [self._models.pop(round) for round in set(self._models) - {*saved, progress.round}]
        kept = set[int]().union(*self._models.values())
        self.states.remove_all([(MODELS, model) for models in gone for model in sorted(models - kept)])

    def _hold(self, client: str, since: int, until: int, saved: Collection[int]) -> bool:
        """Keep a version, which was current in the rounds [since, until), if one of these checkpoints names it."""
        held = max((checkpoint for checkpoint in saved if since <= checkpoint < until), default=None)
        if held is not None:
            self._held.setdefault(held, []).append((client, since))
        return held is not None

    def _pinned(self) -> set[int]:
        """The pinned rounds, all newer saved rounds, and the best rounds that their checkpoints refer to."""
        pinned = self.pinned()
        if pinned is None:
            return set()
        kept = {*pinned, *(round for round in self.folder.saved_rounds() if round > max(pinned, default=0))}
        return kept | self._best_of(kept)

    def _best_of(self, rounds: Collection[int]) -> set[int]:
        """The best rounds by then of these rounds, where they are known."""
        return {self._best[round] for round in rounds if round in self._best}
