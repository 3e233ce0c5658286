"""Names of metrics and formats of numbers, for the page, the tables and the axes of figures."""

from __future__ import annotations

import re
from collections.abc import Iterable
from statistics import mean

from fedray.core.metrics import RISING, of_translations
from fedray.core.metrics import rising as rising

NAMES = {"wer": "WER", "cer": "CER", "accuracy": "accuracy", "loss": "loss", "macro_f1": "macro-F1"}
OF_TRANSLATIONS = {"bleu": "BLEU", "chrf": "chrF"}  # from 0 to 100, without a unit
NAMES |= OF_TRANSLATIONS
SEARCHES = {"lm": "LM", "lexicon": "lexicon", "beam": "beam search"}
WHOLE = {
    "traffic/total_bytes": "traffic",
    "traffic/formula_bytes": "traffic by the paper's formula",
    "traffic/up_bytes": "traffic up",
    "traffic/down_bytes": "traffic down",
    "time/round_s": "time per round",
    "time/total_s": "time",
    "train/label_wer": "WER of the clients' labels",
    "train/label_bleu": "BLEU of the clients' labels",
    "train/steps": "gradient steps of a client",
    "lr/client": "client learning rate",
    "clients/failed": "failed clients",
    "virtual/hours": "virtual hours",
    "virtual/device_hours": "device hours",
    "virtual/energy_wh": "energy",
    "virtual/staleness": "staleness",
}


def direction(metric: str) -> str | None:
    """Which values of the metric are better, "max" or "min"; None: its name does not say."""
    if rising(metric):
        return "max"
    name = metric.rpartition("/")[2]
    return "min" if in_percent(metric) or name == "loss" or name.endswith("_loss") else None


def title(metric: str) -> str:
    """The metric in words: `test/wer_lm` -> `test WER, LM`."""
    if metric in WHOLE:
        return WHOLE[metric]
    part, _, name = metric.rpartition("/")
    score, _, search = (name, "", "") if name in NAMES else name.partition("_")
    if score not in NAMES:
        return metric.replace("/", " ").replace("_", " ")
    words = " ".join(filter(None, (part.replace("/", " "), NAMES[score])))
    return words + (f", {SEARCHES.get(search, search)}" if search else "")


def of_clients(metric: str) -> bool:
    """Whether a metric is a personal score of all clients at the end, personal/<split>/<score>."""
    return metric.startswith("personal/") and metric.count("/") == 2


def of_a_cohort(metric: str) -> bool:
    """Whether a metric is a personal score of a round's cohort, personal/<score>."""
    return metric.startswith("personal/") and not of_clients(metric)


def unit(metric: str) -> str:
    """The unit in which a metric is shown: %, GB, Wh, s, or "" for a plain number."""
    if in_percent(metric):
        return "%"
    if metric.endswith("_wh"):
        return "Wh"
    return "GB" if metric.endswith("_bytes") else "s" if metric.endswith("_s") else ""


def in_percent(metric: str) -> bool:
    """Whether a metric is a rate that is shown in percent."""
    name = metric.rpartition("/")[2]
    return name.startswith(("wer", "cer")) or name.endswith(("_wer", *RISING))


def in_points(metric: str) -> bool:
    """Whether a metric has values from 0 to 100, whose changes are given in points."""
    return in_percent(metric) or of_translations(metric)


def scaled(value: float, metric: str) -> float:
    """The value in the unit that `unit` names: bytes become GB."""
    return value / 1e9 if metric.endswith("_bytes") else value


def number(value: float | None, metric: str = "") -> str:
    """The value with its significant digits only; empty for None."""
    if value is None:
        return ""
    if in_points(metric):
        return f"{value:.1f}"
    value = scaled(value, metric)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def with_unit(metric: str) -> str:
    """The metric in words with its unit: `test WER (%)`."""
    return title(metric) + (f" ({unit(metric)})" if unit(metric) else "")


def span(values: Iterable[float]) -> str:
    """The range of the rounded values: `21`, or `19–24`."""
    found = sorted({round(value) for value in values})
    return "" if not found else f"{found[0]}" if len(found) == 1 else f"{found[0]}–{found[-1]}"


def duration(seconds: Iterable[float]) -> str:
    """The mean of the durations: `48 s`, `6.2 min`, `3.1 h`; empty for none."""
    values = list(seconds)
    if not values:
        return ""
    found = mean(values)
    return f"{found:.0f} s" if found < 100 else f"{found / 60:.1f} min" if found < 6000 else f"{found / 3600:.1f} h"


def kept(text: object) -> str:
    """The text with no-break spaces in numbers, with their units, and in intervals: lines break between them only."""
    within = re.sub(r"(?<=\d) (?=[%→a-z])|(?<=→) ", "\N{NO-BREAK SPACE}", str(text))
    return re.sub(r"\[[^\]]*\]|± \d\S*", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), within)


def minus(text: object) -> str:
    """The text with typographic minus signs before numbers; hyphens between letters stay."""
    return re.sub(r"(?<![^\W_])-(?=\d)", "−", str(text))
