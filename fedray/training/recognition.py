"""Speech recognition as a task: loss nu CTC + (1 - nu) attention, greedy and beam search, word and character error rates in percent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import ctc_loss, nll_loss

from fedray.core.cache import write_atomically
from fedray.core.config import kind_of, kinds
from fedray.core.metrics import Metrics
from fedray.core.types import Evaluation, Vector
from fedray.data.augment import SpecAugment, SpecAugmentSettings
from fedray.data.dataset import Batch, Utterances, batches
from fedray.data.features import FeatureSettings
from fedray.data.federated import SpeechData
from fedray.data.pretrained_tokens import PretrainedTokens
from fedray.data.scoring import edit_counts
from fedray.data.text import UNKNOWN, Characters, SentencePiece
from fedray.models.conformer import Conformer
from fedray.models.crdnn import CRDNN
from fedray.models.export import export
from fedray.models.language_model import LANGUAGE_MODELS, LanguageModel
from fedray.models.whisper import FRAMES_A_SECOND, OVERHANG, Whisper, checked_folder, limits
from fedray.training.decoding import BeamSearch, DecodeSettings, GreedySearch, Hypothesis, LexiconSearch, Search
from fedray.training.task import Task

EVALUATION_BATCH = 32
TOKENS = ("characters", "unigram", "bpe", "pretrained")


@dataclass(frozen=True)
class RecognitionSettings:
    # characters | unigram | bpe, learnt from the server's transcripts | pretrained: those of the model's checkpoint (whisper)
    tokens: str = "characters"
    vocabulary: int = 500  # sub-words, with unigram and bpe
    unknown: str = "refuse"  # characters of training transcripts that have no token: refuse | leave_out (scores count them all the same)
    ctc_weight: float = 1.0  # nu; below 1 the model needs a decoder
    augment: SpecAugmentSettings = field(default_factory=SpecAugmentSettings)
    language_model: Any = kinds(LANGUAGE_MODELS, "ngram")
    # Of pseudo-labels and of the final scores; development sets are scored greedily.
    decode: DecodeSettings = field(default_factory=DecodeSettings)

    def __post_init__(self) -> None:
        if not 0 <= self.ctc_weight <= 1:
            raise ValueError(f"ctc_weight is a share from 0 to 1, not {self.ctc_weight}")
        if self.tokens not in TOKENS:
            raise ValueError(f"tokens is {', '.join(TOKENS)}, not {self.tokens!r}")
        if self.unknown not in UNKNOWN:
            raise ValueError(f"unknown is {' or '.join(UNKNOWN)}, not {self.unknown!r}")


class Recognition(Task):
    """Speech to text. Copies on actors leave the language model to the assets."""

    Settings = RecognitionSettings
    settings: RecognitionSettings
    init_depends = ("task.kind", "task.tokens", "task.vocabulary", "task.ctc_weight", "task.augment")
    best = ("dev/wer", "min")

    def __init__(self, settings: RecognitionSettings, model: Any, features: FeatureSettings, data: SpeechData) -> None:
        """Tokens and language model are learnt from the federation's transcripts."""
        super().__init__(settings, model, features)
        check_model(self.model_class, model, settings)
        self.limits = limits(model) if issubclass(self.model_class, Whisper) else None  # frames heard, tokens said
        self.language_model: LanguageModel | None = None
        self._augment = SpecAugment(settings.augment)
        self.tokeniser: Characters | SentencePiece | PretrainedTokens
        if settings.tokens == "pretrained":
            self.tokeniser = PretrainedTokens.load(checked_folder(model))
            self.outputs = self.tokeniser.size
            return  # its decoder has learnt more of the language than these transcripts teach
        texts = data.transcripts()
        if settings.tokens == "characters":
            self.tokeniser = Characters.train(texts)
        else:
            self.tokeniser = SentencePiece.train(texts, settings.vocabulary, settings.tokens)
        self.outputs = self.tokeniser.size
        sequences = [self.tokeniser.encode(text) for text in texts]
        chosen = LANGUAGE_MODELS[kind_of(settings.language_model, LANGUAGE_MODELS)]
        self.language_model = chosen.train(sequences, vocabulary=self.tokeniser.size, **asdict(settings.language_model))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "language_model": None}

    def assets(self) -> Mapping[str, Any]:
        return {"language_model": self.language_model}

    def targets(self, data: Utterances) -> list[list[int]]:
        """The token ids of the transcripts; ValueError names an utterance without one, or with unknown characters."""
        if self.limits is not None:
            check_seconds(data, self.limits[0])
        targets = []
        for utterance, text in zip(data.ids, data.texts, strict=True):
            if text is None:
                raise ValueError(f"utterance {utterance} has no transcript, and it is to be trained on")
            try:
                targets.append(self.tokeniser.encode(text, self.settings.unknown))
            except ValueError as error:
                raise ValueError(f"utterance {utterance}: {error}") from error
        if self.limits is not None:
            check_tokens(data, targets, self.limits[1])
        return targets

    def augment(self, batch: Batch) -> Batch:
        return self._augment(batch)

    def loss(self, model: Conformer | CRDNN, batch: Batch, targets: Sequence[Sequence[int]]) -> Tensor:
        """nu CTC + (1 - nu) attention, each a mean over the tokens of an utterance, then over utterances."""
        nu, device = self.settings.ctc_weight, batch.features.device
        hidden, lengths = model.encode(batch.features, batch.lengths)
        sizes = torch.tensor([len(target) for target in targets], device=device)
        loss = torch.zeros((), device=device)
        if nu > 0:
            flat = torch.tensor([token for target in targets for token in target], device=device)
            loss = nu * ctc_loss(model.ctc(hidden).transpose(0, 1), flat, lengths, sizes, blank=0, zero_infinity=True)
        if nu < 1:
            before, after, counted = teacher_forced(targets, model.bos, model.eos, device)
            losses = nll_loss(model.attend(hidden, lengths, before).transpose(1, 2), after, reduction="none")
            loss = loss + (1 - nu) * ((losses * counted).sum(1) / (sizes + 1)).mean()
        return loss

    def greedy(self) -> Search:
        """Of CTC, or of the decoder of a model without."""
        if hasattr(self.model_class, "ctc"):
            return GreedySearch(self.settings.decode, self.tokeniser.decode)
        from fedray.training.attention_search import AttentionSearch

        return AttentionSearch(replace(self.settings.decode, beam=1), self.tokeniser.decode)

    def search(self, assets: Mapping[str, Any]) -> Search:
        """The search of `task.decode`, with the language model that is among the assets."""
        decode, language_model = self.settings.decode, assets["language_model"]
        if decode.search == "greedy":
            return GreedySearch(decode, self.tokeniser.decode)
        if decode.search == "lexicon":
            return LexiconSearch(decode, self.tokeniser.encode, self.tokeniser.decode, language_model)
        if decode.search == "attention":
            from fedray.training.attention_search import AttentionSearch  # SpeechBrain's decoders cost a second to import

            return AttentionSearch(decode, self.tokeniser.decode, language_model)
        return BeamSearch(decode, self.tokeniser.decode, language_model)

    def searches(self, assets: Mapping[str, Any]) -> dict[str, Search]:
        """All that a final evaluation scores, by the name of the score: wer is greedy, wer_lm or wer_lexicon by `task.decode`."""
        found, decode = {"wer": self.greedy()}, self.settings.decode
        if decode.search == "greedy" or (decode.beam == 1 and not hasattr(self.model_class, "ctc")):
            return found
        return found | {"wer_lexicon" if decode.search == "lexicon" else "wer_lm": self.search(assets)}

    def transcribe(self, params: Vector, data: Utterances, searches: Sequence[Search], device: str) -> list[list[Hypothesis]]:
        """Each search's hypotheses for all utterances, in the order of `data`, from one encoder pass."""
        if self.limits is not None:
            check_seconds(data, self.limits[0])
        flat = self.flat(device)
        flat.load(params)
        flat.model.eval()
        found: list[dict[int, Hypothesis]] = [{} for _ in searches]
        with torch.no_grad():
            for batch in batches(data, EVALUATION_BATCH, None):
                moved = batch.to(device)
                hidden, lengths = flat.model.encode(moved.features, moved.lengths)
                for search, hypotheses in zip(searches, found, strict=True):
                    hypotheses.update(zip(batch.positions.tolist(), search.transcribe(flat.model, hidden, lengths), strict=True))
        return [[hypotheses[position] for position in range(len(data))] for hypotheses in found]

    def evaluate(self, params: Vector, data: Utterances, assets: Mapping[str, Any], device: str, final: bool) -> Evaluation:
        """wer and cer, greedy, in percent; `final` adds the scores of the other `searches`, and a row an utterance."""
        if not len(data):
            return Evaluation(Metrics())
        searches = self.searches(assets) if final else {"wer": self.greedy()}
        results = self.transcribe(params, data, list(searches.values()), device)
        references = [text or "" for text in data.texts]
        texts = [hypothesis.text for hypothesis in results[0]]
        words, characters = edit_counts(references, texts), edit_counts(references, texts, "character")
        metrics = Metrics(wer=_percent(words), cer=_percent(characters))
        columns: dict[str, list[Any]] = {
            "utterance": data.ids, "speaker": data.speakers, "label": [label or "" for label in data.labels], "reference": references,
            "words": [count.length for count in words], "hypothesis": texts, "errors": [count.errors for count in words],
        }  # fmt: skip
        for name, hypotheses in list(zip(searches, results, strict=True))[1:]:
            texts = [hypothesis.text for hypothesis in hypotheses]
            words, suffix = edit_counts(references, texts), name.removeprefix("wer")
            metrics = metrics + Metrics.of({name: _percent(words)})
            columns |= {f"hypothesis{suffix}": texts, f"errors{suffix}": [count.errors for count in words]}
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)] if final else []
        return Evaluation(metrics, rows)

    def export(self, params: Vector, folder: Path) -> None:
        """The model with its tokeniser and an example, for torch and SpeechBrain alone; of a model of the user's, its state dict."""
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


