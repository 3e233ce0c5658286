"""Counting word and character errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jiwer

UNITS = ("word", "character")


@dataclass(frozen=True)
class EditCounts:
    """Counts that add: an error rate in percent is 100 * errors / length of their sums."""

    errors: int  # substitutions + deletions + insertions
    length: int  # words or characters of the reference


def edit_counts(references: Sequence[str], hypotheses: Sequence[str], unit: str = "word") -> list[EditCounts]:
    """Errors of each hypothesis against its reference; all insertions where the reference is empty. unit: word | character.

    Raises ValueError if the lists differ in length.
    """
    if unit not in UNITS:
        raise ValueError(f"unit {unit!r} is not known; choose one of {', '.join(UNITS)}")
    if len(references) != len(hypotheses):
        raise ValueError(f"{len(references)} references and {len(hypotheses)} hypotheses: there must be one hypothesis a reference")
    if not references:
        return []
    process = jiwer.process_words if unit == "word" else jiwer.process_characters
    output = process(list(references), list(hypotheses))
    return [
        EditCounts(
            sum(max(c.ref_end_idx - c.ref_start_idx, c.hyp_end_idx - c.hyp_start_idx) for c in alignment if c.type != "equal"),
            len(reference),
        )
        for reference, alignment in zip(output.references, output.alignments, strict=True)
    ]
