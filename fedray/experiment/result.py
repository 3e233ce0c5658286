"""What a run leaves behind, for notebooks and scripts: its scores, and its files as pandas tables."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedray.runs.folder import METRICS, RunFolder
from fedray.runs.scores import WITHOUT, check_results, first_model_in, scores, shown_round

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Result:
    """A run's folder (a path, or a URI), and its results.json. A notebook shows it as a table of scores.

    `results` is {"stopped": round} where the user ended the run, and {} where the caller detached from it.
    """

    folder: Path | str
    results: dict[str, Any] = field(repr=False)

    def __repr__(self) -> str:
        return f"Result(folder={RunFolder(self.folder).place!r})"  # a URI may hold a secret

    @classmethod
    def read(cls, folder: Path | str) -> Result:
        """The result of a finished run. ValueError: the folder holds no finished run."""
        run = RunFolder(folder)
        if not run.exists("results.json"):
            raise ValueError(
                f"{run.place} holds no finished run: it has no results.json. fedray.resume finishes a stopped run, "
                "and fedray.report.read shows an unfinished one"
            )
        results = run.read_json("results.json")
        check_results(results, run.storage.shown("results.json"))
        return cls(folder, results)

    def rounds(self) -> pd.DataFrame:
        """metrics.jsonl: a row per round, a column per metric. WER in percent, times in seconds, traffic in bytes.

        Values are those of the round, except traffic/total_bytes, which counts from the first round on.
        """
        import pandas as pd

        rows = RunFolder(self.folder).rows(METRICS)
        return pd.DataFrame(rows, columns=None if rows else ["round"]).set_index("round")

    def predictions(self) -> pd.DataFrame:
        """predictions.tsv: a row per scored utterance and model (`seed`, `best`). Words and errors are counts.

        Columns that begin with bleu hold the BLEU of a sentence.
        """
        import pandas as pd

        text = RunFolder(self.folder).read_text("predictions.tsv")
        table = pd.read_csv(io.StringIO(text), sep="\t", dtype=str, keep_default_na=False, quoting=3)
        types = {name: int for name in table if name == "words" or name.startswith("errors")}
        return table.astype(types | {name: float for name in table if name.startswith("bleu")})

    def clients(self) -> pd.DataFrame:
        """clients.parquet: a row per client that took part. `rounds` and `failures` are numbers of rounds.

        Columns that begin with report/ hold the client's last report, such as report/loss.
        """
        import pandas as pd

        return pd.read_parquet(io.BytesIO(RunFolder(self.folder).storage.read("clients.parquet")))

    def personal(self) -> pd.DataFrame:
        """personal.tsv: a row per client and split, with the scores of the client's personal model.

        WER and accuracy are in percent. ValueError: the run did not score personal models.
        """
        import pandas as pd

        folder = RunFolder(self.folder)
        if not folder.exists("personal.tsv"):
            raise ValueError(
                f"{folder.place} has no scores of personal models: set evaluation.personal_final=true in a new run, of "
                "an algorithm that scores them"
            )
        names = {"client": str, "split": str}
        return pd.read_csv(
            io.StringIO(folder.read_text("personal.tsv")), sep="\t", dtype=names, na_values=[""], keep_default_na=False,
            quoting=3,
        )  # fmt: skip

    def _repr_html_(self) -> str:
        if "best" not in self.results:
            stopped = f"stopped after round {self.results.get('stopped') or 0}"
            how = stopped if self.results else "continues without this process"
            return f"<p>The run in <code>{escape(RunFolder(self.folder).place)}</code> {how}.</p>"
        heads = ("", first_model_in(RunFolder(self.folder)), shown_round(self.results), "change")
        rows = [(score.title, f"{score.seed:.2f}", f"{score.best:.2f}", score.change) for score in scores(self.results)]
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        caption = f"{self.results['name']}: {self.results['rounds']} rounds, {self.results['time/total_s']:.0f} s, "
        caption += f"{self.results['traffic/total_bytes'] / 1e9:.3f} GB, run folder {RunFolder(self.folder).place}"
        if not rows:
            return f"<p>{escape(caption)}</p><p>{escape(WITHOUT)}</p>"
        head = "".join(f"<th>{cell}</th>" for cell in heads)
        return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
