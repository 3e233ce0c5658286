from __future__ import annotations

import numpy as np
import pytest
import torch

from fedray.data.corruption import (
    CorruptionSettings,
    Tone,
    add_white_noise,
    corrupt_labels,
    corrupted_clients,
    noisy_rows,
)
from fedray.data.manifest import COLUMNS, Manifest

SPEAKERS = 10
EACH = 20


def manifest_of(order: np.ndarray | None = None) -> Manifest:
    """Return 10 speakers of 20 utterances, with 200 distinct texts and 4 labels."""
    rows = [
        {
            "utterance": f"s{s}-{u}",
            "path": f"/{s}-{u}.wav",
            "seconds": 1.0,
            "speaker": f"s{s}",
            "text": f"text {s} {u}",
            "label": f"label{u % 4}",
        }
        for s in range(SPEAKERS)
        for u in range(EACH)
    ]
    manifest = Manifest.from_rows(rows, source="test")
    return manifest if order is None else manifest.take(order)


@pytest.mark.parametrize("snr_db", [30.0, 10.0, -5.0])
def test_noise_has_the_ratio_that_was_asked_for(snr_db: float) -> None:
    clean = 0.3 * torch.sin(torch.arange(16000) * 0.1)
    noise = add_white_noise(clean, snr_db, 0, "u") - clean
    assert 10 * torch.log10(clean.square().sum() / noise.square().sum()).item() == pytest.approx(snr_db, abs=0.01)
    spectrum = torch.fft.rfft(noise).abs().square()
    low, high = spectrum[1:4000].mean(), spectrum[4000:-1].mean()
    assert (low / high).item() == pytest.approx(1.0, abs=0.1)  # white: each half has 4,000 bins, a spread of 2 %


def test_noise_follows_seed_and_utterance() -> None:
    clean = torch.randn(1000)
    first = add_white_noise(clean, 10.0, 0, "u")
    assert torch.equal(first, add_white_noise(clean, 10.0, 0, "u"))
    assert not torch.equal(first, add_white_noise(clean, 10.0, 1, "u"))
    assert not torch.equal(first, add_white_noise(clean, 10.0, 0, "v"))


def test_silence_stays_silent() -> None:
    assert torch.equal(add_white_noise(torch.zeros(100), 10.0, 0, "u"), torch.zeros(100))


def test_the_share_of_clients_is_exact_and_grows() -> None:
    names = [f"c{i}" for i in range(10)]
    sizes = [len(corrupted_clients(names, share, 0)) for share in (0.0, 0.1, 0.4, 1.0)]
    assert sizes == [0, 1, 4, 10]
    assert corrupted_clients(names, 0.2, 0) < corrupted_clients(reversed(names), 0.5, 0)
    assert corrupted_clients(names, 0.5, 0) != corrupted_clients(names, 0.5, 1)


def test_noisy_rows_are_those_of_the_clients_that_are_hit() -> None:
    manifest = manifest_of()
    noisy = noisy_rows(manifest, CorruptionSettings(snr_db=10.0, clients=0.3), seed=0)
    hit = {speaker for speaker, is_noisy in zip(manifest.column("speaker"), noisy, strict=True) if is_noisy}
    assert len(hit) == 3 and noisy.sum() == 3 * EACH
    clients = {"a": np.array([0, 5]), "b": np.array([7])}  # other rows belong to no client
    everyone = noisy_rows(manifest, CorruptionSettings(snr_db=10.0), 0, clients)
    assert np.flatnonzero(everyone).tolist() == [0, 5, 7]
    assert not noisy_rows(manifest, CorruptionSettings(), 0).any() and not noisy_rows(manifest, None, 0).any()


@pytest.mark.parametrize("target", ["text", "label"])
def test_a_share_of_the_labels_becomes_another(target: str) -> None:
    manifest = manifest_of()
    result = corrupt_labels(manifest, CorruptionSettings(label_errors=0.3), 0, target)
    before, after = np.array(manifest.column(target)), np.array(result.manifest.column(target))
    np.testing.assert_array_equal(before != after, result.changed)
    assert result.changed.sum() == 0.3 * SPEAKERS * EACH
    assert set(after) <= set(before)
    for name in COLUMNS:
        assert name == target or result.manifest.column(name) == manifest.column(name)


def test_shares_are_rounded_to_the_nearest() -> None:
    names = [f"client{number}" for number in range(10)]
    assert [len(corrupted_clients(names, share, 0)) for share in (0.04, 0.06, 0.24, 0.26, 0.99)] == [0, 1, 2, 3, 10]


def test_wrong_labels_are_spread_over_all_others() -> None:
    result = corrupt_labels(manifest_of(), CorruptionSettings(label_errors=1.0), 0, "label")
    assert result.changed.all()
    wrong = [
        label
        for label, row in zip(result.manifest.column("label"), manifest_of(), strict=True)
        if row.label == "label0"
    ]
    assert {"label1", "label2", "label3"} == set(wrong)  # 50 draws from three


def test_labels_that_nobody_reads_stay_the_truth() -> None:
    """Labels of unlabelled rows are not damaged: pseudo-labels are scored against them."""
    read = np.arange(len(manifest_of())) % 3 == 0
    result = corrupt_labels(manifest_of(), CorruptionSettings(label_errors=1.0), 0, "label", read=read)
    assert (result.changed == read).all()


