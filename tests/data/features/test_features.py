from __future__ import annotations

import math
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from fedray.core.parallel import serial
from fedray.data.corruption import CorruptionSettings
from fedray.data.features import audio, store
from fedray.data.features.log_mel import FLOOR, LogMelSettings, log_mels
from fedray.data.features.store import FeatureStore, build_features
from fedray.data.manifest import Manifest
from fedray.storage.cache_entries import damage, entries
from tests.small_speech import small_speech

RATE = 16000
RAW = LogMelSettings(normalise="none")


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def tone(seconds: float, hertz: float = 1000.0, rate: int = RATE) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def manifest_of(folder: Path, count: int, seed: int = 0) -> Manifest:
    """Write `count` files of white noise, 0.2 to 0.6 s each."""
    generator = np.random.default_rng(seed)
    rows = []
    for index in range(count):
        samples = 0.1 * generator.standard_normal(int(RATE * generator.uniform(0.2, 0.6)))
        path = folder / f"{index}.wav"
        soundfile.write(path, samples, RATE)
        rows.append(
            {"utterance": f"u{index}", "path": str(path), "seconds": len(samples) / RATE, "speaker": f"s{index % 2}"}
        )
    return Manifest.from_rows(rows, source="test")


def in_reverse(function, items, what):
    """Compute the items in reverse, and yield the results in the order of the items."""
    yield from reversed([function(item) for item in reversed(items)])


# --- audio ---


@pytest.mark.parametrize("extension", ["wav", "flac", "ogg"])
def test_a_segment_is_read_where_the_manifest_says(tmp_path: Path, extension: str) -> None:
    samples = np.concatenate([np.zeros(RATE, np.float32), tone(0.5), np.zeros(RATE, np.float32)])
    soundfile.write(tmp_path / f"a.{extension}", samples, RATE)
    part = audio.read(tmp_path / f"a.{extension}", RATE, offset=1.0, seconds=0.5)
    assert len(part) == RATE // 2
    assert part.square().mean().sqrt().item() == pytest.approx(0.5 / math.sqrt(2), rel=0.02)  # rms of a sine
    assert len(audio.read(tmp_path / f"a.{extension}", RATE)) == len(samples)
    assert audio.duration(tmp_path / f"a.{extension}") == pytest.approx(2.5)


def test_channels_are_averaged_and_rates_converted(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.stack([tone(1, rate=8000), np.zeros(8000)], axis=1), 8000)
    waveform = audio.read(tmp_path / "a.wav", RATE)
    assert waveform.shape == (RATE,) and waveform.dtype == torch.float32
    middle = waveform[1000:-1000].numpy()  # the resampling filter rings at the ends
    np.testing.assert_allclose(middle, tone(1)[1000:-1000] / 2, atol=0.005)


