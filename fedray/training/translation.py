"""Speech translation as a task: from speech to text in another language, with an encoder and a decoder.

The loss is the decoder's cross-entropy with smoothed labels; `ctc_weight` adds CTC on the transcripts, which have
their own tokens. The scores are BLEU and chrF, for greedy and beam search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

from torch import nn

from fedray.core.metrics import Metrics
from fedray.core.ranges import Count, Part, Positive, Ranged, one_of
from fedray.core.settings import Choice
from fedray.core.types import Evaluation, Vector
from fedray.data.features.augment import SpecAugmentSettings
from fedray.data.features.dataset import Utterances
from fedray.data.features.settings import FeatureSettings
from fedray.data.federation.speech_data import SpeechData
from fedray.data.text.tokenisers import UNKNOWN, Tokeniser, load_tokeniser
from fedray.data.text.translation_scores import TOKENISATIONS, sentence_bleu, signatures, translation_scores
from fedray.models import MODELS
from fedray.models.conformer import Conformer
from fedray.models.crdnn import CRDNN
from fedray.training.decoding.search import DecodeSettings, Search
from fedray.training.recogniser_checks import check_same_tokens, check_translator
from fedray.training.speech_to_text import TOKENS, UNLEARNABLE, SpeechToText, encoded, table, trained_tokeniser


@dataclass(frozen=True)
class TranslationSearchSettings(Ranged):
    """Beam search with the decoder."""

    search: ClassVar[str] = "attention"
    beam: Count = 5  # hypotheses that the search keeps; 1: greedy search alone
    # Longest translation, in tokens per encoder frame of speech. null: 1; for Whisper, 10 tokens a second of speech and
    # 10 more.
    max_tokens_per_frame: Positive | None = None


@dataclass(frozen=True)
class TranslationSettings(Ranged):
    """Tokens, loss, decoding and scores."""

    # characters | unigram | bpe: trained on translations | pretrained: Whisper's, or those next to model.init
    # (tokeniser.model, of SentencePiece, or tokens.txt: one token a line, <blank> first, <space> for the space)
    tokens: str = one_of(TOKENS)
    vocabulary: Count = 500  # number of sub-words, for unigram and bpe
    # Characters of training texts without a token: refuse | leave_out. Scores count them either way.
    unknown: str = one_of(UNKNOWN)
    # A run most of whose utterances the model cannot learn (too many tokens for its frames): refuse | warn
    unlearnable: str = one_of(UNLEARNABLE)
    label_smoothing: Part = 0.1  # share of a label that is spread evenly over all tokens
    # Share of CTC on the transcripts in the loss. 0: no transcripts are needed, and the model has no CTC layer.
    ctc_weight: Part = 0.0
    # CTC's tokens: characters | unigram | bpe: trained on transcripts | pretrained: those next to model.init
    transcript_tokens: str = one_of(TOKENS)
    transcript_vocabulary: Count = 500  # number of CTC's sub-words
    augment: SpecAugmentSettings = field(default_factory=SpecAugmentSettings)
    # For pseudo-labels and final scores. Between rounds, dev is scored by greedy search.
    decode: TranslationSearchSettings = field(default_factory=TranslationSearchSettings)
    # sacreBLEU's tokenisation: 13a (English and the like) | zh (Chinese) | intl | char | none
    bleu: str = one_of(TOKENISATIONS)


TRANSCRIPTS = "transcripts"  # the folder of CTC's tokens, inside a model's folder


class Labels(list[int]):
    """The token ids of a translation, with those of the transcript that CTC learns."""

    def __init__(self, tokens: Sequence[int] = (), transcript: Sequence[int] = ()) -> None:
        super().__init__(tokens)
        self.transcript = transcript


class Translation(SpeechToText):
    """Speech to its translation, in the column `translation` of the manifest."""

    Settings = TranslationSettings
    settings: TranslationSettings
    init_depends = (
        "task.kind",
        "task.tokens",
        "task.vocabulary",
        "task.label_smoothing",
        "task.ctc_weight",
        "task.transcript_tokens",
        "task.transcript_vocabulary",
        "task.augment",
    )
    best = ("dev/bleu", "max")
    score, text_name = "bleu", "translation"

    def __init__(
        self, settings: TranslationSettings, model: Choice, features: FeatureSettings, data: SpeechData
    ) -> None:
        """Train the tokenisers.

        ValueError: the training data have no translations (or transcripts, where CTC needs them), or an utterance that
        is scored has no translation.
        """
        needed = {"translation": "translations"} | ({"text": "transcripts"} if settings.ctc_weight else {})
        for column, name in needed.items():
            if not data.transcripts(column):
                raise ValueError(f"the training data have no {name}: name their column in data.options")
        for split in data.splits():
            scored = data.evaluation(split)
            missing = [utterance for utterance, text in zip(scored.ids, scored.translations, strict=True) if not text]
            if missing:
                raise ValueError(f"{split}: utterance {missing[0]} has no translation to score by: leave the row out")
        super().__init__(settings, model, features, data)
        self.smoothing = settings.label_smoothing
        self.transcripts: Tokeniser | None = None
        if settings.ctc_weight:
            kind, size = settings.transcript_tokens, settings.transcript_vocabulary
            if kind == "pretrained":
                self.transcripts = load_tokeniser(Path(model.settings.init).parent / TRANSCRIPTS)
            else:
                self.transcripts = trained_tokeniser(data.transcripts(), kind, size)
                check_same_tokens(self.transcripts, model.settings, "task.transcript_tokens", TRANSCRIPTS)

    @classmethod
    def check_setup(cls, settings: TranslationSettings, model: Choice, features: FeatureSettings) -> None:
        super().check_setup(settings, model, features)
        check_translator(MODELS[model.kind], model.settings, settings.tokens, settings.ctc_weight)
        if settings.transcript_tokens == "pretrained" and settings.tokens != "pretrained":
            raise ValueError(
                "task.transcript_tokens=pretrained needs task.tokens=pretrained: both are next to model.init"
            )

    @classmethod
    def column(cls, settings: Any) -> str:
        return "translation"

    @property
    def signatures(self) -> Mapping[str, str]:
        return signatures(self.settings.bleu)

    def model(self) -> nn.Module:
        if not issubclass(self.model_class, Conformer | CRDNN):
            return super().model()
        ctc = self.transcripts.size if self.transcripts is not None else 0
        return self.model_class(self.model_settings, self.features.bins, self.outputs, ctc)

    def texts(self, data: Utterances) -> list[str | None]:
        """The translation of each utterance; None if it is missing or empty."""
        return [text or None for text in data.translations]

    def tokens(self, data: Utterances, strict: bool = True) -> list[list[int]]:
        targets = super().tokens(data, strict)
        if self.transcripts is None:
            return targets
        spoken = encoded(data, data.texts, self.transcripts, self.settings.unknown, "transcript", strict)
        return [Labels(*pair) for pair in zip(targets, spoken, strict=True)]

    def ctc_targets(self, targets: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
        return [cast(Labels, target).transcript for target in targets]

    def greedy(self) -> Search:
        return self._search(1)

    def search(self, assets: Mapping[str, Any]) -> Search:
        return self._search(self.settings.decode.beam)

    def searches(self, assets: Mapping[str, Any]) -> dict[str, Search]:
        """`bleu` is greedy search; `bleu_beam` is beam search, unless the beam is 1."""
        beam = {"bleu_beam": self.search(assets)} if self.settings.decode.beam > 1 else {}
        return {"bleu": self.greedy()} | beam

    def _search(self, beam: int) -> Search:
        # Imported where it is needed: SpeechBrain's decoders take a second to import.
        from fedray.training.decoding.attention import AttentionSearch

        longest = self.settings.decode.max_tokens_per_frame
        decode = DecodeSettings("attention", beam, lm_weight=0.0, ctc_weight=0.0, max_tokens_per_frame=longest)
        return AttentionSearch(decode, self.tokeniser.decode)

    def scores(self, references: Sequence[str | None], texts: Mapping[str, Sequence[str]]) -> Metrics:
        """BLEU and chrF of each search: `bleu` and `chrf`, `bleu_beam` and `chrf_beam`."""
        metrics, expected = Metrics(), self.scored(references)
        for name, found in texts.items():
            metrics += translation_scores(expected, found, self.settings.bleu, name.removeprefix(self.score))
        return metrics

    def evaluate(
        self, params: Vector, data: Utterances, assets: Mapping[str, Any], device: str, final: bool
    ) -> Evaluation:
        """BLEU and chrF of greedy search.

        `final` adds those of beam search, and has rows, with sentence-level BLEU, for all utterances instead of some.
        """
        if not len(data):
            return Evaluation(Metrics())
        texts = self.found(params, data, self.searches(assets) if final else {"bleu": self.greedy()}, device)
        return Evaluation(
            self.scores(self.texts(data), texts), self.rows(data, texts) if final else self.some_rows(data, texts)
        )

    def rows(self, data: Utterances, texts: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
        references = self.scored(self.texts(data))
        columns: dict[str, Sequence[object]] = {
            "utterance": data.ids,
            "speaker": data.speakers,
            "label": [label or "" for label in data.labels],
            "source": self.scored(data.texts),
            "reference": references,
        }
        for name, found in texts.items():
            alone = [round(value, 2) for value in sentence_bleu(references, found, self.settings.bleu)]
            columns |= {f"hypothesis{name.removeprefix('bleu')}": found, name: alone}
        return table(columns)

    def export(self, params: Vector, folder: Path) -> None:
        super().export(params, folder)
        if self.transcripts is not None:
            (folder / TRANSCRIPTS).mkdir(exist_ok=True)
            self.transcripts.save(folder / TRANSCRIPTS)
