"""Features from files of numpy, HDF5, Kaldi and Lhotse: our own log-mels give what `logmel` gives, bit for bit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from fedray.core.parallel import serial
from fedray.data.corruption import CorruptionSettings
from fedray.data.features import audio
from fedray.data.features.log_mel import LogMelSettings, log_mels
from fedray.data.features.precomputed import PrecomputedSettings
from fedray.data.features.store import build_features
from fedray.data.manifest import Manifest
from tests import speech
from tests.algorithms import by_hand

LOGMEL = LogMelSettings(sample_rate=speech.RATE, bins=20)
Matrices = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Matrices]:
    """A corpus of tones, and the log-mels of its utterances, float32."""
    folder = tmp_path_factory.mktemp("tones")
    splits = speech.splits(folder, speakers=8, utterances=3)
    rows = [row for manifest in splits.values() for row in manifest]
    return folder, {row.utterance: log_mels(audio.read(row.path, speech.RATE), LOGMEL).numpy() for row in rows}


def npz(folder: Path, found: Matrices) -> Path:
    np.savez(folder / "mels.npz", **found)
    return folder / "mels.npz"


def npy(folder: Path, found: Matrices) -> Path:
    for name, matrix in found.items():
        (folder / "mels" / name).parent.mkdir(parents=True, exist_ok=True)
        np.save((folder / "mels" / name).with_suffix(".npy"), matrix)
    return folder / "mels"


def hdf5(folder: Path, found: Matrices) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "mels.h5", "w") as file:
        for name, matrix in found.items():
            file[name] = matrix
    return folder / "mels.h5"


def kaldi(folder: Path, found: Matrices, ending: str = "scp") -> Path:
    kaldi_native_io = pytest.importorskip("kaldi_native_io")
    with kaldi_native_io.FloatMatrixWriter(f"ark,scp:{folder / 'mels.ark'},{folder / 'mels.scp'}") as writer:
        for name, matrix in found.items():
            writer.write(name, matrix)
    return folder / f"mels.{ending}"


def ark(folder: Path, found: Matrices) -> Path:
    return kaldi(folder, found, "ark")


def lhotse_cuts(folder: Path, found: Matrices) -> Path:
    lhotse = pytest.importorskip("lhotse")
    with lhotse.NumpyFilesWriter(folder / "arrays") as storage:
        cuts = []
        for name, matrix in found.items():
            seconds = len(matrix) / 100
            features = lhotse.Features(
                recording_id=name,
                channels=0,
                start=0.0,
                duration=seconds,
                type="fbank",
                num_frames=len(matrix),
                num_features=matrix.shape[1],
                frame_shift=0.01,
                sampling_rate=speech.RATE,
                storage_type=storage.name,
                storage_path=str(storage.storage_path),
                storage_key=storage.write(name.replace("/", "-"), matrix),
            )
            said = lhotse.SupervisionSegment(id=name, recording_id=name, start=0.0, duration=seconds)
            cuts.append(lhotse.MonoCut(f"cut-{name}", 0.0, seconds, channel=0, features=features, supervisions=[said]))
    lhotse.CutSet.from_cuts(cuts).to_file(folder / "cuts.jsonl.gz")
    return folder / "cuts.jsonl.gz"


@pytest.mark.parametrize("write", [npz, npy, hdf5, kaldi, ark, lhotse_cuts])
def test_our_log_mels_are_the_same_features(
    write: Callable[[Path, Matrices], Path], corpus: tuple[Path, Matrices], tmp_path: Path
) -> None:
    folder, matrices = corpus
    train = speech.splits(folder, speakers=8, utterances=3)["train"]
    expected = build_features(train, LOGMEL, tmp_path / "cache", serial)
    settings = PrecomputedSettings(str(write(tmp_path, matrices)), bins=20)
    found = build_features(train, settings, tmp_path / "cache", serial)
    assert len(found) == len(expected) > 0 and found.frames.tolist() == expected.frames.tolist()
    assert all(np.array_equal(found[row], expected[row]) for row in range(len(found)))


@pytest.mark.parametrize("write", [npz, kaldi])
def test_a_round_on_them_gives_the_same_scores(
    write: Callable[[Path, Matrices], Path], corpus: tuple[Path, Matrices], tmp_path: Path, no_ray: None
) -> None:
    folder, matrices = corpus
    algorithm = {"kind": "fedavg", "client": {"lr": 0.1, "batch": 2}, "pretrain": {"steps": 2, "warmup": 1, "batch": 2}}

    def played(features: dict[str, Any]) -> tuple[np.ndarray, dict[str, float]]:
        made, data, state = by_hand.build(speech.settings(folder, features=features, algorithm=algorithm))
        _, state = by_hand.play(made, data, state, 1)
        scores = made.task.evaluate(state.params, data.evaluation("test"), made.task.assets(), "cpu", final=False)
        return state.params, dict(scores.metrics)

    params, scores = played({"sample_rate": speech.RATE, "bins": 20})
    again, found = played({"kind": "precomputed", "path": str(write(tmp_path, matrices)), "bins": 20})
    assert np.array_equal(params, again) and scores == found


def test_a_manifest_may_name_arrays(tmp_path: Path) -> None:
    matrix = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float16)
    np.save(tmp_path / "a.npy", matrix.astype(">f4"))  # a byte order that torch lacks
    rows = [{"utterance": "a", "path": str(tmp_path / "a.npy"), "seconds": 0.05, "speaker": "s"}]
    settings = PrecomputedSettings(bins=3)
    store = build_features(Manifest.from_rows(rows, "test"), settings, tmp_path / "cache", serial)
    assert np.array_equal(store[0], matrix) and settings.frames(0.05) == 5


def manifest_of(folder: Path) -> Manifest:
    soundfile.write(folder / "a.wav", np.zeros(800), 8000)
    return Manifest.from_rows(
        [{"utterance": "a", "path": str(folder / "a.wav"), "seconds": 0.1, "speaker": "s"}], "test"
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"b": np.zeros((5, 3))}, "a.wav: .*mels.npz has no features of a"),
        ({"a": np.zeros((5, 4))}, r"features of a of the shape \[5, 4\], not \[frames, 3\]"),
        ({"a": np.zeros(5)}, r"of the shape \[5\]"),
        ({"a": np.zeros((0, 3))}, r"of the shape \[0, 3\]"),
        ({"a": np.full((5, 3), np.nan)}, "NaN or infinity in the features of a"),
        ({"a": np.array([["x"]], object)}, "features of a that cannot be read: .*allow_pickle"),
        ({"a": np.full((5, 3), "x")}, "features of a that are no array of real numbers"),
        ({"a": np.full((5, 3), 1e5)}, "a.wav: has features above 65,504, the most that is stored: take logarithms"),
    ],
)
def test_what_cannot_be_used_is_named(content: Matrices, words: str, tmp_path: Path) -> None:
    path = npz(tmp_path, content)
    with pytest.raises(ValueError, match=words):
        build_features(manifest_of(tmp_path), PrecomputedSettings(str(path), bins=3), tmp_path / "cache", serial)


def test_other_files_and_damage_are_named(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path)

    def problem(path: Path) -> str:
        with pytest.raises(ValueError) as caught:
            build_features(manifest, PrecomputedSettings(str(path), bins=3), tmp_path / "cache", serial)
        return str(caught.value)

    (tmp_path / "mels.pt").touch()
    assert "is none of .npz, .h5, .scp, .ark and .jsonl.gz, and no folder" in problem(tmp_path / "mels.pt")
    whole = npz(tmp_path, {"a": np.zeros((50, 3))}).read_bytes()
    (tmp_path / "mels.npz").write_bytes(whole[: len(whole) // 2])
    assert "that cannot be read: is not a whole archive" in problem(tmp_path / "mels.npz")
    (tmp_path / "empty").mkdir()
    assert "empty has no features of a" in problem(tmp_path / "empty")
    (tmp_path / "empty" / "a.npy").touch()
    assert "features of a that cannot be read" in problem(tmp_path / "empty")


def test_noise_has_nothing_to_be_added_to(tmp_path: Path) -> None:
    path = npz(tmp_path, {"a": np.zeros((5, 3))})
    with pytest.raises(ValueError, match=r"adds noise to audio, which features.kind=precomputed does not read"):
        build_features(
            manifest_of(tmp_path),
            PrecomputedSettings(str(path), bins=3),
            tmp_path / "cache",
            serial,
            CorruptionSettings(clients=1.0, snr_db=10.0),
        )


def test_changed_files_make_other_features(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path)
    settings = PrecomputedSettings(str(npz(tmp_path, {"a": np.zeros((5, 3))})), bins=3)
    first = build_features(manifest, settings, tmp_path / "cache", serial)
    npz(tmp_path, {"a": np.ones((6, 3))})
    second = build_features(manifest, settings, tmp_path / "cache", serial)
    assert first.folder != second.folder and second.frames.tolist() == [6]


@pytest.mark.parametrize("write", [kaldi, lhotse_cuts])
def test_changed_archives_make_another_store(
    write: Callable[[Path, Matrices], Path], corpus: tuple[Path, Matrices], tmp_path: Path
) -> None:
    folder, matrices = corpus
    train = speech.splits(folder, speakers=8, utterances=3)["train"]
    path = write(tmp_path, matrices)
    listed = path.read_bytes()
    first = build_features(train, PrecomputedSettings(str(path), bins=20), tmp_path / "cache", serial)
    stamp = path.stat()
    write(tmp_path, {name: matrix + 1 for name, matrix in matrices.items()})
    path.write_bytes(listed)  # the list is as it was: the arrays alone have changed
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    second = build_features(train, PrecomputedSettings(str(path), bins=20), tmp_path / "cache", serial)
    assert second.name != first.name


def test_a_group_of_hdf5_is_no_features(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "mels.h5", "w") as file:
        file["a/feats"] = np.zeros((5, 3))
    settings = PrecomputedSettings(str(tmp_path / "mels.h5"), bins=3)
    with pytest.raises(ValueError, match=r"mels\.h5 has features of a that are no array of real numbers"):
        build_features(manifest_of(tmp_path), settings, tmp_path / "cache", serial)
