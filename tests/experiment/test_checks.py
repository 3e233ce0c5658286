"""Errors that need no data are found before a corpus is read, and before Ray is started."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import fedray
from fedray import cli, experiment
from fedray.config.source import ConfigError
from fedray.data.corpora import CORPORA
from fedray.engine.driver import session
from fedray.experiment.checks import corpus_reader, most_clients
from fedray.experiment.learnable import tell_slow
from fedray.experiment.pretraining import pretrain
from fedray.sweep.study import Study
from tests import keywords

SPEECH = {"algorithm": {"kind": "fedavg"}}
CLIPS = {"algorithm": {"kind": "fedavg"}, "task": {"kind": "classification"}, "model": {"kind": "crnn"}}


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if it reads a corpus or connects to Ray."""

    def fail(*_: Any, **__: Any) -> Any:
        pytest.fail("a corpus was read, or Ray was started")

    for reader in set(CORPORA.values()):
        monkeypatch.setattr(reader, "read", fail)
    monkeypatch.setattr(session, "connect", fail)
    monkeypatch.setattr(session, "parallel", fail)


def written(folder: Path, values: dict[str, Any], **more: Any) -> Path:
    """Write a configuration file for a corpus that exists in name only."""
    data = {"corpus": "tsv", "root": str(folder), "options": {"clients": ["clients.tsv"], "text_column": "text"}}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"data": data, "cohort": {"size": 2}, **values, **more}), encoding="utf-8")
    return path


REFUSED = [
    (
        SPEECH,
        ["model.kind=crnn"],
        "task.kind recognition cannot train CRNN without CTC: set model.kind=conformer or crdnn",
    ),
    (
        CLIPS,
        ["model.kind=conformer"],
        "task.kind classification cannot train Conformer: set model.kind=crnn, audio_cnn or encoder",
    ),
    (
        SPEECH,
        ["features={kind: whisper, bins: 80, normalise: none}"],
        "model.kind conformer needs features.kind=logmel, not whisper",
    ),
    (SPEECH, ["task.ctc_weight=0.5"], "task.ctc_weight below 1 needs a decoder: set model.decoder_layers"),
    (
        SPEECH,
        ["task.ctc_weight=0", "model.decoder_layers=1"],
        "task.ctc_weight=0 trains no CTC: set task.decode.search=attention and task.decode.ctc_weight=0",
    ),
    (SPEECH, ["task.tokens=pretrained"], "task.tokens=pretrained needs a checkpoint: set model.kind=whisper"),
    (SPEECH, ["algorithm=sl"], "algorithm.kind sl trains in one place: set data.clients.by=pooled and cohort.size=1"),
    (SPEECH, ["data.clients.by=pooled"], "cohort.size is 2, but the population has only 1 clients"),
    (SPEECH, ["data.clients={by: iid, count: 1}"], "cohort.size is 2, but the population has only 1 clients"),
    (SPEECH, ["data.corpus=embedded", "cohort.size=61"], "cohort.size is 61, but the population has only 60 clients"),
    (
        SPEECH,
        ["algorithm=fedmem", "rounds=1"],
        "fedmem is judged by personal scores alone: set evaluation.personal_final=true",
    ),
    (
        SPEECH,
        ["algorithm=fedmem", "rounds=1", "evaluation.personal_final=true"],
        "fedmem needs every client in its round: set cohort={size: null, fraction: 1.0, availability: 1.0",
    ),
    *(
        (
            SPEECH,
            ["algorithm=fedmem", "rounds=1", "evaluation.personal_final=true", whole],
            "fedmem needs every client in its round",
        )
        for whole in (
            "cohort={size: null, fraction: 1.0, availability: 0.5}",
            "cohort={size: null, fraction: 1.0, dropout: 0.5}",
        )
    ),
    (SPEECH, ["algorithm=fedavg", "strategy.kind=by_wer"], "algorithm.kind fedavg reports no word error rates"),
    (
        SPEECH,
        ["algorithm=fednst", "data.corruption.label_errors=0.5"],
        "algorithm.kind fednst reads none of the clients' labels",
    ),
    (
        SPEECH,
        ["algorithm=fedavg", "data.labelled.utterances=0.5"],
        "algorithm.kind fedavg trains on every true label, so data.labelled has no effect",
    ),
    (
        SPEECH,
        ["algorithm=fedmem", "rounds=2"],
        "command line: algorithm.kind fedmem trains nothing: set rounds=1, not 2",
    ),
    (
        SPEECH,
        ["algorithm={kind: fedmem, memory: {keys: states}}", "rounds=1"],
        "algorithm.memory.keys states need a decoder",
    ),
    (
        SPEECH,
        ["algorithm={kind: fedlora, averaging: product}", "server_optimizer=adam"],
        "algorithm.averaging=product steps on products, which have no moments: set server_optimizer.kind=sgd",
    ),
    (SPEECH, ["algorithm=fedstar"], "algorithm.kind fedstar trains classifiers: set task.kind=classification"),
    (
        SPEECH,
        ["algorithm=fedmlac"],
        "fedmlac trains classifiers of several sizes: set task.kind=classification and model.kind=crnn",
    ),
    (
        CLIPS,
        ["algorithm=fednst"],
        "algorithm.kind fednst labels speech with its text, so it needs task.kind recognition",
    ),
    (
        CLIPS,
        ["algorithm=nst"],
        "algorithm.kind nst labels speech with its text, so it needs task.kind recognition",
    ),
    (SPEECH, ["data.root=/nothing/here"], "command line: data.root: there is no folder /nothing/here"),
    (SPEECH, ["data.text=/nothing.txt"], "command line: data.text: there is no file /nothing.txt"),
    (SPEECH, ["model.init=/nothing.pt"], "command line: model.init: there is no file /nothing.pt"),
    (SPEECH, ["data.corpus=tvs"], "command line: data.corpus: 'tvs' is not known"),
    (
        SPEECH,
        ["data.options.text_colum=text"],
        "command line: unknown key data.options.text_colum; did you mean data.options.text_column?",
    ),
    (SPEECH, ["imports=[3]"], "command line: imports: 3 is not a module name"),
    (SPEECH, ["imports=[.x]"], "command line: imports: '.x' is not a module name"),
]
WHISPER = {
    "algorithm": {"kind": "fedavg"},
    "model": {"kind": "whisper"},
    "features": {"kind": "whisper", "bins": 80, "normalise": "none"},
    "task": {
        "tokens": "pretrained",
        "ctc_weight": 0,
        "decode": {"search": "attention", "ctc_weight": 0, "lm_weight": 0},
    },
}
REFUSED += [
    (WHISPER, [], "model.folder is missing: set it to a checkpoint"),
    (WHISPER, ["model.folder=/nothing"], "command line: model.folder: there is no folder /nothing"),
    (
        WHISPER,
        ["task.ctc_weight=0.5"],
        "model.kind whisper has its checkpoint's tokens and no CTC: set task.ctc_weight=0",
    ),
]