def broken_files(folder: Path) -> dict[str, str]:
    """Write broken files and return file name -> what the error must say."""
    for extension in ("wav", "flac"):
        soundfile.write(folder / f"whole.{extension}", 0.1 * np.random.default_rng(0).standard_normal(RATE), RATE)
        data = (folder / f"whole.{extension}").read_bytes()
        (folder / f"half.{extension}").write_bytes(data[: len(data) // 2])
    (folder / "empty.wav").touch()
    (folder / "stub.wav").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
    (folder / "text.wav").write_text("this is not audio")
    soundfile.write(folder / "nothing.wav", np.zeros(0), RATE)
    soundfile.write(folder / "nan.wav", np.full(RATE, np.nan), RATE, subtype="FLOAT")
    return {
        "half.wav": "truncated",
        "half.flac": "truncated",
        "empty.wav": "an empty file",
        "stub.wav": "Git LFS stub",
        "text.wav": "cannot be read as audio",
        "nothing.wav": "holds no samples",
        "nan.wav": "not finite",
        "absent.wav": "missing",
    }


def test_errors_name_the_file_and_what_is_wrong(tmp_path: Path) -> None:
    for name, reason in broken_files(tmp_path).items():
        with pytest.raises(audio.AudioError, match=f"{name}: .*{reason}") as caught:
            audio.read(tmp_path / name, RATE)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(audio.AudioError, match=r"truncated: 3\.00 s are needed, the file ends at 1\.00 s"):
        audio.read(tmp_path / "whole.wav", RATE, seconds=3.0)
    with pytest.raises(audio.AudioError, match=r"starts at 2\.00 s, the file ends at 1\.00 s"):
        audio.read(tmp_path / "whole.wav", RATE, offset=2.0, seconds=0.5)
    # The part before the cut can be used.
    assert len(audio.read(tmp_path / "half.wav", RATE, seconds=0.25)) == RATE // 4


# --- log-mels ---


@pytest.mark.parametrize("samples", [RATE, 400, 560, 561, 12345])
def test_number_of_frames(samples: int) -> None:
    expected = 1 + (samples - 400) // 160  # windows of 25 ms, one every 10 ms, that fit
    assert log_mels(torch.randn(samples), RAW).shape == (expected, 40)


def test_short_audio_has_one_frame() -> None:
    assert log_mels(torch.randn(100), RAW).shape == (1, 40)


def test_values_of_one_frame() -> None:
    """A frame equals its definition: Hann window, power spectrum, triangles on the HTK mel scale, log with a floor."""
    waveform = torch.randn(400, generator=torch.Generator().manual_seed(0))
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    power = np.abs(np.fft.rfft(waveform.numpy() * window, 512)) ** 2
    mel = np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 42)
    corners = 700 * (10 ** (mel / 2595) - 1)
    hertz = np.arange(257) * RATE / 512
    triangles = [np.interp(hertz, corners[i : i + 3], [0, 1, 0]) for i in range(40)]
    expected = np.log(np.maximum(np.array(triangles) @ power, FLOOR))
    np.testing.assert_allclose(log_mels(waveform, RAW)[0].numpy(), expected, rtol=1e-3, atol=1e-3)


def test_normalisation() -> None:
    waveform = torch.randn(RATE)
    raw = log_mels(waveform, RAW)
    mean = log_mels(waveform, LogMelSettings(normalise="mean"))
    both = log_mels(waveform, LogMelSettings(normalise="mean_variance"))
    torch.testing.assert_close(mean, raw - raw.mean(dim=0))
    torch.testing.assert_close(both.mean(dim=0), torch.zeros(40), atol=1e-4, rtol=0)
    torch.testing.assert_close(both.std(dim=0, correction=0), torch.ones(40), atol=1e-3, rtol=0)


def test_a_normalised_waveform_keeps_the_spectrum_and_forgets_loudness() -> None:
    waveform, settings = torch.randn(RATE), LogMelSettings(normalise="waveform")
    scaled = (waveform - waveform.mean()) / waveform.std(correction=0)
    torch.testing.assert_close(log_mels(waveform, settings), log_mels(scaled, RAW), atol=1e-4, rtol=0)
    torch.testing.assert_close(
        log_mels(0.01 * waveform + 0.2, settings), log_mels(waveform, settings), atol=1e-2, rtol=0
    )
    assert log_mels(torch.zeros(RATE), settings).unique().tolist() == pytest.approx([math.log(FLOOR)])


def test_silence_is_the_floor_and_stays_finite() -> None:
    assert log_mels(torch.zeros(RATE), RAW).unique().tolist() == pytest.approx([math.log(1e-8)])
    assert log_mels(torch.zeros(RATE), LogMelSettings(normalise="mean_variance")).abs().max() < 1e-2


@pytest.mark.parametrize(("bins", "rate"), [(40, 8000), (64, 16000), (80, 16000), (128, 16000), (128, 8000)])
def test_no_mel_bin_is_always_empty(bins: int, rate: int) -> None:
    settings = LogMelSettings(bins=bins, sample_rate=rate, normalise="none")
    found = log_mels(torch.randn(rate), settings)  # torchaudio warns of empty filters, and warnings are errors
    assert (found > math.log(FLOOR) + 1).all()
    assert len(found) == 98


@pytest.mark.parametrize("wrong", [{"normalise": "max"}, {"bins": 0}, {"hop_ms": -1.0}])
def test_settings_that_cannot_be(wrong: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LogMelSettings(**wrong)


# --- the store ---


def test_the_store_holds_each_rows_features(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, 5)
    store = build_features(manifest, LogMelSettings(), tmp_path / "features", serial)
    [entry] = entries(tmp_path)  # as `fedray cache` lists it
    assert (entry.kind, entry.path) == ("features", store.folder) and damage(entry) is None
    assert len(store) == 5 and store.bins == 40 and store.broken == {}
    for row, utterance in enumerate(manifest):
        expected = log_mels(audio.read(utterance.path, RATE), LogMelSettings()).numpy().astype(np.float16)
        assert store[row].dtype == np.float16 and store.frames[row] == len(expected)
        np.testing.assert_array_equal(store[row], expected)
    with pytest.raises(ValueError, match="read-only"):
        store[0][0, 0] = 1


def test_same_bits_for_any_order_and_division_of_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = manifest_of(tmp_path, 9)
    folders = []
    for size, parallel in [(64, serial), (1, in_reverse), (4, in_reverse)]:
        monkeypatch.setattr(store, "SHARD", size)
        noise = CorruptionSettings(snr_db=10.0, clients=0.5)
        folders.append(build_features(manifest, RAW, tmp_path / f"cache{size}", parallel, noise, seed=3).folder)
    for name in ("frames.f16", "offsets.npy", "store.json"):
        assert len({(folder / name).read_bytes() for folder in folders}) == 1


def test_the_cache_is_used_until_something_changes(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, 3)
    cache = tmp_path / "cache"
    builds = []

    def counting(function, items, what):
        builds.append(what)
        return serial(function, items, what)

    def build(**changes) -> None:
        build_features(changes.pop("manifest", manifest), changes.pop("settings", RAW), cache, counting, **changes)

    build()
    build()
    build(corruption=CorruptionSettings(label_errors=0.5), seed=1)  # does not change the audio
    assert len(builds) == 1
    build(settings=LogMelSettings(normalise="mean"))
    build(corruption=CorruptionSettings(snr_db=10.0))
    build(corruption=CorruptionSettings(snr_db=20.0))
    build(corruption=CorruptionSettings(snr_db=20.0), seed=1)
    build(manifest=manifest.take([2, 1]))
    assert len(builds) == 6
    os.utime(manifest[0].path, (1, 1))
    build()
    assert len(builds) == 7


def test_noise_hits_only_the_rows_of_the_clients_that_are_hit(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, 4)
    clean = build_features(manifest, RAW, tmp_path / "cache", serial)
    clients = {"a": np.array([0]), "b": np.array([2])}
    noisy = build_features(manifest, RAW, tmp_path / "cache", serial, CorruptionSettings(snr_db=0.0), clients=clients)
    assert [np.array_equal(clean[row], noisy[row]) for row in range(4)] == [False, True, False, True]


def test_a_store_pickles_as_its_path(tmp_path: Path) -> None:
    store = build_features(manifest_of(tmp_path, 3), RAW, tmp_path / "cache", serial)
    assert store[0].size > 0
    data = pickle.dumps(store)
    assert len(data) < 500
    again = pickle.loads(data)
    assert isinstance(again, FeatureStore)
    np.testing.assert_array_equal(again[2], store[2])


def test_broken_audio_is_collected_in_one_error(tmp_path: Path) -> None:
    good = manifest_of(tmp_path, 2)
    reasons = broken_files(tmp_path)
    rows = [
        {"utterance": f"bad-{name}", "path": str(tmp_path / name), "seconds": 1.0, "speaker": "s"} for name in reasons
    ]
    manifest = Manifest.concat([good.take([0]), Manifest.from_rows(rows, source="test"), good.take([1])])
    with pytest.raises(ValueError) as caught:
        build_features(manifest, RAW, tmp_path / "cache", serial)
    message = str(caught.value)
    assert f"{len(reasons)} of {len(reasons) + 2}" in message and "data.skip_broken: true" in message
    assert f"and {len(reasons) - 5} more" in message
    for place, (name, reason) in enumerate(reasons.items()):
        assert (f"bad-{name}: {tmp_path / name}: " in message) == (place < 5)
        assert (reason in message) or place >= 5

    store = build_features(manifest, RAW, tmp_path / "cache", serial, skip_broken=True)
    assert set(store.broken) == {f"bad-{name}" for name in reasons}
    assert all(reason in store.broken[f"bad-{name}"] for name, reason in reasons.items())
    assert store.frames[1:-1].tolist() == [0] * len(reasons) and store.frames[0] > 0 and store.frames[-1] > 0
    with pytest.raises(ValueError, match="cannot be used"):  # also from the cache
        build_features(manifest, RAW, tmp_path / "cache", serial)

    # A missing file is used once it appears.
    soundfile.write(tmp_path / "absent.wav", tone(1), RATE)
    assert "bad-absent.wav" not in build_features(manifest, RAW, tmp_path / "cache", serial, skip_broken=True).broken


def test_an_empty_manifest_has_an_empty_store(tmp_path: Path) -> None:
    store = build_features(Manifest.concat([]), RAW, tmp_path / "cache", serial)
    assert len(store) == 0 and store.broken == {}


def test_real_recordings(tmp_path: Path) -> None:
    rows = []
    for path in sorted((small_speech("fsdd") / "recordings").glob("*.flac"))[:20]:
        rows.append(
            {
                "utterance": path.stem,
                "path": str(path),
                "seconds": audio.duration(path),
                "speaker": path.stem.split("_")[1],
            }
        )
    settings = LogMelSettings(sample_rate=8000)
    store = build_features(Manifest.from_rows(rows, source="fsdd"), settings, tmp_path / "cache", serial)
    seconds = np.array([row["seconds"] for row in rows])
    np.testing.assert_allclose(store.frames, seconds * 100, atol=3)  # 100 frames a second, less the last window
    assert all(np.isfinite(store[row]).all() for row in range(len(store)))
