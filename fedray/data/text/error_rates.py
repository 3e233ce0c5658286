"""Count word and character errors, from which word and character error rates follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jiwer

UNITS = ("word", "character")


@dataclass(frozen=True)
class EditCounts:
    """Errors and length of one utterance.

    The error rate of a set in percent is 100 * sum of errors / sum of lengths.
    """

    errors: int  # substitutions + deletions + insertions
    length: int  # words or characters of the reference


def edit_counts(references: Sequence[str], hypotheses: Sequence[str], unit: str = "word") -> list[EditCounts]:
    """Count the errors of each hypothesis against its reference, in units of word | character.

    If the reference is empty, every unit is an insertion. Raises ValueError if the lists differ in length.
    """
    if unit not in UNITS:
        raise ValueError(f"unit {unit!r} is not known; choose one of {', '.join(UNITS)}")
    if len(references) != len(hypotheses):
        raise ValueError(
            f"{len(references)} references and {len(hypotheses)} hypotheses: each reference needs one hypothesis"
        )
    if not references:
        return []
    process = jiwer.process_words if unit == "word" else jiwer.process_characters
    output = process(list(references), list(hypotheses))
    return [
        EditCounts(sum(_edits(chunk) for chunk in alignment if chunk.type != "equal"), len(reference))
        for reference, alignment in zip(output.references, output.alignments, strict=True)
    ]


def _edits(chunk: jiwer.AlignmentChunk) -> int:
    """Substitutions, deletions or insertions of one stretch of an alignment."""
    return int(max(chunk.ref_end_idx - chunk.ref_start_idx, chunk.hyp_end_idx - chunk.hyp_start_idx))
