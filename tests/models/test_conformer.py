from __future__ import annotations

import pickle

import pytest
import torch

from fedray.models import MODELS
from fedray.models.conformer import Conformer, ConformerSettings, subsampled
from fedray.models.weights import load_weights

BINS, VOCABULARY = 20, 7


def small(**changes) -> Conformer:
    torch.manual_seed(0)
    settings = ConformerSettings(**{"d_model": 16, "heads": 2, "ffn": 32, "kernel": 7, **changes})
    return Conformer(settings, BINS, VOCABULARY).eval()


@pytest.mark.parametrize("attention", ["RoPEMHA", "RelPosMHAXL", "regularMHA"])
@pytest.mark.parametrize("front", ["conv1d", "conv2d"])
def test_padding_and_neighbours_do_not_change_an_utterance(front, attention):
    model = small(front=front, attention=attention)
    lengths = torch.tensor([50, 3, 21, 22, 23, 24, 49])
    features = torch.randn(len(lengths), 50, BINS)  # the padding is noise on purpose
    with torch.no_grad():
        together, frames = model(features, lengths)
        assert frames.tolist() == [-(-length // 4) for length in lengths.tolist()]
        for row, length in enumerate(lengths.tolist()):
            alone, _ = model(features[row : row + 1, :length], lengths[row : row + 1])
            torch.testing.assert_close(together[row, : frames[row]], alone[0], atol=1e-5, rtol=1e-5)
            # For one utterance, the model computes what its SpeechBrain parts compute without fedray.
            parts = model.ctc_head(model.transformer.encode(model.front(features[row : row + 1, :length]))).log_softmax(
                -1
            )
            torch.testing.assert_close(alone, parts, atol=1e-5, rtol=1e-5)


def test_speechbrain_alone_leaks_the_padding():
    """Padding changes SpeechBrain's outputs. If this test fails, SpeechBrain is fixed, and Conformer needs no hooks."""
    model = small()
    lengths = torch.tensor([50, 21])
    features = torch.randn(2, 50, BINS)
    with torch.no_grad():
        frames = model.front(features)
        plain = model.transformer.encode(frames, subsampled(lengths) / frames.shape[1])
        alone, _ = model.encode(features[1:, :21], lengths[1:])
    assert (plain[1, :6] - alone[0]).abs().max() > 0.01


def test_log_probabilities_and_gradients():
    model = small(decoder_layers=1).train()
    hidden, lengths = model.encode(torch.randn(2, 40, BINS), torch.tensor([40, 30]))
    tokens = torch.tensor([[model.bos, 1, 2], [model.bos, 3, 4]])
    ctc, attention = model.ctc(hidden), model.attend(hidden, lengths, tokens)
    assert ctc.shape == (2, 10, VOCABULARY) and attention.shape == (2, 3, VOCABULARY + 2)
    torch.testing.assert_close(ctc.exp().sum(-1), torch.ones(2, 10))
    torch.testing.assert_close(attention.exp().sum(-1), torch.ones(2, 3))
    (ctc.square().mean() + attention.square().mean()).backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("attention", ["RoPEMHA", "RelPosMHAXL", "regularMHA"])
def test_the_decoder_is_speechbrains_and_sees_no_future_and_no_padding(attention):
    model = small(decoder_layers=2, attention=attention)
    hidden, lengths = model.encode(torch.randn(2, 40, BINS), torch.tensor([40, 17]))
    tokens = torch.tensor([[model.bos, 1, 2, 3], [model.bos, 3, 4, model.eos]])
    with torch.no_grad():
        ours = model.attend(hidden, lengths, tokens)
        decoded, _ = model.transformer.decode(tokens, hidden, lengths)
        torch.testing.assert_close(ours, model.attention_head(decoded).log_softmax(-1))
        torch.testing.assert_close(ours[:, :2], model.attend(hidden, lengths, tokens[:, :2]))
        torch.testing.assert_close(ours[1:], model.attend(hidden[1:, : lengths[1]], lengths[1:], tokens[1:]))


def test_masking_leaves_no_hooks_behind():
    model = small()
    with pytest.raises(ValueError, match="2 frames is too short"):
        model(torch.randn(1, 9, BINS), torch.tensor([2]))
    model(torch.randn(1, 9, BINS), torch.tensor([9]))
    assert not any(module._forward_pre_hooks for module in model.modules())
    pickle.loads(pickle.dumps(model))


def test_own_weights_come_back(tmp_path):
    model, other = small(decoder_layers=1), small(decoder_layers=1)
    for parameter in other.parameters():
        torch.nn.init.normal_(parameter)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    load_weights(other, tmp_path / "model.pt")
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


def test_weights_of_a_speechbrain_recipe(tmp_path):
    model = small(decoder_layers=1, front="conv2d", attention="RelPosMHAXL", bos=1, eos=2)
    assert model.attention_head.w.out_features == VOCABULARY  # recipes have bos and eos in the vocabulary
    recipe = torch.nn.ModuleList([model.front, model.transformer, model.attention_head, model.ctc_head])
    torch.save(recipe.state_dict(), tmp_path / "model.ckpt")
    other = small(decoder_layers=1, front="conv2d", attention="RelPosMHAXL", bos=1, eos=2)
    torch.nn.init.zeros_(other.ctc_head.w.weight)
    load_weights(other, tmp_path / "model.ckpt")
    assert torch.equal(other.ctc_head.w.weight, model.ctc_head.w.weight)


def test_weights_that_do_not_fit_are_named(tmp_path):
    path = tmp_path / "model.pt"
    state = small().state_dict()
    state["ctc_head.w.weight"] = torch.zeros(9, 16)
    state["ctc_head.extra"] = torch.zeros(1)
    del state["ctc_head.w.bias"]
    torch.save(state, path)
    model = small()
    before = model.ctc_head.w.weight.clone()
    with pytest.raises(ValueError) as error:
        load_weights(model, path)
    for words in (
        str(path),
        "missing ctc_head.w.bias",
        "unexpected ctc_head.extra",
        "ctc_head.w.weight has shape (9, 16), the model (7, 16)",
    ):
        assert words in str(error.value)
    assert torch.equal(before, model.ctc_head.w.weight)
    torch.save([1, 2], path)
    with pytest.raises(ValueError, match="not a state dict"):
        load_weights(model, path)


def test_conformer_small_of_the_paper():
    settings = ConformerSettings(
        front="conv2d",
        d_model=144,
        layers=12,
        heads=4,
        ffn=1024,
        kernel=31,
        attention="RelPosMHAXL",
        decoder_layers=4,
        bos=1,
        eos=2,
    )
    model = Conformer(settings, 80, 5000)
    encoder = sum(p.numel() for p in model.transformer.encoder.parameters())
    # A layer: two feed-forward modules, attention with positions, a convolution module, and their layer norms.
    d, ffn, kernel, norm = 144, 1024, 31, 2 * 144
    layer = 2 * (norm + 2 * d * ffn + ffn + d)
    layer += 3 * d * d + (d * d + d) + d * d + 2 * d
    layer += norm + (2 * d * d + 2 * d) + (d * kernel + d) + norm + (d * d + d)
    layer += 2 * norm
    assert encoder == 12 * layer + norm
    assert 12e6 < sum(p.numel() for p in model.parameters()) < 14e6


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"front": "conv3d"}, "conv1d or conv2d"),
        ({"attention": "x"}, "RoPEMHA"),
        ({"d_model": 10}, "multiple"),
        ({"kernel": 4}, "odd"),
        ({"bos": 1}, "together"),
        ({"bos": 1, "eos": 7}, "1..6"),
        ({"bos": 1, "eos": 1}, "two different tokens"),
    ],
)
def test_wrong_settings_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        small(**changes)


def test_registry():
    assert MODELS["conformer"] is Conformer and Conformer.Settings is ConformerSettings
