"""What tests ask of language models."""

from __future__ import annotations

from collections.abc import Sequence

from fedray.models.language_model import LanguageModel


def log_probability(model: LanguageModel, sequence: Sequence[int]) -> float:
    """Natural log-probability of a whole sequence, including its end."""
    state, total = model.start(), 0.0
    for token in sequence:
        total += float(model.log_probs(state)[token])
        state = model.step(state, token)
    return total + model.end(state)