@pytest.mark.parametrize(
    ("values", "overrides", "words"), REFUSED, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_it_is_refused_before_any_data_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], values: dict[str, Any], overrides: list[str], words: str
) -> None:
    path = written(tmp_path, values)
    with pytest.raises(ConfigError, match=re.escape(words)):
        fedray.run(path, overrides, out=tmp_path / "run")
    for command in (["run", "--dry-run"], ["doctor", "--estimate"]):
        assert cli.main([*command, str(path), *overrides]) == 2
        assert words in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_schedule_warns_before_any_data_are_read(tmp_path: Path) -> None:
    config, source = experiment.load(
        written(tmp_path, SPEECH), ["algorithm.schedule={kind: cumulative, decay_steps: 10}", "rounds=100"]
    )
    with pytest.warns(UserWarning, match="schedule cumulative: the learning rate ends at 1e-149 of its start"):
        experiment.check(config, source)


def test_what_fits_together_gets_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    torch.save({"weight": torch.zeros(1)}, tmp_path / "start.pt")
    loaded, source = experiment.load(written(tmp_path, SPEECH), ["data.root=corpus", "model.init=start.pt"])
    config = experiment.check(loaded, source)
    assert (config.data.root, config.model.settings.init) == (str(tmp_path / "corpus"), str(tmp_path / "start.pt"))
    with pytest.raises(ConfigError, match=f"data.root: there is no folder {tmp_path}/corpus/corpus"):
        experiment.check(loaded, source, tmp_path / "corpus")


@pytest.mark.parametrize(
    ("overrides", "most"),
    [
        ([], None),
        (["data.clients.by=pooled"], 1),
        (["data.clients={by: silos, count: 7}"], 7),
        (["data.corpus=embedded"], 60),
        (["data.corpus=embedded", "data.clients={by: k_speakers}"], None),
    ],
)
def test_how_many_clients_there_can_be(tmp_path: Path, overrides: list[str], most: int | None) -> None:
    config, source = experiment.load(written(tmp_path, SPEECH), overrides)
    assert most_clients(config.data, corpus_reader(config.data, source)) == most


def test_a_sweep_refuses_a_trial_before_any_data_are_read(tmp_path: Path) -> None:
    base = yaml.safe_load(written(tmp_path, SPEECH).read_text())
    study = Study(str(tmp_path / "out"), "base.yaml", {"base.yaml": base}, {}, [], [], str(tmp_path), "dev/wer", 1)
    with pytest.raises(ConfigError, match="task.kind recognition cannot train CRNN"):
        study.config({"model.kind": "crnn"})
    assert study.config({"rounds": 3})[0].rounds == 3


def test_pre_training_too(tmp_path: Path) -> None:
    given = keywords.settings(tmp_path)
    given = {"data": given["data"], "features": given["features"]}
    with pytest.raises(ConfigError, match="data.root: there is no folder /nothing"):
        pretrain(given, ["data.root=/nothing"], out=tmp_path / "out")
    with pytest.raises(ConfigError, match="unknown key data.options.clas"):
        pretrain(given, ["data.options.clas=x"], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_slow_arithmetic_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    config, _ = experiment.load("fedavg/keywords.yaml", ["algorithm.client.precision=bf16"])
    for instructions, gpus, told in (("AVX2", 0.0, True), ("AVX512", 0.0, False), ("AVX2", 0.5, False)):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda found=instructions: found)
        tell_slow(config, gpus)
        assert ("bf16 is several times slower" in capsys.readouterr().err) is told
