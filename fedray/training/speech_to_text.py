"""Speech to text as a task: the code that recognition and translation share.

The loss is nu CTC + (1 - nu) attention. A search finds the text of encoded utterances.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import ctc_loss

from fedray.core.drawing import spread
from fedray.core.metrics import Metrics
from fedray.core.settings import Choice
from fedray.core.types import Vector
from fedray.data.features.augment import SpecAugment
from fedray.data.features.dataset import Batch, Utterances, batches
from fedray.data.features.settings import FeatureSettings
from fedray.data.federation.speech_data import SpeechData
from fedray.data.manifest import Mask
from fedray.data.text.ctc_vocabulary import CTCVocabulary
from fedray.data.text.tokenisers import Characters, SentencePiece
from fedray.models import export_encoder
from fedray.models.conformer import Conformer
from fedray.models.crdnn import CRDNN
from fedray.models.encoder import Encoder
from fedray.models.export_recogniser import export, write_features
from fedray.models.kernels import on_cpu
from fedray.models.speechbrain_folder import SpeechBrainCTC
from fedray.models.whisper import Whisper, limits
from fedray.storage.serialize import save_tensors
from fedray.training.checkpoint_tokens import AnyTokeniser, checkpoint_tokens
from fedray.training.decoding.search import Hypothesis, Search
from fedray.training.learnable import Capacity, Demand
from fedray.training.recogniser_checks import check_same_tokens, check_seconds, check_tokens
from fedray.training.recognisers import Recogniser, by_attention, by_both, by_ctc, decoder_losses, teacher_forced
from fedray.training.stack import answer
from fedray.training.task import SHOWN, Targets, Task

TOKENS = ("characters", "unigram", "bpe", "pretrained")
UNLEARNABLE = ("refuse", "warn")


class SpeechToText(Task):
    """Speech to the text in a column of the manifest. Abstract: a subclass defines its searches and its scores."""

    logged = ("loss", "unlearnable")
    score: str  # the name of greedy search's score
    text_name: str  # what errors call the texts
    smoothing = 0.0  # share of a decoder label that is spread evenly over all tokens

    def __init__(self, settings: Any, model: Choice, features: FeatureSettings, data: SpeechData) -> None:
        """Train the tokeniser on the federation's texts (`SpeechData.transcripts`), or load a trained model's.

        ValueError: the folder of the file that model.init names has no tokeniser to load, or one with other tokens than
        those trained here.
        """
        super().__init__(settings, model, features, data)
        # Whisper's limits: frames in the window, tokens in a text.
        self.limits = limits(model.settings) if issubclass(self.model_class, Whisper) else None
        self.capacity = Capacity(self.model_class, model.settings)
        self._augment = SpecAugment(settings.augment)
        self.tokeniser: AnyTokeniser
        texts = data.transcripts(self.column(settings))
        if settings.tokens == "pretrained":
            self.tokeniser = checkpoint_tokens(self.model_class, model.settings, texts)
        else:
            self.tokeniser = trained = trained_tokeniser(texts, settings.tokens, settings.vocabulary)
            check_same_tokens(trained, model.settings)
        self.outputs = self.tokeniser.size

    def model(self) -> nn.Module:
        if not isinstance(self.tokeniser, CTCVocabulary):
            return super().model()
        return self.model_class(self.model_settings, self.features.bins, self.outputs, self.tokeniser.places)

    def texts(self, data: Utterances) -> list[str | None]:
        """The true text of each utterance; None if it has none."""
        return data.column(self.column(self.settings))

    def targets(self, data: Utterances) -> list[list[int]]:
        """The token ids of each text.

        ValueError names an utterance without a text, with unknown characters, or beyond Whisper's limits.
        """
        if self.limits is not None:
            check_seconds(data, self.limits[0])
        targets = self.tokens(data)
        if self.limits is not None:
            check_tokens(data, targets, self.limits[1])
        return targets

    def tokens(self, data: Utterances, strict: bool = True) -> list[list[int]]:
        """The token ids of each text. ValueError names one that cannot be used; if not `strict`, that has none."""
        return encoded(data, self.texts(data), self.tokeniser, self.settings.unknown, self.text_name, strict)

    def demand(self, data: Utterances, targets: Sequence[Sequence[int]]) -> Demand:
        """What these utterances with these targets ask of the model."""
        nu = self.settings.ctc_weight
        spoken, written = self.ctc_targets(targets) if nu else None, targets if nu < 1 else None
        return Demand.of(data.lengths, spoken, written)

    def unlearnable(self, data: Utterances, targets: Targets) -> Mask:
        assert not isinstance(targets, np.ndarray)
        return self.capacity.unlearnable(self.demand(data, targets))

    def encode(self, text: str) -> list[int]:
        """The token ids of a text that `targets` has accepted or a search has found."""
        return self.tokeniser.encode(text, self.settings.unknown)

    def ctc_targets(self, targets: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
        """The token ids that CTC learns."""
        return targets

    def augment(self, batch: Batch) -> Batch:
        return self._augment(batch)

    def loss(self, model: nn.Module, batch: Batch, targets: Targets, ctc: bool = True) -> Tensor:
        """nu CTC + (1 - nu) attention, each a mean over the tokens of an utterance, then over utterances.

        `ctc`: False: attention alone.
        """
        assert not isinstance(targets, np.ndarray)
        nu, device = self.settings.ctc_weight if ctc else 0.0, batch.features.device
        loss = torch.zeros((), device=device)
        if nu < 1:
            recogniser = cast(Recogniser, model)
            before, after, counted = teacher_forced(targets, recogniser.bos, recogniser.eos, device)
            outputs = answer(model, by_both if nu else by_attention, batch.features, batch.lengths, before)
            losses = decoder_losses(outputs[0][:, : after.shape[1]], after, self.smoothing)
            loss = (1 - nu) * ((losses * counted).sum(1) / (sizes_of(targets, device) + 1)).mean()
        else:
            outputs = answer(model, by_ctc, batch.features, batch.lengths)
        if nu > 0:
            log_probs, lengths = outputs[-2:]
            aligned = self.ctc_targets(targets)
            flat = torch.tensor([token for row in aligned for token in row], device=device)
            sizes = sizes_of(aligned, device)
            loss = nu * aligned_loss(log_probs, flat, lengths, sizes) + loss
        return loss

    @abstractmethod
    def greedy(self) -> Search:
        """Greedy search."""

    @abstractmethod
    def search(self, assets: Mapping[str, Any]) -> Search:
        """The search of `task.decode`."""

    @abstractmethod
    def searches(self, assets: Mapping[str, Any]) -> dict[str, Search]:
        """The searches of a final evaluation by the names of their scores, greedy search first."""

    def scored(self, texts: Iterable[str | None]) -> list[str]:
        """The texts in the form that is scored; a missing text becomes empty."""
        return [text or "" for text in texts]

    @abstractmethod
    def scores(self, references: Sequence[str | None], texts: Mapping[str, Sequence[str]]) -> Metrics:
        """Score the texts that searches have found. `texts`: name of a search -> its texts."""

    @abstractmethod
    def rows(self, data: Utterances, texts: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
        """The rows of predictions.tsv: the texts that searches have found for each utterance, greedy search first."""

    def some_rows(self, data: Utterances, texts: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
        """The rows of `SHOWN` utterances."""
        chosen = spread(len(data), SHOWN)
        of_chosen = {name: [of_all[position] for position in chosen] for name, of_all in texts.items()}
        return self.rows(data.take(np.array(chosen)), of_chosen)

    def transcribe(
        self, params: Vector, data: Utterances, searches: Sequence[Search], device: str
    ) -> list[list[Hypothesis]]:
        """For each search, the hypotheses of all utterances, in the order of `data`, from one encoder pass."""
        if self.limits is not None:
            check_seconds(data, self.limits[0])
        by_position: list[dict[int, Hypothesis]] = [{} for _ in searches]
        for positions, hidden, lengths, model in self.encoded(params, data, device):
            for search, hypotheses in zip(searches, by_position, strict=True):
                hypotheses.update(zip(positions, search.transcribe(model, hidden, lengths), strict=True))
        return [[hypotheses[position] for position in range(len(data))] for hypotheses in by_position]

    def found(
        self, params: Vector, data: Utterances, searches: Mapping[str, Search], device: str
    ) -> dict[str, list[str]]:
        """The texts that each search finds, by its name."""
        results = self.transcribe(params, data, list(searches.values()), device)
        texts = [[hypothesis.text for hypothesis in hypotheses] for hypotheses in results]
        return dict(zip(searches, texts, strict=True))

    def encoded(
        self, params: Vector, data: Utterances, device: str
    ) -> Iterator[tuple[list[int], Tensor, Tensor, Recogniser]]:
        """Yield each batch's positions, hidden states [B, T, D], their lengths [B] and the model, without gradients."""
        flat = self.flat(device)
        flat.load(params)
        flat.model.eval()
        model = cast(Recogniser, flat.model)
        with torch.no_grad():
            for batch in batches(data, self.scored_together, None):
                moved = batch.to(device)
                yield batch.positions.tolist(), *model.encode(moved.features, moved.lengths), model

    def export(self, params: Vector, folder: Path) -> None:
        """Write the model with its tokeniser and an example that needs only torch and SpeechBrain.

        Whisper and encoders are written as checkpoints of transformers, a user's model as its state dict with
        features.yaml, each with the tokeniser.
        """
        flat = self.flat("cpu")
        flat.load(params)
        if isinstance(flat.model, Whisper | SpeechBrainCTC):
            folder.mkdir(parents=True, exist_ok=True)
            self.tokeniser.save(folder)
            flat.model.save_pretrained(folder)
            return
        if isinstance(flat.model, Encoder):
            folder.mkdir(parents=True, exist_ok=True)
            export_encoder.save_recogniser(flat.model, self.tokeniser, folder)
            return
        features = self.described_features()
        if features is not None and isinstance(flat.model, Conformer | CRDNN):
            export(flat.model, self.tokeniser, features, folder, self.greedy().reads)
            return
        folder.mkdir(parents=True, exist_ok=True)
        self.tokeniser.save(folder)
        save_tensors(flat.model.state_dict(), folder / "model.pt")
        if features is not None:
            write_features(features, folder)


