"""The scores in a results.json: those of the seed model and those of the best round."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedray.core.ranges import is_number
from fedray.runs.folder import RunFolder
from fedray.runs.strangers import read_config

REMEDY = "restore it, or remove it to continue without it"
INITIAL = "initial model"  # one with random weights
TOTALS = ("rounds", "traffic/total_bytes", "clients/failed", "time/total_s")  # of a finished run


def with_unit(name: str) -> str:
    """A metric's name, with the unit of error rates."""
    return f"{name} (%)" if name.rpartition("/")[2].startswith(("wer", "cer")) else name


def first_model(config: object) -> str:
    """What the model before the first round is called: "initial model" if its weights are random, else "seed model".

    `config` is the content of a config.yaml. Weights are random if nothing trains them (`algorithm.pretrain.steps`) and
    no file has them (`model.init`, `model.folder`).
    """
    algorithm, model = _section(config, "algorithm"), _section(config, "model")
    trained = _section(algorithm, "pretrain").get("steps") != 0
    return "seed model" if trained or model.get("init") or model.get("folder") else INITIAL


def first_model_in(folder: RunFolder) -> str:
    """`first_model` of the run in the folder; "seed model" if config.yaml cannot tell."""
    try:
        return first_model(read_config(folder))
    except (OSError, ValueError):  # scores are shown even if this file is damaged
        return "seed model"


@dataclass(frozen=True)
class Score:
    """A metric of the seed model, which is the model before the first round, and of the best round."""

    name: str
    seed: float
    best: float

    @property
    def title(self) -> str:
        return with_unit(self.name)

    @property
    def change(self) -> str:
        """The relative change; empty if the seed model's score is 0."""
        return f"{100 * (self.best - self.seed) / self.seed:+.1f} %" if self.seed else ""


def scores(results: Mapping[str, Any]) -> list[Score]:
    """The scores in the content of a results.json; null is NaN."""
    best, seed = results["best"], results["seed"]
    return [Score(name, _number(seed.get(name)), _number(best[name])) for name in best if name != "round"]


WITHOUT = (
    "No scores: the data have neither dev nor test, so nothing says which round is best or what the model has learnt. "
    "Set data.dev_share and data.test_share, or name the files of dev and test; metrics.jsonl has the training loss."
)


def shown_round(results: Mapping[str, Any]) -> str:
    """The round whose scores are shown: the best one, or the last if neither dev nor `evaluation.best` chose one."""
    best = results["best"]
    which = "best" if "chosen_by" in results or any(name.startswith("dev/") for name in best) else "last"
    return f"{which} round ({best['round']})"


def check_results(results: Mapping[str, Any], shown: str, totals: Iterable[str] = ()) -> None:
    """Raise ValueError, which names the file `shown`, if a score or one of `totals` is missing or not a number."""
    for model in ("seed", "best"):
        if not isinstance(results.get(model), Mapping) or not is_number(results[model].get("round")):
            raise ValueError(f"{shown}: lacks the scores of the {model} model: {REMEDY}")
    told = results.get("signatures", {})
    if not isinstance(told, Mapping) or not all(isinstance(signature, str) for signature in told.values()):
        raise ValueError(f"{shown}: signatures must be an object of texts, not {told!r}: {REMEDY}")
    devices = results.get("devices", {})
    if not isinstance(devices, Mapping) or not all(
        type(clients) is int and clients >= 0 for clients in devices.values()
    ):
        raise ValueError(f"{shown}: devices must be an object of numbers of clients, not {devices!r}: {REMEDY}")
    if not isinstance(personal := results.get("personal", {}), Mapping):
        raise ValueError(f"{shown}: personal must be an object of scores, not {personal!r}: {REMEDY}")
    numbers = {name: results.get(name) for name in totals}
    numbers |= {f"personal: {name}": value for name, value in personal.items() if "/" in name}
    numbers |= {f"{model}: {name}": value for model in ("seed", "best") for name, value in results[model].items()}
    numbers |= {name: value for name, value in results.items() if "/" in name}
    for name, value in numbers.items():
        if not is_number(value) and (value is not None or name in totals):
            raise ValueError(f"{shown}: {name} must be a number, not {value!r}: {REMEDY}")


def _section(values: object, name: str) -> Mapping[str, Any]:
    found = values.get(name) if isinstance(values, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _number(value: float | None) -> float:
    return math.nan if value is None else value
