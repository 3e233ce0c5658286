"""Choosing a client's k, lambda, temperature and radius on its dev set.

One retrieval for the largest k scores all settings; a search may then decide between the best few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedray.core.types import Received, Vector
from fedray.data.features.dataset import Utterances
from fedray.data.text.error_rates import edit_counts
from fedray.models.memory import Memory, p_mem, p_mem_of
from fedray.training.decoding.search import Search, collapsed
from fedray.training.knn.decoding import Retrieval, SearchWithMemory, search_scores
from fedray.training.recognisers import frame_keys, teacher_forced
from fedray.training.speech_to_text import SpeechToText

Costs = npt.NDArray[np.float64]  # one for each setting
# The setting that p_mem depends on (`kind_of`), then for each state p_mem and the part of lambda that it gets.
Answer = tuple[Retrieval, Tensor, Tensor]


def setting_costs(
    task: SpeechToText, params: Vector, data: Utterances, memory: Memory, settings: Sequence[Retrieval], device: str
) -> Costs:
    """The cost of each setting on labelled data, [settings], from one retrieval for the largest k.

    With frames as keys: the word error rate of greedy decoding, in percent. With states: nats per token of the
    transcripts and their ends, since a search would visit different states under each setting.
    """
    measured = word_errors_by_setting if memory.settings.keys == "frames" else token_losses
    costs, units = np.zeros(len(settings)), 0
    for part, count in measured(task, params, data, memory, settings, device):
        costs += part
        units += count
    return costs / max(1, units)


def best_by_search(
    task: SpeechToText,
    received: Received,
    data: Utterances,
    memory: Memory,
    settings: Sequence[Retrieval],
    costs: Costs,
    count: int,
    search: Search,
) -> Retrieval:
    """The setting with which `search` decodes labelled data best, of the cheapest `count` with different lambdas.

    Settings with the same lambda have similar costs and decode similarly. In a tie the cheapest wins.
    """
    cheapest: dict[float, Retrieval] = {}
    for place in np.argsort(costs, kind="stable"):
        cheapest.setdefault(settings[place].share, settings[place])
    names = {f"{task.score}_{place}": one for place, one in enumerate(list(cheapest.values())[:count])}
    searches = {name: SearchWithMemory(search, memory, one) for name, one in names.items()}
    scores = search_scores(task, received, data, searches, final=False).metrics
    sign = 1 if task.best[1] == "min" else -1
    return names[min(names, key=lambda name: sign * scores[name])]


def word_errors_by_setting(
    task: SpeechToText, params: Vector, data: Utterances, memory: Memory, settings: Sequence[Retrieval], device: str
) -> Iterator[tuple[Costs, int]]:
    """Yield for each batch 100 x the word errors under each setting, and the number of words."""
    for positions, hidden, lengths, model in task.encoded(params, data, device):
        probabilities = model.ctc(hidden).exp().cpu()
        references = task.scored(data.texts[position] for position in positions)
        best = best_tokens(
            probabilities,
            memory_answers(memory, frame_keys(model, hidden), settings, probabilities.shape[-1]),
            settings,
        )
        # Most settings give the same tokens, whose errors are counted once.
        rows = torch.arange(len(references)).expand(len(settings), -1)[..., None]
        utterance_tokens = torch.cat([rows, best], -1).flatten(0, 1)
        different, which = torch.unique(utterance_tokens, dim=0, return_inverse=True)
        row = different[:, 0].tolist()
        texts = task.scored(task.tokeniser.decode(tokens) for tokens in collapsed(different[:, 1:], lengths[row]))
        counts = edit_counts([references[utterance] for utterance in row], texts)
        errors = np.array([count.errors for count in counts])[which.view(len(settings), -1)]
        words = {utterance: count.length for utterance, count in zip(row, counts, strict=True)}
        yield (100.0 * errors).sum(1), sum(words.values())


def best_tokens(probabilities: Tensor, answers: Iterator[Answer], settings: Sequence[Retrieval]) -> Tensor:
    """The best token of each frame under each setting, [settings, B, T]. `probabilities`: CTC's, [B, T, V]."""
    of_model = probabilities.argmax(-1)
    best = of_model.repeat(len(settings), 1, 1)
    own = [kind_of(setting) for setting in settings]
    for kind, answer, part in answers:
        of_memory = answer.view_as(probabilities)
        disputed = (of_memory.argmax(-1) != of_model) & (of_memory.sum(-1) > 0)
        disputed &= kind.unsure(probabilities.amax(-1))
        chosen = torch.tensor([number for number, of_setting in enumerate(own) if of_setting == kind])
        shares = torch.tensor([settings[number].share for number in chosen])[:, None, None]
        shares = shares * part.view_as(of_model)[disputed][:, None]
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
        surest = log_probs.amax(-1).exp()
        answers = {}
        for kind in kinds(settings):
            near = kind.near(distances)
            # `nearness` gives an empty memory no share.
            part = (kind.nearness(near) * kind.unsure(surest)).double()
            answers[kind] = p_mem_of(near, tokens[:, : kind.k], kind.temperature, wanted), part
        both = []
        for setting in settings:
            of_memory, part = answers[kind_of(setting)]
            share = setting.share * part
            both.append(share * of_memory + (1 - share) * of_model)
        yield -np.array([float(likelihoods.log().sum()) for likelihoods in both]), len(wanted)


def memory_answers(memory: Memory, states: Tensor, settings: Sequence[Retrieval], outputs: int) -> Iterator[Answer]:
    """Yield p_mem of each kind of setting, one at a time: with thousands of tokens each answer is large."""
    distances, tokens = retrieved(memory, states, settings)
    for kind in kinds(settings):
        near = kind.near(distances)
        yield kind, p_mem(near, tokens[:, : kind.k], kind.temperature, outputs), kind.nearness(near)


def retrieved(memory: Memory, states: Tensor, settings: Sequence[Retrieval]) -> tuple[Tensor, Tensor]:
    """Distances and tokens of the nearest pairs, [states, largest k]."""
    largest = max(setting.k for setting in settings)
    distances, tokens = memory.search(states.flatten(0, -2).cpu().numpy(), largest)
    return torch.from_numpy(distances), torch.from_numpy(tokens)


def kind_of(setting: Retrieval) -> Retrieval:
    """The setting with lambda 1: p_mem depends on all its options but lambda."""
    return replace(setting, share=1.0)


def kinds(settings: Sequence[Retrieval]) -> set[Retrieval]:
    """The distinct kinds of the settings."""
    return {kind_of(setting) for setting in settings}