def trained_tokeniser(texts: Sequence[str], kind: str, size: int) -> Characters | SentencePiece:
    """Train a tokeniser on texts: of characters, or of `size` sub-words (`kind`: unigram or bpe)."""
    return Characters.train(texts) if kind == "characters" else SentencePiece.train(texts, size, kind)


def encoded(
    data: Utterances,
    texts: Sequence[str | None],
    tokeniser: AnyTokeniser,
    unknown: str,
    name: str,
    strict: bool = True,
) -> list[list[int]]:
    """The token ids of each utterance's text.

    ValueError names an utterance without a text, or with unknown characters; if not `strict`, these have no tokens.
    `name`: what errors call the texts.
    """
    tokens: list[list[int]] = []
    for utterance, text in zip(data.ids, texts, strict=True):
        if text is None and not strict:
            tokens.append([])
            continue
        if text is None:
            raise ValueError(f"utterance {utterance} has no {name}, which training needs: add it, or leave the row out")
        try:
            tokens.append(tokeniser.encode(text, unknown))
        except ValueError as error:
            if strict:
                raise ValueError(f"utterance {utterance}: {error}") from error
            tokens.append([])
    return tokens


def table(columns: Mapping[str, Sequence[object]]) -> list[dict[str, Any]]:
    """The rows of a table, from its columns by name."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def aligned_loss(log_probs: Tensor, tokens: Tensor, lengths: Tensor, sizes: Tensor) -> Tensor:
    """torch's CTC loss of log-probabilities [B, T, V], a mean over tokens, then over utterances.

    `tokens`: of all utterances, concatenated. `sizes` [B]: how many each has. One with too few frames has loss 0.
    """
    if on_cpu(log_probs):
        from fedray.models.kernels import ctc

        return ctc.ctc_loss(log_probs, tokens, lengths, sizes)
    return ctc_loss(log_probs.transpose(0, 1), tokens, lengths, sizes, blank=0, zero_infinity=True)


def sizes_of(targets: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """The number of tokens of each target, int64 [batch]."""
    return torch.tensor([len(target) for target in targets], device=device)