def check_model(model_class: type, model: Any, settings: RecognitionSettings) -> None:
    """ValueError where the model cannot be trained or asked as the settings want."""
    decode = settings.decode
    if issubclass(model_class, Whisper):
        wanted = {"task.tokens=pretrained": settings.tokens == "pretrained", "task.ctc_weight=0": settings.ctc_weight == 0}
        wanted |= {"task.decode.search=attention": decode.search == "attention", "task.decode.ctc_weight=0": decode.ctc_weight == 0}
        if missing := [setting for setting, given in wanted.items() if not given]:
            raise ValueError(f"model.kind whisper has its own tokens and no CTC: set {', '.join(missing)}")
        return
    if settings.tokens == "pretrained":
        raise ValueError("task.tokens pretrained are those of a checkpoint: set model.kind=whisper, or choose characters, unigram or bpe")
    if not hasattr(model_class, "ctc"):
        raise ValueError(f"task.kind recognition cannot train {model_class.__name__}, which has no CTC: set model.kind=conformer or crdnn")
    if settings.ctc_weight < 1 and not model.decoder_layers:
        raise ValueError("task.ctc_weight below 1 trains a decoder too: set model.decoder_layers")
    if decode.search == "attention" and not model.decoder_layers:
        raise ValueError("task.decode.search is attention, which needs a decoder: set model.decoder_layers")


