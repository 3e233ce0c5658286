"""Choosing a client's k, lambda and temperature on its dev set: one retrieval for the largest k scores all settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedray.core.types import Vector
from fedray.data.features.dataset import Utterances
from fedray.data.text.error_rates import edit_counts
from fedray.models.memory import Memory, p_mem, p_mem_of
from fedray.training.decoding.search import collapsed
from fedray.training.knn.decoding import Retrieval
from fedray.training.recognisers import teacher_forced
from fedray.training.speech_to_text import SpeechToText

Costs = npt.NDArray[np.float64]  # of each setting
Answer = tuple[tuple[int, float], Tensor]  # (k, temperature), and p_mem of each state


def setting_costs(
    task: SpeechToText, params: Vector, data: Utterances, memory: Memory, settings: Sequence[Retrieval], device: str
) -> Costs:
    """The cost of each setting on labelled data, [settings], from one retrieval for the largest k.

    With frames as keys: the word error rate of greedy decoding, in percent. With states: nats per token of the
    transcripts and their ends, since a search would visit other states under each setting.
    """
    measured = word_errors_by_setting if memory.settings.keys == "frames" else token_losses
    costs, units = np.zeros(len(settings)), 0
    for part, count in measured(task, params, data, memory, settings, device):
        costs += part
        units += count
    return costs / max(1, units)


def word_errors_by_setting(
    task: SpeechToText, params: Vector, data: Utterances, memory: Memory, settings: Sequence[Retrieval], device: str
) -> Iterator[tuple[Costs, int]]:
    """Yield for each batch 100 x the word errors under each setting, and the number of words."""
    for positions, hidden, lengths, model in task.encoded(params, data, device):
        probabilities = model.ctc(hidden).exp().cpu()
        references = task.scored(data.texts[position] for position in positions)
        best = best_tokens(probabilities, memory_answers(memory, hidden, settings, probabilities.shape[-1]), settings)
        # Most settings give the same tokens, whose errors are counted once.
        rows = torch.arange(len(references)).expand(len(settings), -1)[..., None]
        utterance_tokens = torch.cat([rows, best], -1).flatten(0, 1)
        different, which = torch.unique(utterance_tokens, dim=0, return_inverse=True)
        row = different[:, 0].tolist()
        texts = task.scored(task.tokeniser.decode(tokens) for tokens in collapsed(different[:, 1:], lengths[row]))
        counts = edit_counts([references[place] for place in row], texts)
        errors = np.array([count.errors for count in counts])[which.view(len(settings), -1)]
        words = {place: count.length for place, count in zip(row, counts, strict=True)}
        yield (100.0 * errors).sum(1), sum(words.values())


def best_tokens(probabilities: Tensor, answers: Iterator[Answer], settings: Sequence[Retrieval]) -> Tensor:
    """The best token of each frame under each setting, [settings, B, T]. `probabilities`: CTC's, [B, T, V]."""
    of_model = probabilities.argmax(-1)
    best = of_model.repeat(len(settings), 1, 1)
    for kind, answer in answers:
        of_memory = answer.view_as(probabilities)
        disputed = (of_memory.argmax(-1) != of_model) & (of_memory.sum(-1) > 0)
        chosen = torch.tensor([place for place, setting in enumerate(settings) if kind_of(setting) == kind])
        shares = torch.tensor([settings[place].share for place in chosen])[:, None, None]
        both = shares * of_memory[disputed] + (1 - shares) * probabilities[disputed]
        best[(chosen[:, None], *disputed.nonzero(as_tuple=True))] = both.argmax(-1)
    return best


def token_losses(
    task: SpeechToText, params: Vector, data: Utterances, memory: Memory, settings: Sequence[Retrieval], device: str
) -> Iterator[tuple[Costs, int]]:
    """Yield for each batch the negative log-likelihood of the tokens under each setting, and the number of tokens."""
    targets = task.targets(data)
    for positions, hidden, lengths, model in task.encoded(params, data, device):
        of_batch = [targets[position] for position in positions]
        before, after, counted = teacher_forced(of_batch, model.bos, model.eos, device)
        states = model.decode(hidden, lengths, before)[counted]
        wanted = after[counted].cpu()
        log_probs = model.attention_head(states).log_softmax(-1).cpu()
        of_model = log_probs.gather(1, wanted[:, None])[:, 0].double().exp()
        distances, tokens = retrieved(memory, states, settings)
        of_memory = {
            (k, temperature): p_mem_of(distances[:, :k], tokens[:, :k], temperature, wanted)
            for k, temperature in kinds(settings)
        }
        # An empty memory has no share.
        given = torch.tensor([[setting.share] for setting in settings], dtype=torch.float64)
        shares = torch.isfinite(distances[:, 0]) * given
        both = [
            share * of_memory[kind_of(setting)] + (1 - share) * of_model
            for setting, share in zip(settings, shares, strict=True)
        ]
        yield -np.array([float(likelihoods.log().sum()) for likelihoods in both]), len(wanted)


def memory_answers(memory: Memory, states: Tensor, settings: Sequence[Retrieval], outputs: int) -> Iterator[Answer]:
    """Yield p_mem under each (k, temperature), one at a time: with thousands of tokens each answer is large."""
    distances, tokens = retrieved(memory, states, settings)
    for k, temperature in kinds(settings):
        yield (k, temperature), p_mem(distances[:, :k], tokens[:, :k], temperature, outputs)


def retrieved(memory: Memory, states: Tensor, settings: Sequence[Retrieval]) -> tuple[Tensor, Tensor]:
    """Distances and tokens of the nearest pairs, [states, largest k]."""
    largest = max(setting.k for setting in settings)
    distances, tokens = memory.search(states.flatten(0, -2).cpu().numpy(), largest)
    return torch.from_numpy(distances), torch.from_numpy(tokens)


def kind_of(setting: Retrieval) -> tuple[int, float]:
    """What a setting's p_mem depends on: (k, temperature)."""
    return setting.k, setting.temperature


def kinds(settings: Sequence[Retrieval]) -> set[tuple[int, float]]:
    """The different (k, temperature) of the settings."""
    return {kind_of(setting) for setting in settings}
