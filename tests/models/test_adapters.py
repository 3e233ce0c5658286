"""Low-rank adapters in recognisers: nothing changes at first, nor by merging, and each projection has one."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from fedray.core.ranges import words
from fedray.models.adapters import LoRASettings, adapt, merged, plain_names
from fedray.models.conformer import Conformer, ConformerSettings
from fedray.models.crdnn import CRDNN, CRDNNSettings

BINS, TOKENS = 20, 12


def conformer(attention: str = "RelPosMHAXL") -> Conformer:
    torch.manual_seed(0)
    return Conformer(
        ConformerSettings(d_model=16, layers=2, heads=2, ffn=32, kernel=5, attention=attention, decoder_layers=1),
        BINS,
        TOKENS,
    )


def crdnn() -> CRDNN:
    torch.manual_seed(0)
    return CRDNN(
        CRDNNSettings(channels=(4,), rnn_neurons=8, dnn_neurons=8, decoder_layers=1, decoder_neurons=8, attention=8),
        BINS,
        TOKENS,
    )


def outputs(model: nn.Module) -> torch.Tensor:
    model.eval()
    torch.manual_seed(1)
    features, lengths = torch.randn(3, 40, BINS), torch.tensor([40, 31, 17])
    tokens = torch.tensor([[model.bos, 3, 4], [model.bos, 5, 6], [model.bos, 7, 8]])
    with torch.no_grad():
        hidden, shorter = model.encode(features, lengths)
        return torch.cat([model.ctc(hidden).flatten(), model.attend(hidden, shorter, tokens).flatten()])


def trained(model: nn.Module) -> nn.Module:
    """The model with random B in its adapters, so that they change its outputs."""
    for name, parameter in model.named_parameters():
        if name.endswith(".b"):
            nn.init.normal_(parameter, std=0.3)
    return model


MODELS = {
    attention: (lambda attention=attention: conformer(attention), ["mha_layer.*_proj", "self_attn.*_proj", "ffn"])
    for attention in words(ConformerSettings)["attention"]
}
MODELS["convolutions"] = (conformer, ["front", "convolution_module"])
MODELS["crdnn"] = (crdnn, ["DNN", "head"])


@pytest.mark.parametrize("name", MODELS)
def test_nothing_changes_at_first_and_merging_changes_nothing(name: str) -> None:
    build, targets = MODELS[name]
    before = outputs(build())
    model = adapt(build(), LoRASettings(rank=3, alpha=6.0, targets=targets))
    assert torch.allclose(outputs(model), before, atol=1e-5)
    after = outputs(trained(model))
    assert (after - before).abs().max() > 0.05
    plain = build()
    plain.load_state_dict(merged(model))
    assert torch.allclose(outputs(plain), after, atol=1e-5)


def test_only_adapters_train() -> None:
    model = adapt(conformer(), LoRASettings(rank=2))
    assert {name.rpartition(".")[2] for name, parameter in model.named_parameters() if parameter.requires_grad} == {
        "a",
        "b",
    }
    # At rank 2: an encoder layer has four projections of 16 x 16 and four feed-forward matrices of 16 x 32; the decoder
    # has two such matrices.
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == 2 * 4 * 2 * (16 + 16) + (2 * 4 + 2) * 2 * (
        16 + 32
    )
    assert set(plain_names(model).values()) == set(conformer().state_dict())


@pytest.mark.parametrize("attention", words(ConformerSettings)["attention"])
def test_query_key_and_value_have_an_adapter_each(attention: str) -> None:
    """The query's adapter changes only the query's rows; SpeechBrain's own attentions order rows by head first."""
    weight = "in_proj_weight"
    model = adapt(conformer(attention), LoRASettings(rank=2, targets=[weight]))
    name, module = next((name, module) for name, module in model.named_modules() if hasattr(module, "parametrizations"))
    before = getattr(module, weight).detach().clone()
    module.parametrizations[weight][0].b.data[0] = 1.0
    rows = (getattr(module, weight) != before).any(dim=1).nonzero().flatten().tolist()
    assert re.search("mha_layer", name)
    assert rows == ([*range(16)] if attention == "regularMHA" else [*range(8), *range(24, 32)])


def test_dropout_hides_inputs_while_training() -> None:
    model = trained(adapt(crdnn(), LoRASettings(dropout=0.5, targets=["ctc_head"])))
    module = next(module for module in model.modules() if hasattr(module, "parametrizations"))
    module.train()
    torch.manual_seed(0)
    change = module.weight - module.parametrizations.weight.original
    hidden = (change == 0).all(dim=0)
    assert 0 < int(hidden.sum()) < len(hidden)
    module.eval()
    assert not ((module.weight - module.parametrizations.weight.original) == 0).all(dim=0).any()
    expected = module.weight.detach().clone()
    model.train()
    assert any(torch.equal(found, expected) for found in merged(model).values()), "merging hides none"


def test_a_target_that_names_nothing_is_refused() -> None:
    with pytest.raises(
        ValueError, match="'q_proj' matches no weight that one module holds alone; there are .*mha_layer.in_proj_weight"
    ):
        adapt(conformer(), LoRASettings(targets=["ffn", "q_proj"]))


def test_a_target_that_is_no_pattern_is_refused_before_anything_is_built() -> None:
    with pytest.raises(ValueError, match=r"lora.targets: '\*_proj' is not a regular expression \(nothing to repeat"):
        LoRASettings(targets=["*_proj"])


@pytest.mark.parametrize("wrong", [{"rank": -1}, {"alpha": 0.0}, {"dropout": 1.0}, {"targets": []}])
def test_wrong_settings(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LoRASettings(**wrong)