def confusions(settings: CorruptionSettings, order: np.ndarray | None = None) -> dict[tuple[str, str], set[str]]:
    """Return (speaker, true label) -> the wrong labels that replace it."""
    manifest = manifest_of(order)
    wrong = corrupt_labels(manifest, settings, 0, "label")
    columns = (manifest.column("speaker"), manifest.column("label"), wrong.manifest.column("label"), wrong.changed)
    found: dict[tuple[str, str], set[str]] = {}
    for speaker, label, other, changed in zip(*columns, strict=True):
        assert (other != label) == changed
        if changed:
            found.setdefault((speaker, label), set()).add(other)
    return found


def test_a_client_may_confuse_few_labels() -> None:
    """With two of three wrong labels left out, a client confuses a label with one; clients differ in which."""
    sparse = confusions(CorruptionSettings(label_errors=1.0, sparsity=0.67))
    assert len(sparse) == 40 and all(len(others) == 1 for others in sparse.values())
    assert len({min(others) for (_, label), others in sparse.items() if label == "label0"}) == 3
    half = confusions(CorruptionSettings(label_errors=1.0, sparsity=0.34))
    assert max(len(others) for others in half.values()) == 2
    assert max(len(others) for others in confusions(CorruptionSettings(label_errors=1.0)).values()) == 3
    order = np.random.default_rng(0).permutation(SPEAKERS * EACH)
    assert confusions(CorruptionSettings(label_errors=1.0, sparsity=0.67), order) == sparse
    with pytest.raises(ValueError, match="sparsity must be at least 0 and at most 1, not 2"):
        CorruptionSettings(sparsity=2.0)


def test_coordinated_clients_confuse_the_same_labels() -> None:
    found = confusions(CorruptionSettings(label_errors=1.0, clients=0.3, coordinated=True))
    pairs = {label: others for (_, label), others in found.items()}
    assert len(found) == 12 and len(pairs) == 4  # three clients, four labels
    assert all(others == pairs[label] and len(others) == 1 for (_, label), others in found.items())
    with pytest.raises(ValueError, match=r"data\.corruption\.coordinated: .* choose one of the two"):
        CorruptionSettings(coordinated=True, sparsity=0.5)


def test_label_errors_follow_names_not_positions() -> None:
    settings = CorruptionSettings(label_errors=0.5, clients=0.4)
    straight = corrupt_labels(manifest_of(), settings, 0, "text").manifest
    order = np.random.default_rng(0).permutation(SPEAKERS * EACH)
    shuffled = corrupt_labels(manifest_of(order), settings, 0, "text").manifest
    assert shuffled.column("text") == [straight.column("text")[row] for row in order]
    assert corrupt_labels(manifest_of(), settings, 1, "text").manifest.column("text") != straight.column("text")


def test_only_clients_that_are_hit_get_label_errors() -> None:
    manifest = manifest_of()
    settings = CorruptionSettings(snr_db=10.0, label_errors=0.5, clients=0.2)
    changed = corrupt_labels(manifest, settings, 0, "text").changed
    assert changed.sum() == 0.5 * 2 * EACH
    assert not (changed & ~noisy_rows(manifest, settings, 0)).any()  # the same clients as for the noise


def test_rows_without_a_label_are_left_alone() -> None:
    manifest = manifest_of()
    assert not corrupt_labels(manifest, CorruptionSettings(), 0, "text").changed.any()
    assert not corrupt_labels(manifest, CorruptionSettings(label_errors=1.0), 0, "translation").changed.any()


def test_what_cannot_be_done_is_said() -> None:
    with pytest.raises(ValueError, match=r"label_errors must be at least 0 and at most 1, not 1\.5"):
        CorruptionSettings(label_errors=1.5)
    with pytest.raises(ValueError, match="clients must be at least 0 and at most 1"):
        CorruptionSettings(clients=-0.1)
    with pytest.raises(ValueError, match="choose one of text, label, translation"):
        corrupt_labels(manifest_of(), CorruptionSettings(label_errors=0.1), 0, "speaker")
    same = Manifest.from_rows(
        [{"utterance": "u", "path": "/u", "seconds": 1.0, "speaker": "s", "text": "a"}], source="test"
    )
    with pytest.raises(ValueError, match="needs two values of text in the manifest, which has 1"):
        corrupt_labels(same, CorruptionSettings(label_errors=1.0), 0, "text")


def test_a_tone_has_its_power_its_place_and_its_frequency() -> None:
    """Power 0.02 and -3.01 dB of it, in samples 100 to 300 of 400, at 1000 Hz of 8000."""
    waveform = np.sqrt(0.02) * torch.sign(torch.randn(400, generator=torch.Generator().manual_seed(0)))
    tone = Tone(frequency=1000.0, level_db=10 * np.log10(0.5), start=100 / 8000, seconds=200 / 8000)
    added = (tone.added(waveform, 8000) - waveform).numpy()
    assert not added[:100].any() and not added[300:].any()
    assert np.square(added[100:300]).mean() == pytest.approx(0.01, rel=1e-3)
    assert np.abs(np.fft.rfft(added[100:300])).argmax() == 25  # of bins 40 Hz apart
    assert not tone.added(torch.zeros(400), 8000).any()