def check_seconds(data: Utterances, window: int) -> None:
    """ValueError names an utterance that Whisper's window cannot hold."""
    if (long := data.lengths > window + OVERHANG).any():
        place = int(long.argmax())
        raise ValueError(
            f"utterance {data.ids[place]} is {data.lengths[place] / FRAMES_A_SECOND:g} s long, and {int(long.sum())} are longer than the "
            f"{window / FRAMES_A_SECOND:g} s that Whisper hears: leave them out (data.options.max_seconds), or cut them"
        )


def check_tokens(data: Utterances, targets: Sequence[Sequence[int]], longest: int) -> None:
    """ValueError names a transcript that Whisper's decoder cannot say; its end is a token too."""
    for utterance, target in zip(data.ids, targets, strict=True):
        if len(target) >= longest:
            raise ValueError(f"utterance {utterance} has {len(target)} tokens, and Whisper says at most {longest - 1}: cut it in two")


def teacher_forced(targets: Sequence[Sequence[int]], bos: int, eos: int, device: str | torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """A decoder's inputs and what is to follow each of them, [B, longest + 1] both, padded with eos; and which of them count."""
    sizes = torch.tensor([len(target) for target in targets], device=device)
    width = int(sizes.max()) + 1
    before, after = torch.full((2, len(targets), width), eos, device=device)
    before[:, 0] = bos
    for row, target in enumerate(targets):
        before[row, 1 : len(target) + 1] = after[row, : len(target)] = torch.tensor(target, device=device)
    return before, after, torch.arange(width, device=device) <= sizes[:, None]


def _percent(counts: Sequence[Any]) -> tuple[float, float]:
    return 100.0 * sum(count.errors for count in counts), sum(count.length for count in counts)
