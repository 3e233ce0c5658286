"""Recognition as a task: its loss and its scores, by hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, ctc_loss

from fedray.core.algorithm import Algorithm
from fedray.core.types import ServerState
from fedray.data.features.dataset import Utterances, collate
from fedray.data.manifest import COLUMNS, Manifest
from fedray.experiment.builders import warn_of_padding
from fedray.models import MODELS
from fedray.training.decoding.attention import AttentionSearch
from fedray.training.decoding.search import GreedySearch, Search
from tests import speech
from tests.algorithms import by_hand

pytestmark = pytest.mark.usefixtures("no_ray")

CONFORMER = {"d_model": 32, "ffn": 64, "layers": 1, "kernel": 7, "decoder_layers": 1, "dropout": 0.5}
UNTRAINED = {"kind": "fedavg", "client": {"lr": 0.1, "batch": 4}, "pretrain": {"steps": 0}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speech.write_corpus(tmp_path_factory.mktemp("tones")).parent


def build(folder: Path, **task: Any) -> tuple[Algorithm, Utterances, ServerState]:
    """The algorithm, the utterances of a client, and the state before round 0."""
    plain = {"augment": {"time_masks": 0, "frequency_masks": 0}, "decode": {"search": "greedy"}}
    wanted = speech.settings(folder, algorithm=UNTRAINED, model=CONFORMER, task={**plain, **task})
    algorithm, data, state = by_hand.build(wanted)
    return algorithm, data.load(data.client_ids()[0]), state


def test_the_loss_is_ctc_and_the_decoders_with_smoothed_labels(folder: Path) -> None:
    """Each loss is a mean over an utterance's tokens, for the decoder with the end, and then over utterances."""
    algorithm, mine, state = build(folder, ctc_weight=0.3, label_smoothing=0.2)
    flat = algorithm.task.flat("cpu")
    flat.load(state.params)
    model, batch = flat.model.eval(), collate(mine, np.arange(3))
    targets = [tokens[:size] for tokens, size in zip(algorithm.task.targets(mine), (5, 3, 1), strict=False)]
    losses = []
    with torch.no_grad():
        found = float(algorithm.task.loss(model, batch, targets))
        hidden, lengths = model.encode(batch.features, batch.lengths)
        for row, target in enumerate(targets):
            alone, length, tokens = hidden[row : row + 1], lengths[row : row + 1], torch.tensor([target])
            decoded = model.attend(alone, length, torch.tensor([[model.bos, *target]]))[0]
            decoder = cross_entropy(decoded, torch.tensor([*target, model.eos]), label_smoothing=0.2)
            aligned = ctc_loss(model.ctc(alone).transpose(0, 1), tokens, length, torch.tensor([len(target)]))
            losses.append(0.3 * float(aligned) + 0.7 * float(decoder))
    assert found == pytest.approx(np.mean(losses), rel=1e-4)


def test_what_is_scored_has_no_dropout_and_no_masks(folder: Path) -> None:
    algorithm, mine, state = build(folder, ctc_weight=0.3, augment={"time_masks": 4, "frequency_masks": 4})
    task = algorithm.task
    states = [next(task.encoded(state.params, mine, "cpu"))[1] for _ in range(2)]
    assert torch.equal(*states) and not task.flat("cpu").model.training
    assert task.losses(state.params, mine, "cpu") == task.losses(state.params, mine, "cpu")


@pytest.mark.parametrize(
    ("scoring", "wer", "cer"),
    [
        # Of five words and 21 characters: an extra word (and its space), two words in one, no error.
        ("plain", 100 * (1 + 2 + 0) / 5, 100 * (3 + 1 + 0) / 21),
        ("gigaspeech", 100 * (0 + 2 + 0) / 5, 100 * (0 + 1 + 0) / 21),
    ],
)
def test_scores_by_hand(folder: Path, monkeypatch: pytest.MonkeyPatch, scoring: str, wer: float, cer: float) -> None:
    algorithm, mine, state = build(folder, scoring=scoring)
    said, heard = ["one two", "four five", "three"], ["uh one two", "fourfive", "three"]
    columns: dict[str, Any] = {name: mine.manifest.column(name)[:3] for name in COLUMNS} | {"text": said}
    rows = Utterances(Manifest.from_columns(columns, "spoken"), mine.features, np.arange(3))
    task = algorithm.task
    monkeypatch.setattr(task, "found", lambda params, data, searches, device: dict.fromkeys(searches, heard))
    scored = task.evaluate(state.params, rows, {"language_model": None}, "cpu", final=True)
    assert dict(scored.metrics) == pytest.approx({"wer": wer, "cer": cer})
    errors, words = ([row[name] for row in scored.predictions] for name in ("errors", "words"))
    assert 100 * sum(errors) / sum(words) == pytest.approx(wer) and words == [2, 2, 1]


