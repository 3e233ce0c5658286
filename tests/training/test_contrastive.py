"""Contrastive pre-training: the loss by hand, a falling loss, a resume with the same bits, the weights for a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedray.core.seeds import numpy_generator, seed_all
from fedray.data.features.dataset import Utterances, batches
from fedray.data.features.store import FeatureStore
from fedray.data.manifest import Manifest
from fedray.models.audio_cnn import AudioCNN, AudioCNNSettings
from fedray.models.weights import load_weights
from fedray.training.contrastive import Contrastive, ContrastiveSettings, Head
from fedray.training.windows import random_window

BINS, FRAMES = 16, 16
SETTINGS = ContrastiveSettings(epochs=4, batch=8, units=8)


def clips(folder: Path, count: int = 18, frames: int = 40) -> Utterances:
    """Each clip is one random spectrum with a little noise in every frame, so its two segments are similar."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    spectra = np.repeat(generator.standard_normal((count, BINS)), frames, axis=0)
    (spectra + 0.1 * generator.standard_normal(spectra.shape)).astype(np.float16).tofile(folder / "frames.f16")
    np.save(folder / "offsets.npy", frames * np.arange(count + 1))
    (folder / "store.json").write_text(f'{{"bins": {BINS}, "broken": {{}}}}')
    rows = [{"utterance": f"u{i:02d}", "path": "/x.wav", "seconds": 1.0, "speaker": "s"} for i in range(count)]
    return Utterances(Manifest.from_rows(rows, source="test"), FeatureStore(folder), np.arange(count))


def network() -> AudioCNN:
    return AudioCNN(AudioCNNSettings(), BINS, 2)


def training(folder: Path, settings: ContrastiveSettings = SETTINGS, seed: int = 3, **changes: Any) -> Contrastive:
    return Contrastive(changes.pop("make", network), clips(folder, **changes), FRAMES, settings, seed)


def test_the_similarity_is_bilinear() -> None:
    torch.manual_seed(0)
    head = Head(5, 4)
    nn.init.normal_(head.bilinear.weight)
    first, second = torch.randn(3, 5), torch.randn(3, 5)
    found = head(first, second)
    assert found.shape == (3, 3)

    def g(x: torch.Tensor) -> torch.Tensor:
        hidden = head.linear.weight @ x + head.linear.bias
        return torch.tanh((hidden - hidden.mean()) / (hidden.var(unbiased=False) + 1e-5).sqrt())

    for i in range(3):
        for j in range(3):
            assert found[i, j].item() == pytest.approx(
                (g(first[i]) @ head.bilinear.weight @ g(second[j])).item(), rel=1e-4, abs=1e-6
            )


def test_the_first_steps_by_hand(tmp_path: Path) -> None:
    """An epoch takes 18 clips in batches of 8; the loss is that of finding each clip among those of its batch."""
    found = training(tmp_path)
    other = training(tmp_path)
    optimizer = torch.optim.Adam([*other.model.blocks.parameters(), *other.head.parameters()], lr=1e-3)
    heard: list[int] = []
    loss = found.epoch(heard.append)
    seed_all(3, "contrastive", 0)
    total = 0.0
    for batch in batches(other.data, 8, numpy_generator(3, "contrastive", "batches", 0)):
        a, b = (random_window(batch, FRAMES) for _ in range(2))
        assert (a.features != b.features).any() and a.features.shape == (len(batch), FRAMES, BINS)
        both = other.model.embed(torch.cat([a.features, b.features]), torch.cat([a.lengths, b.lengths]))
        log_probabilities = other.head(both[: len(batch)], both[len(batch) :]).log_softmax(1)
        step = -sum(log_probabilities[i, i] for i in range(len(batch))) / len(batch)
        optimizer.zero_grad()
        step.backward()
        optimizer.step()
        total += float(step.detach()) * len(batch)
    assert loss == pytest.approx(total / 18, rel=1e-5) and heard == [1, 2, 3] and found.steps == 3
    for mine, theirs in zip(
        found.parameters, [*other.model.blocks.parameters(), *other.head.parameters()], strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_the_loss_falls(tmp_path: Path) -> None:
    """The loss falls from that of a random guess among nine clips."""
    running = training(tmp_path, ContrastiveSettings(batch=9, units=32))
    losses = [running.epoch() for _ in range(24)]
    assert losses == running.losses and losses[1] > 0.9 * np.log(9) and np.mean(losses[-3:]) < 0.7 * np.log(9)


def test_a_cut_changes_no_bit(tmp_path: Path) -> None:
    straight = training(tmp_path)
    losses = [straight.epoch() for _ in range(4)]
    cut = training(tmp_path)
    cut.epoch()
    cut.epoch()
    torch.save(cut.state(), tmp_path / "state.pt")
    cut.epoch()  # this epoch, after the checkpoint, is lost
    again = training(tmp_path)
    again.load(torch.load(tmp_path / "state.pt", weights_only=True))
    assert again.done == 2
    again.epoch()
    again.epoch()
    assert again.losses == losses
    for name, value in straight.weights().items():
        assert torch.equal(value, again.weights()[name]), name
    assert training(tmp_path, seed=4).epoch() != losses[0]


def test_a_model_starts_from_it_with_a_last_layer_of_its_own(tmp_path: Path) -> None:
    taught = training(tmp_path)
    taught.epoch()
    torch.save(taught.weights(), tmp_path / "weights.pt")
    torch.manual_seed(1)
    model = AudioCNN(AudioCNNSettings(), BINS, 7)
    assert load_weights(model, tmp_path / "weights.pt") == ["out.bias", "out.weight"]
    assert torch.equal(model.blocks[0].time.weight, taught.model.blocks[0].time.weight)


def test_what_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="contrastive.window: no clip is longer than 1.0 s, so both segments would be the same"
    ):
        training(tmp_path / "a", frames=FRAMES)
    with pytest.raises(ValueError, match="compares clips, but there are 1"):
        training(tmp_path / "b", count=1)
    with pytest.raises(ValueError, match="cannot train Linear: set model.kind=audio_cnn"):
        training(tmp_path / "c", make=lambda: nn.Linear(1, 1))
    with pytest.raises(ValueError, match="batch must be at least 2, not 1"):
        ContrastiveSettings(batch=1)
    with pytest.raises(ValueError, match="window must be above 0"):
        ContrastiveSettings(window=0)
