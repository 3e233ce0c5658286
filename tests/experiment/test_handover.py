"""`fedray export` writes an ONNX file with the outputs of the run's model; folders without a model are refused."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import soundfile
import torch
import yaml

from fedray import cli, experiment
from fedray.config.schema import plain
from fedray.experiment.handover import TOLERANCE, to_onnx
from fedray.storage.files import StorageError
from tests import keywords, small_corpus
from tests.small_corpus import without_ray  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("without_ray")


def finished(folder: Path, settings: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Write what a run leaves in `folder/run`, with an untrained model; return task, data and parameters."""
    config, source = experiment.load(settings)
    data, _ = experiment.build_data(config, source)
    task = experiment.build_algorithm(config, data).task
    torch.manual_seed(5)
    flat = task.flat("cpu")
    for values in flat.model.parameters():
        torch.nn.init.normal_(values, 0.0, 0.3)
    if hasattr(flat.model, "ctc_head"):
        torch.nn.init.normal_(flat.model.ctc_head.w.weight, 0.0, 3.0)  # otherwise it may repeat one token
    params = flat.read()
    task.export(params, folder / "run" / "model")
    (folder / "run" / "results.json").touch()
    (folder / "run" / "config.yaml").write_text(yaml.safe_dump(plain(config)), encoding="utf-8")
    return task, data, params


def recogniser(folder: Path, **task: Any) -> dict[str, Any]:
    rows = [(f"u{i}", "s", "a bad cab") for i in range(3)]
    return small_corpus.config(small_corpus.write(folder, train=rows), "train", task={"kind": "recognition", **task})


@pytest.mark.parametrize("tokens", ["characters", "bpe"])
def test_a_recogniser(
    tokens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task, data, params = finished(tmp_path, recogniser(tmp_path, tokens=tokens, vocabulary=9))
    before = {path.name: path.read_bytes() for path in (tmp_path / "run" / "model").iterdir()}
    assert cli.main(["export", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "model.onnx: differs from the model by at most" in said and float(said.split()[-1]) <= TOLERANCE
    after = {path.name: path.read_bytes() for path in (tmp_path / "run" / "model").iterdir()}
    assert after.keys() - before.keys() == {"model.onnx", "stream.py"}
    assert before == {name: after[name] for name in before}

    utterances = data.load(data.client_ids()[0])
    (hypotheses,) = task.transcribe(params, utterances, [task.greedy()], "cpu")
    assert any(hypothesis.text for hypothesis in hypotheses)
    for utterance, hypothesis in zip(utterances.ids, hypotheses, strict=True):
        monkeypatch.setattr(sys, "argv", ["stream.py", str(tmp_path / f"{utterance.removesuffix('.wav')}.wav")])
        runpy.run_path(str(tmp_path / "run" / "model" / "stream.py"))
        assert capsys.readouterr().out.strip() == hypothesis.text.strip()


@pytest.mark.long
def test_a_conformer_says_what_speechbrain_says_of_speech(tmp_path: Path) -> None:
    pytest.importorskip("espeakng_loader", reason="espeak-ng is not installed (pip install fedray[synth])")
    from hyperpyyaml import load_hyperpyyaml

    speakers = {"server": 2, "client": 3, "dev": 1, "test": 2, "test_server": 1}
    options = {f"{name}_speakers": count for name, count in speakers.items()}
    options |= {f"{name}_utterances": 2 for name in speakers} | {"test_utterances": 4}
    settings = small_corpus.config(tmp_path, data={"corpus": "embedded", "root": None, "options": options})
    settings["model"] |= {"attention": "RelPosMHAXL", "d_model": 16, "heads": 2}
    config, source = experiment.load(settings)
    finished(tmp_path, settings)
    model = tmp_path / "run" / "model"
    session = onnxruntime.InferenceSession(to_onnx(tmp_path / "run")[0])
    loaded = load_hyperpyyaml((model / "hyperparams.yaml").read_text(encoding="utf-8"))
    parts = loaded["model"].eval()
    parts.load_state_dict(torch.load(model / "model.pt", weights_only=True))
    manifest = experiment.read_corpus(config.data, source)["test"]
    assert len(manifest) == 8
    for row in manifest:
        rate = soundfile.info(row.path).samplerate
        start, count = round(row.offset * rate), round(row.seconds * rate)
        wave, _ = soundfile.read(row.path, start=start, frames=count, dtype="float32")
        mels = loaded["mel_spectrogram"](torch.from_numpy(wave)).clamp(min=loaded["floor"]).log().T
        mels = mels - mels.mean(0)
        with torch.no_grad():
            hidden = parts["transformer"].encode(parts["front"](mels[None]))
            expected = parts["ctc_head"](hidden).log_softmax(-1).numpy()
        (found,) = session.run(None, {"waveform": wave[None]})
        np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=0)
        assert (found.argmax(-1) == expected.argmax(-1)).all()


@pytest.mark.parametrize("window", [None, 0.2])
def test_a_classifier(window: float | None, tmp_path: Path) -> None:
    keywords.write_corpus(tmp_path, speakers=3)
    changes = {"task": {"kind": "classification", "window": window}, "cohort": {"size": 1}}
    task, data, params = finished(tmp_path, keywords.settings(tmp_path, **changes))
    file, difference = to_onnx(tmp_path / "run")
    assert difference <= TOLERANCE
    session = onnxruntime.InferenceSession(file)
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["labels"]) == task.classes
    rate = int(about["sample_rate"])
    assert int(about["block"]) == (10 * rate if window is None else (17 * 10 + 25) * rate // 1000)  # 18 frames
    if window is None:
        test = data.evaluation("test")
        for utterance, logits in zip(test.ids, task.logits(params, test, "cpu"), strict=True):
            wave, _ = soundfile.read(tmp_path / utterance, dtype="float32")
            found = session.run(None, {"waveform": wave[None]})[0][0]
            np.testing.assert_allclose(found, logits, atol=2e-3)  # a run keeps features in float16


def test_what_cannot_be_exported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"has no config.yaml"):
        to_onnx(tmp_path / "nothing")
    finished(tmp_path, recogniser(tmp_path))
    run = tmp_path / "run"
    with monkeypatch.context() as missing, pytest.raises(ValueError, match=r'pip install "fedray\[onnx\]"'):
        missing.setitem(sys.modules, "onnx", None)
        to_onnx(run)
    with monkeypatch.context() as missing, pytest.raises(ValueError, match=r'pip install "fedray\[onnx\]"'):
        missing.setitem(sys.modules, "onnxruntime", None)
        to_onnx(run)
    with monkeypatch.context() as wrong, pytest.raises(Exception, match=r"model.onnx is not written: its outputs"):
        wrong.setattr("fedray.experiment.handover.TOLERANCE", 0.0)
        to_onnx(run)
    assert not (run / "model" / "model.onnx").exists()

    text = (run / "config.yaml").read_text(encoding="utf-8")
    (run / "config.yaml").write_text(text.replace("ctc_weight: 1.0", "ctc_weight: 0.0"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"task.ctc_weight=0: the CTC head"):
        to_onnx(run)
    (run / "config.yaml").write_text(text.replace("d_model: 8", "d_model: 16"), encoding="utf-8")
    with pytest.raises((ValueError, StorageError), match=r"model.pt does not fit the model"):
        to_onnx(run)
    (run / "model" / "model.pt").unlink()
    with pytest.raises(ValueError, match=r"has no model/model.pt: the run saved another kind of model"):
        to_onnx(run)
    (run / "results.json").unlink()
    with pytest.raises(ValueError, match=r"has no results.json: the run has not finished"):
        to_onnx(run)