@pytest.mark.parametrize(("ctc_weight", "kind"), [(0.3, GreedySearch), (0.0, AttentionSearch)])
def test_the_first_score_is_greedy_whatever_the_search(folder: Path, ctc_weight: float, kind: type[Search]) -> None:
    """The first score is of greedy search on the CTC head or, if that is untrained, on the decoder."""
    decode = {"search": "attention", "beam": 4, "ctc_weight": ctc_weight}
    algorithm, _, _ = build(folder, ctc_weight=ctc_weight, decode=decode)
    found = algorithm.task.searches({"language_model": None})
    assert list(found) == ["wer", "wer_lm"] and found["wer_lm"].settings.beam == 4
    assert isinstance(found["wer"], kind) and (kind is GreedySearch or found["wer"].settings.beam == 1)


def test_a_checkpoint_keeps_its_tokens(folder: Path, tmp_path: Path) -> None:
    """With as many tokens as the checkpoint's, but another letter at one place, only its outputs' meaning is wrong."""
    algorithm, _, state = build(folder)
    algorithm.task.export(state.params, tmp_path)
    start = CONFORMER | {"init": str(tmp_path / "model.pt")}
    other = tmp_path / "other"
    other.mkdir()
    (other / "wav").symlink_to(folder / "wav")
    lines = (folder / "manifest.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines[1:]]
    texts = ["\t".join([*row[:2], row[2].replace("b", "z"), *row[3:]]) for row in rows]
    (other / "manifest.tsv").write_text("\n".join([lines[0], *texts]) + "\n", encoding="utf-8")

    def built(data: Path, **task: Any) -> Any:
        wanted = speech.settings(data, algorithm=UNTRAINED, model=start, task=task)
        return by_hand.build(wanted)[0].task

    assert built(folder).tokeniser.tokens == ["<blank>", " ", "a", "b", "c", "d"]
    with pytest.raises(ValueError, match=r"model.init: .*model.pt was trained with the 6 tokens of ") as refused:
        built(other)
    assert f"{tmp_path / 'tokens.txt'}, but this run has learnt 6 other tokens from its own texts (token 3 is 'b' " in (
        str(refused.value)
    )
    assert "there and 'c' here): set task.tokens=pretrained, or remove" in str(refused.value)
    assert built(other, tokens="pretrained", unknown="leave_out").tokeniser.tokens[3] == "b"
    (tmp_path / "tokens.txt").unlink()
    assert built(other).tokeniser.tokens[-1] == "z", "nothing says which tokens the checkpoint had"


@dataclass(frozen=True)
class OwnSettings:
    width: int = 8


class Own(nn.Module):
    """A user's recogniser, whose settings have no `init`."""

    Settings = OwnSettings

    def __init__(self, settings: OwnSettings, bins: int, vocabulary: int) -> None:
        super().__init__()
        self.encoder, self.head = nn.Linear(bins, settings.width), nn.Linear(settings.width, vocabulary)

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return self.encoder(features), lengths

    def ctc(self, hidden: Tensor) -> Tensor:
        return self.head(hidden).log_softmax(-1)


@pytest.fixture
def own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A configuration with a user's model."""
    monkeypatch.setitem(MODELS, "own", Own)
    return speech.settings(folder, algorithm=UNTRAINED, model={"kind": "own"}, task={"decode": {"search": "greedy"}})


def test_a_model_needs_no_init_and_no_settings_of_a_decoder(own: dict[str, Any], tmp_path: Path) -> None:
    algorithm, data, state = by_hand.build(own)
    algorithm.task.export(state.params, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"features.yaml", "model.pt", "tokens.txt"}
    assert len(state.params) == 20 * 8 + 8 + 8 * 6 + 6
    assert algorithm.task.losses(state.params, data.load(data.client_ids()[0]), "cpu")[0] > 0
    with pytest.raises(ValueError, match="task.ctc_weight below 1 needs a decoder"):
        by_hand.build(own | {"task": {"ctc_weight": 0.5}})
    with pytest.raises(ValueError, match="task.decode.search=attention needs a decoder"):
        by_hand.build(own | {"task": {"decode": {"search": "attention"}}})


class ReadsPadding(Own):
    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return self.encoder(features + features.flip(1)), lengths


class RelativeLengths(Own):
    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return self.encoder(features), lengths / lengths.max()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Own, ""),
        (ReadsPadding, "log-probabilities change by up to "),
        (RelativeLengths, "the length in frames changes from 1 to 0.5. Scores then"),
    ],
)
def test_a_model_that_reads_padding_is_named(
    own: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: type, said: str
) -> None:
    monkeypatch.setitem(MODELS, "own", kind)
    algorithm, data, _ = by_hand.build(own)
    capsys.readouterr()
    before = torch.get_rng_state()
    warn_of_padding(algorithm.task, data)
    assert torch.equal(before, torch.get_rng_state())
    (line,) = capsys.readouterr().err.splitlines() or [""]
    assert said in line and bool(line) == (kind is not Own) == line.startswith(f"{kind.__name__} reads padding: ")
