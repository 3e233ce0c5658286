"""Ways to train large models: the same gradients with less in memory, or in half the precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedray.core.parameters import FlatModel
from fedray.data.features.dataset import Batch
from fedray.models.audio_cnn import AudioCNN, AudioCNNSettings
from fedray.models.conformer import Conformer, ConformerSettings
from fedray.models.crdnn import CRDNN, CRDNNSettings
from fedray.models.crnn import CRNN, CRNNSettings
from fedray.training.large import StepSettings, layers, micro_batches, stepping
from fedray.training.optimizers import ClientSettings

BINS, CLASSES = 16, 5


def classify(model: nn.Module, batch: Batch) -> torch.Tensor:
    return model(batch.features, batch.lengths)


def recognise(model: Any, batch: Batch) -> torch.Tensor:
    encoded = model.encode(batch.features, batch.lengths)
    logits: torch.Tensor = model.ctc(encoded[0])[:, :6].mean(1)  # no frames of padding
    return logits


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any, Batch], torch.Tensor]]] = {
    "crnn": (lambda: CRNN(CRNNSettings(), BINS, CLASSES), classify),
    "audio_cnn": (lambda: AudioCNN(AudioCNNSettings(), BINS, CLASSES), classify),
    "conformer": (lambda: Conformer(ConformerSettings(d_model=16, ffn=32), BINS, CLASSES), recognise),
    "crdnn": (lambda: CRDNN(CRDNNSettings(channels=(4, 4), rnn_neurons=8, dnn_neurons=8), BINS, CLASSES), recognise),
}


def batch() -> Batch:
    lengths = np.array([40, 32, 40, 24])
    features = torch.randn(4, 40, BINS, generator=torch.Generator().manual_seed(0))
    for row, length in enumerate(lengths):
        features[row, length:] = 0
    return Batch(features, torch.from_numpy(lengths), np.arange(4))


def step(name: str, settings: StepSettings) -> tuple[torch.Tensor, float, int, list[torch.Tensor]]:
    """The gradient of a step, the loss, the bytes kept for the backward pass, and the buffers after it."""
    torch.manual_seed(1)
    make, outputs = MODELS[name]
    flat = FlatModel(make())
    flat.model.train()
    torch.manual_seed(2)
    kept, loss, whole = 0, 0.0, batch()

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += tensor.nbytes if not isinstance(tensor, nn.Parameter) else 0
        return tensor

    with stepping(flat.model, settings, "cpu"):
        for at, part in enumerate(micro_batches(whole, settings.micro_batch)):
            before, kept = kept, 0
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                logits = outputs(flat.model, part)
            targets = torch.from_numpy(part.positions % CLASSES)
            mean = cross_entropy(logits.float(), targets) * (len(part) / len(whole))
            kept = max(before, kept)
            flat.backward(mean, more=at > 0)
            loss += float(mean.detach())
    return flat.gradient.clone(), loss, kept, [buffer.clone() for buffer in flat.model.buffers()]


@pytest.fixture
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: compiled loops keep little, and are no layers."""
    for module in ("crnn", "audio_cnn", "conformer", "crdnn"):
        monkeypatch.setattr(f"fedray.models.{module}.on_cpu", lambda features: False)


@pytest.mark.usefixtures("no_kernels")
@pytest.mark.parametrize("name", [name for name in MODELS if name != "crnn"])  # which takes its layers apart
def test_recomputed_activations_change_no_bit(name: str) -> None:
    """Masks of dropout are drawn again, and running statistics see the batch once."""
    gradient, loss, kept, buffers = step(name, StepSettings())
    again, same, less, after = step(name, StepSettings(recompute=True))
    assert torch.equal(gradient, again) and loss == same and less < 0.7 * kept
    assert all(map(torch.equal, buffers, after))


@pytest.mark.usefixtures("no_kernels")
@pytest.mark.parametrize("name", ["conformer", "audio_cnn"])
def test_micro_batches_add_up_to_the_gradient(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    still = {
        "conformer": lambda: Conformer(ConformerSettings(d_model=16, ffn=32, dropout=0.0), BINS, CLASSES),
        "audio_cnn": lambda: AudioCNN(AudioCNNSettings(dropout=0.0), BINS, CLASSES),
    }
    monkeypatch.setitem(MODELS, name, (still[name], MODELS[name][1]))
    gradient, loss, kept, _ = step(name, StepSettings())
    parts, same, less, _ = step(name, StepSettings(micro_batch=1))
    assert same == pytest.approx(loss, rel=1e-4) and less < 0.5 * kept
    assert float((parts - gradient).norm() / gradient.norm()) < 1e-3


@pytest.mark.usefixtures("no_kernels")
@pytest.mark.parametrize("name", MODELS)
def test_half_the_precision_comes_close(name: str) -> None:
    gradient, loss, *_ = step(name, StepSettings())
    rough, near, *_ = step(name, StepSettings(precision="bf16"))
    assert near == pytest.approx(loss, rel=0.05) and rough.dtype == torch.float32
    assert float((rough - gradient).norm() / gradient.norm()) < 0.3


@pytest.mark.usefixtures("no_kernels")
@pytest.mark.parametrize("name", MODELS)
def test_half_the_precision_sees_the_weights_of_every_step(name: str) -> None:
    """torch.autocast remembers rounded weights while it is open, so that all steps would begin at the first weights."""
    torch.manual_seed(1)
    make, outputs = MODELS[name]
    flat = FlatModel(make())
    flat.model.eval()
    half = StepSettings(precision="bf16")
    with stepping(flat.model, half, "cpu"):
        first = outputs(flat.model, batch())
        with torch.no_grad():
            flat.weights.mul_(1.5)
        then = outputs(flat.model, batch())
    with stepping(flat.model, half, "cpu"):
        assert torch.equal(then, outputs(flat.model, batch())) and not torch.equal(first, then)


def test_a_model_is_as_before_afterwards() -> None:
    model = MODELS["conformer"][0]()
    with stepping(model, StepSettings(recompute=True), "cpu"):
        assert all("forward" in vars(layer) for layer in layers(model))
    assert layers(model) and not any("forward" in vars(layer) for layer in layers(model))


def test_parts_of_a_batch() -> None:
    parts = list(micro_batches(batch(), 3))
    assert [part.features.shape[:2] for part in parts] == [(3, 40), (1, 24)]
    assert [part.positions.tolist() for part in parts] == [[0, 1, 2], [3]]
    assert (
        [len(part) for part in micro_batches(batch(), None)] == [4] == [len(one) for one in micro_batches(batch(), 9)]
    )


def test_settings() -> None:
    assert not ClientSettings().alone and ClientSettings(micro_batch=2).alone and ClientSettings(precision="bf16").alone
    with pytest.raises(ValueError, match="precision must be float32 or bf16, not 'half'"):
        ClientSettings(precision="half")
    with pytest.raises(ValueError, match="micro_batch must be at least 1"):
        ClientSettings(micro_batch=0)


def test_an_algorithm_with_steps_of_its_own_refuses_them() -> None:
    ClientSettings().check_plain("fedstar")
    with pytest.raises(ValueError, match="fedstar takes steps of its own: leave out micro_batch"):
        ClientSettings(recompute=True).check_plain("fedstar")
