"""Pre-trained encoders against transformers, on tiny checkpoints with random weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedray.data.features.fbank import FbankSettings
from fedray.data.features.whisper_mel import whisper_mels
from fedray.models.encoder import Encoder, EncoderClassifier
from fedray.models.encoder_files import with_head
from fedray.models.encoder_states import EncoderSettings, normalised

transformers = pytest.importorskip("transformers")
from tests.encoders import KINDS, WIDTH, write_encoder  # noqa: E402 - it needs transformers

SAMPLES, CLOSE = (4000, 2500, 6001, 1000), 1e-5
# What padding changes in transformers itself, with its attention mask, and how: see docs/encoders.md.
CHANGED = {
    "wav2vec2",  # group norm
    "wav2vec2 adapter",
    "hubert",
    "wavlm",
    "data2vec-audio",  # stacked convolutions of positions
    "wav2vec2-conformer",  # depthwise convolutions
    "wav2vec2-conformer rotary",
    "wav2vec2-bert adapter",
}
pytestmark = pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask")  # WavLM's own


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    made: dict[str, Path] = {}

    def make(kind: str, head: str | None = None, **changes: Any) -> Path:
        name = f"{kind}-{head}-{changes}"
        if name not in made:
            made[name] = write_encoder(tmp_path_factory.mktemp("encoder"), kind, head, **changes)
        return made[name]

    return make


def inputs(kind: str) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """The features of some utterances as fedray's models get them, and each as transformers' model gets it."""
    generator = torch.Generator().manual_seed(1)
    waves = [0.1 * torch.randn(count, dtype=torch.float64, generator=generator) for count in SAMPLES]
    if KINDS[kind][0] == "whisper":
        mels = [whisper_mels(wave.float(), 80).double() for wave in waves]
        heard = [torch.full((200, 80), float(mel.max()) - 2, dtype=torch.float64) for mel in mels]
        for whole, mel in zip(heard, mels, strict=True):
            whole[: len(mel)] = mel
        return mels, [{"input_features": whole.T[None]} for whole in heard]
    if KINDS[kind][0] == "wav2vec2-bert":
        mels = [FbankSettings().compute(wave.float()).double() for wave in waves]
        return mels, [{"input_features": mel[None]} for mel in mels]
    even = [(wave - wave.mean()) / (wave.var(unbiased=False) + 1e-7).sqrt() for wave in waves]
    return [wave[:, None] for wave in waves], [{"input_values": wave[None]} for wave in even]


def padded(parts: list[Tensor]) -> tuple[Tensor, Tensor]:
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True), torch.tensor([len(part) for part in parts])


def both(folder: Path, head: str, **settings: Any) -> tuple[Any, Any]:
    """fedray's model and transformers', in float64."""
    config = transformers.AutoConfig.from_pretrained(folder)
    theirs = with_head(config, head).from_pretrained(folder).double().eval()
    bins = {"whisper": 80, "wav2vec2-bert": 160}.get(config.model_type, 1)
    mine = EncoderSettings(str(folder), **settings)
    ours: Any = (
        Encoder(mine, bins, 8, places=range(8))
        if head == "ctc"
        else EncoderClassifier(mine, bins, config.num_labels, list(config.id2label.values()))
    )
    ours.load_pretrained()
    return ours.double().eval(), theirs


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "whisper"])
@torch.no_grad()
def test_ctc_in_a_padded_batch_is_that_of_each_utterance_alone(kind: str, checkpoint: Callable[..., Path]) -> None:
    ours, theirs = both(checkpoint(kind, "ctc"), "ctc")
    parts, alone = inputs(kind)
    features, lengths = padded(parts)
    hidden, counts = ours.encode(features, lengths)
    assert counts.tolist() == Encoder.output_lengths(ours.settings, lengths).tolist()
    found = ours.ctc(hidden)
    for row, one in enumerate(alone):
        expected = theirs(**one).logits[0].log_softmax(-1)
        assert counts[row] == len(expected)
        torch.testing.assert_close(found[row, : len(expected)], expected, rtol=0, atol=CLOSE)
    name, values = next(iter(alone[0].items()))
    batch, _ = padded([one[name][0] for one in alone])
    mask = (torch.arange(batch.shape[1]) < lengths[:, None]).long()
    mixed = theirs(**{name: batch}, attention_mask=mask).logits.log_softmax(-1)
    differs = max(float((mixed[row, : counts[row]] - found[row, : counts[row]]).abs().max()) for row in range(4))
    assert (differs > 1e-4) == (kind in CHANGED), f"transformers' own padded outputs differ by {differs}"
    assert values.dtype == torch.float64


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "adapter" not in kind])
@torch.no_grad()
def test_classes_in_a_padded_batch_are_those_of_each_clip_alone(kind: str, checkpoint: Callable[..., Path]) -> None:
    ours, theirs = both(checkpoint(kind, "classification", num_labels=5), "classification")
    parts, alone = inputs(kind)
    expected = torch.cat([theirs(**one).logits for one in alone])
    torch.testing.assert_close(ours(*padded(parts)), expected, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("kind", ["wav2vec2", "wav2vec2 layer norm", "wavlm", "wav2vec2-bert", "whisper"])
@torch.no_grad()
def test_the_first_layers_and_the_weighted_mean_are_those_of_transformers(
    kind: str, checkpoint: Callable[..., Path]
) -> None:
    folder = checkpoint(kind, "classification", num_labels=5, use_weighted_layer_sum=True)
    ours, theirs = both(folder, "classification", layers="weighted")
    for model in (ours, theirs):
        model.layer_weights.copy_(torch.tensor([0.3, -0.2, 0.8]))
    parts, alone = inputs(kind)
    expected = torch.cat([theirs(**one).logits for one in alone])
    torch.testing.assert_close(ours(*padded(parts)), expected, rtol=0, atol=CLOSE)
    whole = checkpoint(kind)
    bins = parts[0].shape[1]
    short = Encoder(EncoderSettings(str(whole), layers="1"), bins, 8)
    short.load_pretrained()
    config = transformers.AutoConfig.from_pretrained(whole)
    setattr(config, "encoder_layers" if kind == "whisper" else "num_hidden_layers", 1)
    cut = transformers.AutoModel.from_pretrained(whole, config=config).double().eval()
    cut = cut.encoder if kind == "whisper" else cut
    hidden, counts = short.double().eval().encode(*padded(parts))
    for row, one in enumerate(alone):
        expected = cut(**one).last_hidden_state[0, : counts[row]]  # Whisper's window has silence after the speech
        torch.testing.assert_close(hidden[row, : counts[row]], expected, rtol=0, atol=CLOSE)
    with pytest.raises(ValueError, match=r"model.layers=3: .* has 2 layers"):
        Encoder(EncoderSettings(str(whole), layers="3"), bins, 8)


def test_waveforms_are_normalised_as_by_the_feature_extractor() -> None:
    generator = np.random.default_rng(0)
    waves = [generator.standard_normal(count).astype(np.float32) * 0.1 + 0.02 for count in SAMPLES]
    extractor = transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True)
    expected = extractor(waves, sampling_rate=16000, padding=True, return_tensors="pt").input_values
    found = normalised(*padded([torch.from_numpy(wave) for wave in waves]))
    torch.testing.assert_close(found, expected, rtol=0, atol=CLOSE)


def test_what_is_not_normalised_stays(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    folder = write_encoder(tmp_path, "wav2vec2 layer norm")
    transformers.Wav2Vec2FeatureExtractor(do_normalize=False).save_pretrained(folder)
    assert not Encoder(EncoderSettings(str(folder)), 1, 8).normalises
    assert Encoder(EncoderSettings(str(checkpoint("wav2vec2"))), 1, 8).normalises


@pytest.mark.parametrize("kind", ["wav2vec2", "wav2vec2-conformer"])
def test_gradients_do_not_depend_on_padding(kind: str, checkpoint: Callable[..., Path]) -> None:
    """In training mode too, where batch norm averages over the frames of the utterance alone."""
    zero = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "feat_proj_dropout": 0.0}
    zero["conformer_conv_dropout"] = 0.0
    folder = checkpoint(kind, "ctc", final_dropout=0.0, layerdrop=0.0, mask_time_prob=0.0, **zero)
    model = Encoder(EncoderSettings(str(folder), time_mask=0.0), 1, 8, places=range(8))
    model.load_pretrained()
    model.double().train()
    wave = inputs(kind)[0][1]
    found = []
    for features in (wave[None], torch.nn.functional.pad(wave, (0, 0, 0, 3000))[None]):
        hidden, counts = model.encode(features, torch.tensor([len(wave)]))
        model.zero_grad()
        model.ctc(hidden)[:, : int(counts)].square().sum().backward()
        found.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-6, atol=1e-8, msg=name)
    assert not any("feature_extractor" in name for name in found[0]), "the convolutions are frozen"


def test_what_is_frozen(checkpoint: Callable[..., Path]) -> None:
    folder = str(checkpoint("wav2vec2", "ctc"))

    def tuned(**settings: Any) -> set[str]:
        model = Encoder(EncoderSettings(folder, **settings), 1, 8)
        return {name for name, p in model.named_parameters() if p.requires_grad}

    names = tuned(frozen=[])
    assert tuned() == {name for name in names if "feature_extractor" not in name} < names
    assert tuned(frozen=["^encoder"]) == {"ctc_head.weight", "ctc_head.bias"}
    assert tuned(frozen=["encoder.layers.0", "feature"]) < tuned()
    with pytest.raises(ValueError, match=r"model.frozen: 'front' matches no parameter; there are encoder"):
        tuned(frozen=["front"])
    with pytest.raises(ValueError, match=r"model.frozen: '\[' is not a regular expression"):
        tuned(frozen=["["])


def test_masks_and_skipped_layers_follow_the_generator(checkpoint: Callable[..., Path]) -> None:
    wave, length = torch.randn(1, 4000, 1), torch.tensor([4000])
    folder = str(checkpoint("wav2vec2"))

    def heard(seed: int, **settings: Any) -> Tensor:
        model = Encoder(EncoderSettings(folder, **settings), 1, 8)
        model.load_pretrained()
        model.encoder.config.hidden_dropout = 0
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
            if hasattr(module, "dropout") and isinstance(module.dropout, float):
                module.dropout = 0.0
        torch.manual_seed(seed)
        with torch.no_grad():
            return model.train().encode(wave, length)[0]

    plain = heard(0, time_mask=0.0, layer_drop=0.0)
    assert torch.equal(plain, heard(1, time_mask=0.0, layer_drop=0.0))
    masked = heard(0, time_mask=0.5, layer_drop=0.0)
    assert torch.equal(masked, heard(0, time_mask=0.5, layer_drop=0.0)) and not torch.equal(masked, plain)
    assert not torch.equal(masked, heard(1, time_mask=0.5, layer_drop=0.0))
    skipped = {tuple(heard(seed, time_mask=0.0, layer_drop=0.5).flatten().tolist()) for seed in range(12)}
    assert len(skipped) == 4, "each of two layers is there or not"


def test_what_does_not_fit_is_named(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    folder = str(checkpoint("wav2vec2"))
    with pytest.raises(ValueError, match="model.folder is missing"):
        Encoder(EncoderSettings(), 1, 8)
    with pytest.raises(ValueError, match=r"needs 1 bins: set features.bins=1, not 40"):
        Encoder(EncoderSettings(folder), 40, 8)
    with pytest.raises(ValueError, match=r"an utterance of 50 samples is too short: the encoder needs 60"):
        Encoder(EncoderSettings(folder), 1, 8).encode(torch.zeros(1, 50, 1), torch.tensor([50]))
    with pytest.raises(ValueError, match="model.seconds is for Whisper's encoder"):
        Encoder(EncoderSettings(folder, seconds=1.0), 1, 8)
    with pytest.raises(ValueError, match="model.layers must be all, weighted or a number"):
        EncoderSettings(folder, layers="some")
    with pytest.raises(ValueError, match=r"model.layers=weighted needs the output of every layer"):
        EncoderSettings(folder, layers="weighted", layer_drop=0.1)
    with pytest.raises(ValueError, match=r"model.layers=weighted: .* has an adapter behind its layers"):
        Encoder(EncoderSettings(str(checkpoint("wav2vec2", add_adapter=True)), layers="weighted"), 1, 8)
    whisper = str(checkpoint("whisper"))
    with pytest.raises(ValueError, match="an utterance of 2.5 s is too long: the encoder's window has 2 s"):
        Encoder(EncoderSettings(whisper), 80, 8).encode(torch.zeros(1, 250, 80), torch.tensor([250]))
    with pytest.raises(ValueError, match=r"model.seconds=3.0 is more than the window of .*: 2 s"):
        Encoder(EncoderSettings(whisper, seconds=3.0), 80, 8)
    for text, words in (("{}", "has no model_type"), ('{"model_type": "bert"}', "'bert' is not an encoder of these")):
        (tmp_path / "config.json").write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=rf"config.json.*{words}"):
            Encoder(EncoderSettings(str(tmp_path)), 1, 8)


def test_only_safetensors_are_read(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    folder = write_encoder(tmp_path, "wav2vec2")
    model = Encoder(EncoderSettings(str(folder)), 1, 8)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="has weights in a pickle alone, which may execute anything"):
        model.load_pretrained()
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(ValueError, match=r"has no model.safetensors: set it to a checkpoint"):
        model.load_pretrained()
    other = checkpoint("wav2vec2", hidden_size=16)
    (other / "model.safetensors").rename(folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"weights are missing or of another shape, among them"):
        model.load_pretrained()


def test_a_new_head_is_random_and_a_known_one_is_loaded(checkpoint: Callable[..., Path]) -> None:
    folder = checkpoint("wav2vec2", "ctc")
    theirs = transformers.AutoModelForCTC.from_pretrained(folder).lm_head.weight

    def head(places: Any) -> Tensor:
        torch.manual_seed(3)
        model = Encoder(EncoderSettings(str(folder)), 1, 8, places)
        model.load_pretrained()
        return model.ctc_head.weight.detach()

    assert torch.equal(head(range(8)), theirs) and not torch.equal(head(None), theirs)
    assert abs(float(head(None).std()) - 0.02) < 0.005 and head(None).shape == (8, WIDTH)


def test_the_blank_comes_first_wherever_the_checkpoint_has_it(checkpoint: Callable[..., Path]) -> None:
    folder = str(checkpoint("wav2vec2", "ctc"))
    plain, moved = (Encoder(EncoderSettings(folder), 1, 8, places).eval() for places in (None, [7, *range(7)]))
    moved.load_state_dict(plain.state_dict())
    hidden = torch.randn(1, 3, WIDTH)
    torch.testing.assert_close(moved.ctc(hidden), plain.ctc(hidden)[..., [7, 0, 1, 2, 3, 4, 5, 6]])
