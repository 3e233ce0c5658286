"""The hypotheses of a run folder beside their references, aligned word by word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedray.report.errors import align
from fedray.runs import hypotheses
from fedray.runs.folder import RunFolder
from fedray.runs.strangers import check_files

LONGEST = 2_000  # characters of a text that the page shows: an alignment takes the product of two lengths


def heard(folder: RunFolder) -> dict[str, Any]:
    """The content of hypotheses.json; in its newest rows `now` and `before` are [kind, word, word heard] per word.

    `before` is of the model before the first round. {}: there is no such file. ValueError: it is damaged.
    """
    if not folder.exists(hypotheses.NAME):
        return {}
    check_files(folder, [hypotheses.NAME])
    found = folder.read_json(hypotheses.NAME)
    initial, newest = _part(folder, found.get("initial")), _part(folder, found.get("newest"))
    first = {row["utterance"]: row for row in initial["rows"]}
    rows = [
        {
            "utterance": row["utterance"],
            "speaker": str(row.get("speaker", "")),
            "reference": row["reference"],
            "now": _aligned(row["reference"], row["hypothesis"]),
            "before": _aligned(row["reference"], first[row["utterance"]]["hypothesis"])
            if newest["round"] and row["utterance"] in first
            else None,
        }
        for row in newest["rows"]
    ]
    return {"initial": initial, "newest": {"round": newest["round"], "rows": rows}}


def _part(folder: RunFolder, part: object) -> dict[str, Any]:
    """The scores and rows of one model."""
    if part is None:
        return {"round": 0, "scores": {}, "rows": []}
    shown = folder.storage.shown(hypotheses.NAME)
    if (
        not isinstance(part, Mapping)
        or not isinstance(part.get("round"), int)
        or not isinstance(part.get("scores"), Mapping)
        or not isinstance(part.get("rows"), list)
        or not all(isinstance(row, Mapping) for row in part["rows"])
    ):
        raise ValueError(f"{shown}: is not what a run writes: remove it to continue without it")
    texts = ("utterance", "reference", "hypothesis")
    rows = [row | {name: row[name][:LONGEST] for name in texts} for row in part["rows"] if _has(row, texts)]
    scores = {name: value for name, value in part["scores"].items() if isinstance(value, int | float)}
    return {"round": part["round"], "scores": scores, "rows": rows[: hypotheses.KEPT]}


def _has(row: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    """Whether the row is that of an utterance: a task of your own may have other rows."""
    return all(isinstance(row.get(name), str) for name in names)


def _aligned(reference: str, hypothesis: str) -> list[tuple[str, str, str]]:
    if not reference.split():  # jiwer aligns no empty reference
        return [("inserted", "", word) for word in hypothesis.split()]
    (edits,) = align([reference], [hypothesis])
    return [(edit.kind, edit.reference, edit.hypothesis) for edit in edits]
