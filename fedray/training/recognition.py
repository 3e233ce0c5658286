"""Speech recognition as a task.

The loss is nu CTC + (1 - nu) attention. The scores are word and character error rates in percent, by greedy and beam
search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import ctc_loss, nll_loss

from fedray.core.metrics import Metrics
from fedray.core.ranges import Count, Share
from fedray.core.settings import Choice, choice
from fedray.core.types import Evaluation, Vector
from fedray.data.features.augment import SpecAugment, SpecAugmentSettings
from fedray.data.features.dataset import Batch, Utterances, batches
from fedray.data.features.log_mel import FeatureSettings
from fedray.data.federation.speech_data import SpeechData
from fedray.data.text.error_rates import EditCounts, edit_counts
from fedray.data.text.pretrained_tokeniser import PretrainedTokeniser
from fedray.data.text.scoring import SCORING
from fedray.data.text.tokenisers import UNKNOWN, Characters, SentencePiece
from fedray.models import MODELS
from fedray.models.conformer import Conformer
from fedray.models.crdnn import CRDNN
from fedray.models.export_recogniser import export
from fedray.models.language_model import LANGUAGE_MODELS, LanguageModel
from fedray.models.whisper import Whisper, checked_folder, limits
from fedray.storage.files import write_atomically
from fedray.training.decoding.beam import BeamSearch, LexiconSearch
from fedray.training.decoding.search import DecodeSettings, GreedySearch, Hypothesis, Search
from fedray.training.recogniser_checks import check_model, check_seconds, check_tokens
from fedray.training.recognisers import Recogniser, by_attention, by_both, by_ctc, teacher_forced
from fedray.training.stack import answer
from fedray.training.task import Targets, Task

EVALUATION_BATCH = 32
TOKENS = ("characters", "unigram", "bpe", "pretrained")


@dataclass(frozen=True)
class RecognitionSettings:
    """Tokens, loss and decoding."""

    # characters | unigram | bpe: trained on transcripts | pretrained: those of the model's checkpoint (whisper)
    tokens: str = "characters"
    vocabulary: Count = 500  # number of sub-words, for unigram and bpe
    # Characters of training transcripts without a token: refuse | leave_out. Scores count them either way.
    unknown: str = "refuse"
    ctc_weight: Share = 1.0  # nu; below 1 the model needs a decoder
    # Rules for references and hypotheses in scores: plain (as they are) | gigaspeech (upper case; hyphens are spaces;
    # fillers and tags do not count)
    scoring: str = "plain"
    augment: SpecAugmentSettings = field(default_factory=SpecAugmentSettings)
    # language model of beam search, trained on the server's transcripts
    language_model: Choice = choice(LANGUAGE_MODELS, "ngram")
    # For pseudo-labels and final scores. Between rounds, dev is scored by greedy search.
    decode: DecodeSettings = field(default_factory=DecodeSettings)

    def __post_init__(self) -> None:
        if not 0 <= self.ctc_weight <= 1:
            raise ValueError(f"ctc_weight must be from 0 to 1, not {self.ctc_weight}")
        if self.tokens not in TOKENS:
            raise ValueError(f"tokens must be one of {', '.join(TOKENS)}, not {self.tokens!r}")
        if self.unknown not in UNKNOWN:
            raise ValueError(f"unknown must be {' or '.join(UNKNOWN)}, not {self.unknown!r}")
        if self.scoring not in SCORING:
            raise ValueError(f"scoring must be {' or '.join(SCORING)}, not {self.scoring!r}")


class Recognition(Task):
    """Speech to text. A pickled task leaves out the language model, which actors receive among the assets."""

    Settings = RecognitionSettings
    settings: RecognitionSettings
    init_depends = ("task.kind", "task.tokens", "task.vocabulary", "task.ctc_weight", "task.augment")
    best = ("dev/wer", "min")

    def __init__(
        self, settings: RecognitionSettings, model: Choice, features: FeatureSettings, data: SpeechData
    ) -> None:
        """Train tokeniser and language model on the federation's transcripts (`SpeechData.transcripts`)."""
        super().__init__(settings, model, features, data)
        # Whisper's limits: frames of the window, tokens of a text.
        self.limits = limits(model.settings) if issubclass(self.model_class, Whisper) else None
        self.language_model: LanguageModel | None = None
        self._augment = SpecAugment(settings.augment)
        self.tokeniser: Characters | SentencePiece | PretrainedTokeniser
        if settings.tokens == "pretrained":
            self.tokeniser = PretrainedTokeniser.load(checked_folder(model.settings))
            self.outputs = self.tokeniser.size
            return  # no language model: the decoder has learnt more of the language than these transcripts hold
        texts = data.transcripts()
        if settings.tokens == "characters":
            self.tokeniser = Characters.train(texts)
        else:
            self.tokeniser = SentencePiece.train(texts, settings.vocabulary, settings.tokens)
        self.outputs = self.tokeniser.size
        sequences = [self.tokeniser.encode(text) for text in texts]
        chosen = settings.language_model
        language_model = LANGUAGE_MODELS[chosen.kind]
        options = asdict(chosen.settings)
        self.language_model = language_model.train(sequences, vocabulary=self.tokeniser.size, **options)

    @classmethod
    def check_setup(cls, settings: RecognitionSettings, model: Choice, features: FeatureSettings) -> None:
        super().check_setup(settings, model, features)
        check_model(MODELS[model.kind], model.settings, settings.tokens, settings.ctc_weight, settings.decode)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "language_model": None}

    def assets(self) -> Mapping[str, Any]:
        return {"language_model": self.language_model}

    def targets(self, data: Utterances) -> list[list[int]]:
        """The token ids of each transcript.

        ValueError names an utterance without a transcript, with unknown characters, or beyond Whisper's limits.
        """
        if self.limits is not None:
            check_seconds(data, self.limits[0])
        targets = []
        for utterance, text in zip(data.ids, data.texts, strict=True):
            if text is None:
                raise ValueError(
                    f"utterance {utterance} has no transcript, which training needs: add it, or leave the row out"
                )
            try:
                targets.append(self.tokeniser.encode(text, self.settings.unknown))
            except ValueError as error:
                raise ValueError(f"utterance {utterance}: {error}") from error
        if self.limits is not None:
            check_tokens(data, targets, self.limits[1])
        return targets

    def augment(self, batch: Batch) -> Batch:
        return self._augment(batch)

    def loss(self, model: nn.Module, batch: Batch, targets: Targets) -> Tensor:
        """nu CTC + (1 - nu) attention, each a mean over the tokens of an utterance, then over utterances."""
        assert not isinstance(targets, np.ndarray)
        nu, device = self.settings.ctc_weight, batch.features.device
        sizes = torch.tensor([len(target) for target in targets], device=device)
        loss = torch.zeros((), device=device)
        if nu < 1:
            recogniser = cast(Recogniser, model)
            before, after, counted = teacher_forced(targets, recogniser.bos, recogniser.eos, device)
            outputs = answer(model, by_both if nu else by_attention, batch.features, batch.lengths, before)
            log_probs = outputs[0][:, : after.shape[1]].transpose(1, 2)
            losses = nll_loss(log_probs, after, reduction="none")
            loss = (1 - nu) * ((losses * counted).sum(1) / (sizes + 1)).mean()
        else:
            outputs = answer(model, by_ctc, batch.features, batch.lengths)
        if nu > 0:
            log_probs, lengths = outputs[-2:]
            flat = torch.tensor([token for target in targets for token in target], device=device)
            loss = nu * ctc_loss(log_probs.transpose(0, 1), flat, lengths, sizes, blank=0, zero_infinity=True) + loss
        return loss

    def greedy(self) -> Search:
        """Greedy search on CTC, or on the decoder where the model has no CTC."""
        if hasattr(self.model_class, "ctc"):
            return GreedySearch(self.settings.decode, self.tokeniser.decode)
        # Imported where it is needed: SpeechBrain's decoders take a second to import.
        from fedray.training.decoding.attention import AttentionSearch

        return AttentionSearch(replace(self.settings.decode, beam=1), self.tokeniser.decode)

    def search(self, assets: Mapping[str, Any]) -> Search:
        """The search of `task.decode`, with the language model among the assets."""
        decode, language_model = self.settings.decode, assets["language_model"]
        if decode.search == "greedy":
            return GreedySearch(decode, self.tokeniser.decode)
        if decode.search == "lexicon":
            return LexiconSearch(decode, self.tokeniser.encode, self.tokeniser.decode, language_model)
        if decode.search == "attention":
            from fedray.training.decoding.attention import AttentionSearch

            return AttentionSearch(decode, self.tokeniser.decode, language_model)
        return BeamSearch(decode, self.tokeniser.decode, language_model)

    def searches(self, assets: Mapping[str, Any]) -> dict[str, Search]:
        """The searches of a final evaluation by the names of their scores.

        `wer` is greedy search; `wer_lm` or `wer_lexicon` is the search of `task.decode`, unless that is greedy too.
        """
        searches, decode = {"wer": self.greedy()}, self.settings.decode
        if decode.search == "greedy" or (decode.beam == 1 and not hasattr(self.model_class, "ctc")):
            return searches
        return searches | {"wer_lexicon" if decode.search == "lexicon" else "wer_lm": self.search(assets)}

    def transcribe(
        self, params: Vector, data: Utterances, searches: Sequence[Search], device: str
    ) -> list[list[Hypothesis]]:
        """For each search the hypotheses of all utterances, in the order of `data`, from one encoder pass."""
        if self.limits is not None:
            check_seconds(data, self.limits[0])
        by_position: list[dict[int, Hypothesis]] = [{} for _ in searches]
        for positions, hidden, lengths, model in self.encoded(params, data, device):
            for search, hypotheses in zip(searches, by_position, strict=True):
                hypotheses.update(zip(positions, search.transcribe(model, hidden, lengths), strict=True))
        return [[hypotheses[position] for position in range(len(data))] for hypotheses in by_position]

    def encoded(
        self, params: Vector, data: Utterances, device: str
    ) -> Iterator[tuple[list[int], Tensor, Tensor, Recogniser]]:
        """For each batch: positions, hidden states [B, T, D], their lengths [B], and the model; without gradients."""
        flat = self.flat(device)
        flat.load(params)
        flat.model.eval()
        model = cast(Recogniser, flat.model)
        with torch.no_grad():
            for batch in batches(data, EVALUATION_BATCH, None):
                moved = batch.to(device)
                yield batch.positions.tolist(), *model.encode(moved.features, moved.lengths), model

    def scored(self, texts: Iterable[str | None]) -> list[str]:
        """Texts as they are scored, by `task.scoring`. A missing text is empty."""
        return [SCORING[self.settings.scoring](text or "") for text in texts]

    def evaluate(
        self, params: Vector, data: Utterances, assets: Mapping[str, Any], device: str, final: bool
    ) -> Evaluation:
        """`wer` and `cer` of greedy search, in percent.

        `final` adds the scores of the other `searches`, and one row for each utterance.
        """
        if not len(data):
            return Evaluation(Metrics())
        searches = self.searches(assets) if final else {"wer": self.greedy()}
        results = self.transcribe(params, data, list(searches.values()), device)
        references = self.scored(data.texts)
        texts = self.scored(hypothesis.text for hypothesis in results[0])
        words, characters = edit_counts(references, texts), edit_counts(references, texts, "character")
        metrics = Metrics(wer=_percent(words), cer=_percent(characters))
        columns: dict[str, Sequence[object]] = {
            "utterance": data.ids,
            "speaker": data.speakers,
            "label": [label or "" for label in data.labels],
            "reference": references,
            "words": [count.length for count in words],
            "hypothesis": texts,
            "errors": [count.errors for count in words],
        }
        for name, hypotheses in list(zip(searches, results, strict=True))[1:]:
            texts = self.scored(hypothesis.text for hypothesis in hypotheses)
            words, suffix = edit_counts(references, texts), name.removeprefix("wer")
            metrics = metrics + Metrics.of({name: _percent(words)})
            columns |= {f"hypothesis{suffix}": texts, f"errors{suffix}": [count.errors for count in words]}
        rows = zip(*columns.values(), strict=True) if final else ()
        return Evaluation(metrics, [dict(zip(columns, row, strict=True)) for row in rows])

    def export(self, params: Vector, folder: Path) -> None:
        """Write the model with its tokeniser and an example that needs torch and SpeechBrain only.

        For Whisper, a checkpoint of transformers. For a user's model, its state dict and the tokeniser.
        """
        flat = self.flat("cpu")
        flat.load(params)
        if isinstance(flat.model, Whisper):
            folder.mkdir(parents=True, exist_ok=True)
            self.tokeniser.save(folder)
            flat.model.save_pretrained(folder)
            return
        if not isinstance(flat.model, (Conformer, CRDNN)):
            folder.mkdir(parents=True, exist_ok=True)
            self.tokeniser.save(folder)
            write_atomically(folder / "model.pt", lambda path: torch.save(flat.model.state_dict(), path))
            return
        export(flat.model, self.tokeniser, self.described_features(), folder)


def _percent(counts: Sequence[EditCounts]) -> tuple[float, float]:
    """An error rate in percent as Metrics holds it: (100 x errors, units of the references)."""
    return 100.0 * sum(count.errors for count in counts), sum(count.length for count in counts)
