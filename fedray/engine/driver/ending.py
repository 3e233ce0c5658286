"""The end of a run: its final scores, its tables, its model, and results.json."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, starmap
from typing import Any

from fedray.core.types import Evaluation, ServerState
from fedray.engine.lane import personal
from fedray.engine.round.records import failure_rows, formula, summary
from fedray.engine.round.rounds import Rounds
from fedray.engine.telemetry.watches import Stopwatch
from fedray.runs.failures_table import FailuresTable
from fedray.runs.folder import Progress, RunFolder, write_clients
from fedray.runs.group_scores import GroupScores

ONNX = ("model/model.onnx", "model/stream.py")  # of `fedray export`


class Ending:
    """What a run does after its last round."""

    def __init__(self, name: str, folder: RunFolder, rounds: Rounds, failures: FailuresTable) -> None:
        self.name, self.folder, self.rounds, self.failures = name, folder, rounds, failures
        self.plan, self.algorithm, self.note = rounds.plan, rounds.algorithm, rounds.note
        self.splits = list(rounds.program.data.splits())

    def end(self, progress: Progress) -> dict[str, Any]:
        """Score the initial and the best model on every split, write results and tables; returns results.json."""
        watch, rounds = Stopwatch(), self.rounds
        self.note("phase", {"text": "final evaluation"})
        best = int(progress.best["round"]) if progress.best else progress.round
        results: dict[str, Any] = {"name": self.name, "rounds": progress.round}
        models = {"seed": 0, "best": best}
        results |= {title: {"round": round} for title, round in models.items()}
        if self.plan.evaluation.best is not None:
            results["chosen_by"] = self.plan.evaluation.best

        def state(round: int) -> ServerState:
            if round == progress.round:
                return progress.state
            rounds.forget()  # the broadcast before, which is as large
            return self.folder.load(round).state

        groups, scores = getattr(rounds.program.data, "groups", {}), GroupScores()

        def grouped(row: dict[str, Any]) -> dict[str, Any]:
            if groups:
                row["group"] = groups[row["speaker"]]
                scores.add(row)
            return row

        kept: dict[str, Evaluation] = {}  # of the seed model, where clients send nothing: the best is the same

        def predictions(title: str, round: int) -> Iterator[dict[str, Any]]:
            model = state(round)
            for split in self.splits:
                scored = kept.get(split) or rounds.evaluate(model, round, [split], final=True)[split]
                if not self.algorithm.sends_updates:
                    kept[split] = scored
                results[title] |= dict(scored.metrics)
                yield from (grouped({"model": title, "split": split, **row}) for row in scored.predictions)

        # One by one: models and predictions may need a lot of memory.
        self.folder.write_table("predictions.tsv", chain.from_iterable(starmap(predictions, models.items())))
        if self.plan.evaluation.personal_final and self.algorithm.overrides("evaluate_personal"):
            before = watch()
            results["personal"] = self._personal(progress)
            results["time/personal_s"] = watch() - before
        self.folder.export("clients.parquet", lambda path: write_clients(progress.clients, path))
        results |= {"groups": scores.results()} if groups else {}
        results |= summary(progress) | formula(self.algorithm, progress)
        results["time/total_s"] = progress.totals["seconds"] + watch()
        for option in rounds.options:
            results |= option.results(progress, self.folder)
        if signatures := dict(self.algorithm.signatures):
            results["signatures"] = signatures
        chosen = state(best)
        self._remove_onnx()
        self.folder.export("model", lambda path: self.algorithm.export(chosen, path))
        self.folder.settle()
        self.folder.write_json("results.json", results)  # last: a run that has it is finished
        return results

    def _remove_onnx(self) -> None:
        """Remove what `fedray export` wrote before a run was resumed: it would lie beside a new model.

        First, so that it never does, even if this process is killed.
        """
        if found := [name for name in ONNX if self.folder.exists(name)]:
            for name in found:
                self.folder.remove(name)
            words = f"{' and '.join(found)} held the model before, and are removed: `fedray export` writes them again"
            self.note("warning", {"text": words})

    def _personal(self, progress: Progress) -> dict[str, Any]:
        """Score the personal models of all clients that ever took part; returns plain means over the clients.

        Writes personal.tsv, and with `evaluation.personal_predictions` also personal_predictions.tsv. Clients get the
        last round's broadcast: those that train again for their score use its learning rate. The next may be 0.
        """
        clients = [(name, record.state) for name, record in sorted(progress.clients.items()) if record.rounds]
        last, asked, rounds = progress.round - 1, self.plan.evaluation, self.rounds
        what = "scoring the clients' personal models"
        scored = rounds.again(lambda: personal.evaluate_all(
            rounds.pool, clients, last, rounds.put(progress.state, last).clients, self.splits,
            asked.personal_final_utterances, asked.personal_predictions,
            lambda done, of: self.note("progress", {"done": done, "of": of, "what": what}),
        ))  # fmt: skip
        failures = [one.failure for one in scored if one.failure is not None]
        self.failures.append(failure_rows(failures, progress.round + 1))  # a resumed run drops them and scores again
        rounds.check(failures, len(scored))
        rows = personal.table(scored)
        self.folder.write_table("personal.tsv", rows)
        if asked.personal_predictions:
            self.folder.write_table("personal_predictions.tsv", personal.predictions(scored))
        means = {"round": progress.round, "clients": len(scored) - len(failures)}
        return means | personal.summary(rows, self.splits)
