from __future__ import annotations

import pickle

import pytest
import torch

from fedray.models import MODELS
from fedray.models.crdnn import CRDNN, CRDNNSettings
from fedray.models.norms import batch_norms
from fedray.models.weights import load_weights

BINS, VOCABULARY = 20, 7
LENGTHS = torch.tensor([50, 4, 21, 22, 23, 24, 49])


def small(**changes) -> CRDNN:
    torch.manual_seed(0)
    sizes = {
        "channels": (4, 6),
        "rnn_neurons": 8,
        "dnn_neurons": 12,
        "decoder_neurons": 10,
        "attention": 9,
        "embedding": 5,
    }
    return CRDNN(CRDNNSettings(**{**sizes, "attention_kernel": 3, **changes}), BINS, VOCABULARY).eval()


@pytest.mark.parametrize(
    "changes", [{}, {"rnn": "gru", "rnn_layers": 2, "dnn_blocks": 2, "time_pooling": 1}, {"time_pooling": 3}]
)
def test_padding_and_neighbours_do_not_change_an_utterance(changes):
    model = small(**changes)
    features = torch.randn(len(LENGTHS), 50, BINS)  # the padding is noise on purpose
    with torch.no_grad():
        together, frames = model(features, LENGTHS)
        assert frames.tolist() == [length // model.settings.time_pooling for length in LENGTHS.tolist()]
        for row, length in enumerate(LENGTHS.tolist()):
            alone, _ = model(features[row : row + 1, :length], LENGTHS[row : row + 1])
            torch.testing.assert_close(together[row, : frames[row]], alone[0], atol=1e-5, rtol=1e-5)
            # For one utterance, the model computes what its SpeechBrain parts compute without fedray.
            parts = model.ctc_head(model.encoder(features[row : row + 1, :length])).log_softmax(-1)
            torch.testing.assert_close(alone, parts, atol=1e-5, rtol=1e-5)


def test_speechbrain_alone_leaks_the_padding():
    """Padding changes SpeechBrain's outputs. If this test fails, SpeechBrain is fixed, and CRDNN can be shorter."""
    model = small()
    features = torch.randn(2, 50, BINS)
    with torch.no_grad():
        together = model.encoder(features)
        alone, _ = model.encode(features[1:, :20], torch.tensor([20]))
    assert (together[1, :5] - alone[0]).abs().max() > 0.01


def test_batch_norm_counts_frames_of_speech_alone():
    """The running mean after one batch is a tenth of the mean over the frames that are not padding."""
    model = small(dropout=0.0).train()
    (norm,) = batch_norms(model).values()
    assert norm.running_mean.abs().sum() == 0 and (norm.running_var == 1).all(), (
        "what SpeechBrain sent through it to learn its size"
    )
    seen = []
    hook = norm.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach()))
    model.encode(torch.randn(2, 50, BINS), torch.tensor([50, 21]))
    hook.remove()
    (frames,) = seen
    assert frames.shape == (1, 12, 50 // 4 + 21 // 4)
    torch.testing.assert_close(norm.running_mean, 0.1 * frames.mean((0, 2)))


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


def test_the_decoder_sees_no_future_and_no_padding():
    model = small(decoder_layers=2)
    hidden, lengths = model.encode(torch.randn(2, 40, BINS), torch.tensor([40, 17]))
    tokens = torch.tensor([[model.bos, 1, 2, 3], [model.bos, 3, 4, model.eos]])
    with torch.no_grad():
        ours = model.attend(hidden, lengths, tokens)
        torch.testing.assert_close(ours[:, :2], model.attend(hidden, lengths, tokens[:, :2]))
        torch.testing.assert_close(ours[1:], model.attend(hidden[1:, : lengths[1]], lengths[1:], tokens[1:]))


def test_it_leaves_no_hooks_behind_and_pickles():
    model = small()
    with pytest.raises(ValueError, match="an utterance of 3 frames is too short: the CRDNN needs 4"):
        model(torch.randn(1, 9, BINS), torch.tensor([3]))
    model(torch.randn(1, 9, BINS), torch.tensor([9]))
    assert not any(module._forward_pre_hooks for module in model.modules())
    pickle.loads(pickle.dumps(model))


def test_weights_of_a_speechbrain_recipe(tmp_path):
    """A recipe's `model` loads: a ModuleList of encoder, embedding, decoder, two heads; bos and eos are the blank."""
    model, other = (small(decoder_layers=1, bos=0, eos=0) for _ in range(2))
    assert model.attention_head.w.out_features == VOCABULARY
    recipe = torch.nn.ModuleList([model.encoder, model.embedding, model.decoder, model.ctc_head, model.attention_head])
    torch.save(recipe.state_dict(), tmp_path / "model.ckpt")
    for parameter in other.parameters():
        torch.nn.init.normal_(parameter)
    assert load_weights(other, tmp_path / "model.ckpt") == []
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


class Own(torch.nn.Module):
    """A user's recogniser, without `recipe`."""

    def __init__(self):
        super().__init__()
        self.encoder, self.head = torch.nn.GRU(BINS, 8), torch.nn.Linear(8, VOCABULARY)


def test_a_recipe_needs_the_order_of_the_parts(tmp_path):
    trained, model = Own(), Own()
    torch.save(torch.nn.ModuleList([trained.encoder, trained.head]).state_dict(), tmp_path / "model.ckpt")
    with pytest.raises(ValueError, match=r"missing encoder.bias_hh_l0; .*unexpected 1.weight") as refused:
        load_weights(model, tmp_path / "model.ckpt")
    said = "class Own an attribute `recipe`, a tuple of the parts in the order of the list (the class has 'encoder', "
    assert said in str(refused.value) and "Set model.*" not in str(refused.value)
    model.recipe = ("encoder", "head")
    assert load_weights(model, tmp_path / "model.ckpt") == []
    assert torch.equal(model.head.weight, trained.head.weight)
    torch.save({"2.weight": torch.zeros(1)}, tmp_path / "longer.ckpt")
    with pytest.raises(ValueError, match="unexpected 2.weight. Set model.* as in its training"):
        load_weights(model, tmp_path / "longer.ckpt")


@pytest.mark.long
def test_the_paper_and_what_does_not_fit(monkeypatch):
    paper = CRDNNSettings(
        channels=(128, 200, 256), rnn_layers=5, rnn_neurons=1024, dnn_blocks=2, dnn_neurons=1024,
        decoder_layers=1, decoder_neurons=1024,
        attention=1024, attention_channels=10, attention_kernel=100, embedding=128, bos=0, eos=0,
    )  # fmt: skip
    with monkeypatch.context() as patched:  # drawing orthogonal matrices of this size takes 10 s
        patched.setattr(torch.nn.init, "orthogonal_", lambda weights: weights)
        assert CRDNN(paper, 80, 500).attention_head.w.out_features == 500
    assert sum(parameter.numel() for parameter in CRDNN(CRDNNSettings(), 40, 30).parameters()) == 519_310
    for wrong, said in (
        ({"rnn": "ligru"}, "rnn must be lstm or gru, not 'ligru'"),
        ({"rnn_neurons": 0}, "rnn_neurons must be at least 1"),
        ({"channels": ()}, "model.channels must name at least one block"),
        ({"bos": 1}, "set together"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, not 1.0"),
        ({"bos": 7, "eos": 7}, "must be tokens of 0..6"),
        ({"channels": (1,) * 5}, "features.bins=20 are too few to be halved 5 times"),
    ):
        with pytest.raises(ValueError, match=said):
            small(**wrong)
    with pytest.raises(ValueError, match="has no decoder: set model.decoder_layers"):
        small().attend(torch.zeros(1, 2, 12), torch.tensor([2]), torch.tensor([[8]]))
    assert MODELS["crdnn"] is CRDNN and CRDNN.Settings is CRDNNSettings
