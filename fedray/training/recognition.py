"""Speech recognition as a task.

The loss is nu CTC + (1 - nu) attention. The scores are word and character error rates in percent, for greedy and beam
search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fedray.core.metrics import Metrics
from fedray.core.ranges import Count, Part, Ranged, Share, one_of
from fedray.core.settings import Choice, choice
from fedray.core.types import Evaluation, Vector
from fedray.data.features.augment import SpecAugmentSettings
from fedray.data.features.dataset import Utterances
from fedray.data.features.settings import FeatureSettings
from fedray.data.federation.speech_data import SpeechData
from fedray.data.text.error_rates import EditCounts, edit_counts
from fedray.data.text.scoring import SCORING
from fedray.data.text.tokenisers import UNKNOWN
from fedray.models import MODELS
from fedray.models.language_model import LANGUAGE_MODELS, LanguageModel
from fedray.training.decoding.beam import BeamSearch, LexiconSearch
from fedray.training.decoding.search import DecodeSettings, GreedySearch, Search
from fedray.training.recogniser_checks import check_model
from fedray.training.speech_to_text import TOKENS, UNLEARNABLE, SpeechToText, table


@dataclass(frozen=True)
class RecognitionSettings(Ranged):
    """Tokens, loss and decoding."""

    # characters | unigram | bpe: trained on transcripts | pretrained: Whisper's, or those next to model.init
    # (tokeniser.model, of SentencePiece, or tokens.txt: one token a line, <blank> first, <space> for the space)
    tokens: str = one_of(TOKENS)
    vocabulary: Count = 500  # number of sub-words, for unigram and bpe
    # Characters of training transcripts without a token: refuse | leave_out. Scores count them either way.
    unknown: str = one_of(UNKNOWN)
    # A run most of whose utterances the model cannot learn (too many tokens for its frames): refuse | warn
    unlearnable: str = one_of(UNLEARNABLE)
    ctc_weight: Share = 1.0  # nu; below 1 the model needs a decoder
    label_smoothing: Part = 0.0  # share of a label that the decoder's loss spreads evenly over all tokens
    # Rules for references and hypotheses in scores: plain (as they are) | gigaspeech (upper case; hyphens are spaces;
    # fillers and tags do not count) | characters (Chinese, Japanese, Thai, ... characters count as words) |
    # whisper_english (Whisper's: no case, punctuation and fillers, numbers in digits)
    scoring: str = one_of(SCORING)
    augment: SpecAugmentSettings = field(default_factory=SpecAugmentSettings)
    # language model of beam search, trained on the server's transcripts
    language_model: Choice = choice(LANGUAGE_MODELS, "ngram")
    # For pseudo-labels and final scores. Between rounds, dev is scored by greedy search.
    decode: DecodeSettings = field(default_factory=DecodeSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label_smoothing and self.ctc_weight == 1:
            raise ValueError("label_smoothing is for the decoder's loss, and ctc_weight=1 has none: lower ctc_weight")
        SCORING[self.scoring]("")  # ValueError: the rules need an extra that is not installed


class Recognition(SpeechToText):
    """Speech to its transcript. A pickled task leaves out the language model, which actors receive among the assets."""

    Settings = RecognitionSettings
    settings: RecognitionSettings
    init_depends = (
        "task.kind",
        "task.tokens",
        "task.vocabulary",
        "task.ctc_weight",
        "task.label_smoothing",
        "task.augment",
    )
    best = ("dev/wer", "min")
    score, text_name = "wer", "transcript"

    def __init__(
        self, settings: RecognitionSettings, model: Choice, features: FeatureSettings, data: SpeechData
    ) -> None:
        """Train the tokeniser and the language model on the federation's transcripts (`SpeechData.transcripts`)."""
        super().__init__(settings, model, features, data)
        self.rules = "; ".join(data.rules) or "texts as the corpus has them"
        self.smoothing = settings.label_smoothing
        for word in settings.decode.lexicon or ():
            try:
                self.tokeniser.encode(word)
            except ValueError as error:
                raise ValueError(
                    f"task.decode.lexicon: the tokens cannot write the word {word!r}: remove it, or train on "
                    "transcripts that have its characters"
                ) from error
        self.language_model: LanguageModel | None = None
        if self.limits is not None:
            return  # no language model: Whisper has learnt more of the language than these transcripts hold
        sequences = [self.tokeniser.encode(text, settings.unknown) for text in data.transcripts()]
        chosen = settings.language_model
        language_model = LANGUAGE_MODELS[chosen.kind]
        options = asdict(chosen.settings)
        self.language_model = language_model.train(sequences, vocabulary=self.tokeniser.size, **options)

    @classmethod
    def check_setup(cls, settings: RecognitionSettings, model: Choice, features: FeatureSettings) -> None:
        super().check_setup(settings, model, features)
        check_model(MODELS[model.kind], model.settings, settings.tokens, settings.ctc_weight, settings.decode)

    @property
    def signatures(self) -> Mapping[str, str]:
        return {"wer": f"{self.rules}, task.scoring={self.settings.scoring}"}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "language_model": None}

    def assets(self) -> Mapping[str, Any]:
        return {"language_model": self.language_model}

    @property
    def trains_ctc(self) -> bool:
        """Whether the model has a CTC head, and the loss trains it."""
        return hasattr(self.model_class, "ctc") and self.settings.ctc_weight > 0

    def greedy(self) -> Search:
        """Greedy search with CTC, or with the decoder if no CTC is trained."""
        if self.trains_ctc:
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
        if decode.search == "greedy" or (decode.beam == 1 and not self.trains_ctc):
            return searches
        return searches | {"wer_lexicon" if decode.search == "lexicon" else "wer_lm": self.search(assets)}

    def scores(self, references: Sequence[str | None], texts: Mapping[str, Sequence[str]]) -> Metrics:
        """The word error rate of each search, in percent."""
        expected = self.scored(references)
        return Metrics.of({name: _percent(edit_counts(expected, self.scored(found))) for name, found in texts.items()})

    def scored(self, texts: Iterable[str | None]) -> list[str]:
        """The texts by the rules of `task.scoring`; a missing text becomes empty."""
        return [SCORING[self.settings.scoring](text) for text in super().scored(texts)]

    def evaluate(
        self, params: Vector, data: Utterances, assets: Mapping[str, Any], device: str, final: bool
    ) -> Evaluation:
        """`wer` and `cer` of greedy search, in percent.

        `final` adds the scores of the other `searches`, and has rows for all utterances instead of some.
        """
        if not len(data):
            return Evaluation(Metrics())
        texts = self.found(params, data, self.searches(assets) if final else {"wer": self.greedy()}, device)
        metrics = self.scores(data.texts, texts)
        characters = edit_counts(self.scored(data.texts), self.scored(texts["wer"]), "character")
        return Evaluation(
            metrics + Metrics(cer=_percent(characters)),
            self.rows(data, texts) if final else self.some_rows(data, texts),
        )

    def rows(self, data: Utterances, texts: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
        references = self.scored(data.texts)
        columns: dict[str, Sequence[object]] = {
            "utterance": data.ids,
            "speaker": data.speakers,
            "label": [label or "" for label in data.labels],
            "reference": references,
        }
        for name, found in texts.items():
            hypotheses, suffix = self.scored(found), name.removeprefix("wer")
            counts = edit_counts(references, hypotheses)
            columns.setdefault("words", [count.length for count in counts])
            columns |= {f"hypothesis{suffix}": hypotheses, f"errors{suffix}": [count.errors for count in counts]}
        return table(columns)


def _percent(counts: Sequence[EditCounts]) -> tuple[float, float]:
    """An error rate in percent as Metrics holds it: (100 x errors, units of the references)."""
    return 100.0 * sum(count.errors for count in counts), sum(count.length for count in counts)
