"""The sound files to damage, each with its reader."""

from __future__ import annotations

import functools
import io
import json
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from rich.console import Console

from fedray import experiment, report
from fedray.core.parallel import serial
from fedray.core.types import ServerState
from fedray.data.corpora import CORPORA
from fedray.data.devices import CONVERTERS
from fedray.data.devices.tables import Missing
from fedray.data.features import audio
from fedray.models.weights import read_weights
from fedray.runs.client_states import Written
from fedray.runs.folder import RunFolder
from fedray.runs.progress import ClientRecord, Progress
from fedray.storage import serialize
from tests.bad_input.corpus import CLIENTS, CONFIG, RATE, sound
from tests.bad_input.traces import PHONES, TRACE
from tests.report import folders

FORMATS = {
    "WAV": ("PCM_16", "PCM_24", "FLOAT", "ULAW", "IMA_ADPCM", "MS_ADPCM", "GSM610"),
    "RF64": ("PCM_16",),
    "W64": ("PCM_16",),
    "CAF": ("PCM_16",),
    "SDS": ("PCM_16",),
    "MAT4": ("PCM_16",),
    "FLAC": ("PCM_16",),
    "OGG": ("VORBIS", "OPUS"),
    "MP3": ("MPEG_LAYER_III",),
    "AIFF": ("PCM_16", "GSM610"),
    "NIST": ("PCM_16",),
    "AU": ("PCM_16",),
}


@dataclass(frozen=True)
class Target:
    """A file to damage. `read` gets the folder, in which the file `name` is damaged and `others` are whole."""

    name: str
    content: bytes
    read: Callable[[Path], object]
    others: tuple[tuple[str, bytes], ...] = ()

    def prepare(self, folder: Path) -> None:
        """Write the files that stay whole."""
        for name, content in self.others:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        (folder / self.name).parent.mkdir(parents=True, exist_ok=True)


@functools.cache
def targets() -> dict[str, Target]:
    """All targets, by kind."""
    found = {f"audio: {form} {subtype}": _audio(form, subtype) for form in FORMATS for subtype in FORMATS[form]}
    return found | _lists() | _talks() | _tables() | _states() | _runs() | _traces()


def _audio(form: str, subtype: str) -> Target:
    name = f"a.{form.lower()}"

    def read(folder: Path) -> None:
        problems = []
        for use in (
            lambda path: audio.read(path, RATE),
            lambda path: audio.read(path, RATE, 0.05, 0.1),
            audio.duration,
            audio.measure,
            lambda path: audio.check(path, 0.2, RATE),
        ):
            try:
                use(folder / name)
            except audio.AudioError as problem:  # the next use may meet another fault
                problems.append(problem)
        for problem in problems:
            raise problem

    rate = 48000 if subtype == "OPUS" else RATE
    return Target(name, sound(0.2, rate, subtype, form), read)


def _corpus(kind: str, **options: Any) -> Callable[[Path], object]:
    return lambda folder: CORPORA[kind](**options).read(folder, 0, folder, serial)


def _lists() -> dict[str, Target]:
    sounds = tuple((name, sound()) for name in ("a0.wav", "b0.wav"))
    csv = 'ID,duration,wav,spk_id,wrd\nu0,0.2,$data_root/a0.wav,ann,one\nu1,0.2,$data_root/b0.wav,bob,"two, three"\n'
    items = {
        f"u{row}": {"wav": f"{{data_root}}/{file}", "duration": 0.2, "spk_id": "ann", "wrd": "one"}
        for row, (file, _) in enumerate(sounds)
    }
    nemo = [{"audio_filepath": file, "duration": 0.2, "text": "one", "speaker": "ann"} for file, _ in sounds]
    source = {"type": "file", "channels": [0], "source": "a0.wav"}
    recording = {"id": "r", "sources": [source], "sampling_rate": RATE, "num_samples": 3200, "duration": 0.2}
    said = {"id": "u", "recording_id": "r", "start": 0.0, "duration": 0.2, "text": "one", "speaker": "ann"}
    cut = {"id": "c", "start": 0.0, "duration": 0.2, "channel": 0, "recording": recording, "supervisions": [said]}
    kaldi = {
        "wav.scp": "r0 a0.wav\nr1 b0.wav\n",
        "segments": "u0 r0 0.0 0.1\nu1 r1 0.05 0.2\n",
        "utt2spk": "u0 ann\nu1 bob\n",
        "text": "u0 one\nu1 two three\n",
    }
    tsv = _corpus("tsv", train=["list.tsv"], text_column="text")
    found = {
        "table: tsv": Target("list.tsv", CLIENTS.encode(), tsv, sounds),
        "SpeechBrain: csv": Target("list.csv", csv.encode(), _corpus("speechbrain", train=["list.csv"]), sounds),
        "SpeechBrain: json": Target(
            "list.json", json.dumps(items).encode(), _corpus("speechbrain", train=["list.json"]), sounds
        ),
        "NeMo": Target("list.jsonl", _lines(nemo), _corpus("nemo", train=["list.jsonl"]), sounds),
        "Lhotse": Target("cuts.jsonl", _lines([cut]), _corpus("lhotse", train=["cuts.jsonl"]), sounds),
    }
    for file in kaldi:
        others = tuple((f"kaldi/{name}", text.encode()) for name, text in kaldi.items() if name != file)
        reader = _corpus("kaldi", train=["kaldi"])
        found[f"Kaldi: {file}"] = Target(f"kaldi/{file}", kaldi[file].encode(), reader, (*sounds, *others))
    return found


def _talks() -> dict[str, Target]:
    """The lists of CoVoST 2, MuST-C and GigaSpeech."""
    found = {}
    ted = "".join(f"- {{duration: 0.1, offset: {start}, speaker_id: spk.1, wav: a0.wav}}\n" for start in (0.0, 0.1))
    talks = {"train.yaml": ted, "train.en": "one\ntwo three\n", "train.zh": "一\n二三\n"}
    for file in talks:
        others = [(f"data/train/txt/{name}", text.encode()) for name, text in talks.items() if name != file]
        others.append(("data/train/wav/a0.wav", sound()))
        reader = _corpus("mustc", dev=[], test=[])
        found[f"MuST-C: {file}"] = Target(f"data/train/txt/{file}", talks[file].encode(), reader, tuple(others))
    said = {"sid": "u", "begin_time": 0.0, "end_time": 0.1, "subsets": ["{XS}"], "text_tn": "ONE <COMMA> TWO"}
    giga = {"audios": [{"aid": "r", "path": "a0.wav", "category": "Arts", "segments": [said, said | {"sid": "v"}]}]}
    found["GigaSpeech"] = Target(
        "GigaSpeech.json",
        json.dumps(giga).encode(),
        _corpus("gigaspeech", train="XS", dev=None, test=None),
        (("a0.wav", sound()),),
    )
    clips = "client_id\tpath\tsentence\taccent\n" + "".join(f"{clip}\t{clip}.mp3\tOne.\tus\n" for clip in "abc")
    pairs = 'path\ttranslation\tsplit\na.mp3\t一。\ttrain\nb.mp3\t一\\"。\tdev\nc.mp3\t一\ttest\n'
    common = {"en/validated.tsv": clips, "en/covost_v2.en_zh-CN.tsv": pairs}
    for file in common:
        others = [(name, text.encode()) for name, text in common.items() if name != file]
        others += [(f"en/clips/{clip}.mp3", sound()) for clip in "abc"]
        found[f"CoVoST 2: {file}"] = Target(file, common[file].encode(), _corpus("covost2"), tuple(others))
    return found


def _lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _tables() -> dict[str, Target]:
    columns = {"audio": [{"bytes": sound(), "path": "a.wav"}] * 2, "text": ["one", "two"], "speaker": ["ann", "bob"]}
    parquet = io.BytesIO()
    pq.write_table(pa.table(columns), parquet)
    arrow = io.BytesIO()
    with pa.ipc.new_stream(arrow, pa.table(columns).schema) as stream:
        stream.write_table(pa.table(columns))
    corpus = CORPORA["huggingface"](train=["train"], text_column="text", speaker_column="speaker")

    def reader(folder: Path) -> None:
        for utterance in corpus.read(folder, 0, folder, serial)["train"]:
            audio.read(utterance.path, RATE)

    return {
        "Hugging Face: Parquet": Target("train-00000-of-00001.parquet", parquet.getvalue(), reader),
        "Hugging Face: Arrow": Target("train-00000-of-00001.arrow", arrow.getvalue(), reader),
        "configuration": Target("config.yaml", CONFIG.encode(), _configuration),
    }


def _configuration(folder: Path) -> None:
    config, source = experiment.load(folder / "config.yaml", [])
    experiment.check(config, source)


def _states() -> dict[str, Target]:
    state = {"a": np.arange(20, dtype=np.float32), "b": [1, 2.0, None, "text"], "c": {"d": b"bytes"}}
    weights = io.BytesIO()
    torch.save({"weight": torch.ones(3, 4), "bias": torch.zeros(4)}, weights)
    return {
        "client state": Target("state.pt", serialize.dumps(state), lambda folder: serialize.load(folder / "state.pt")),
        "weights": Target("weights.pt", weights.getvalue(), lambda folder: read_weights(folder / "weights.pt")),
    }


def _traces() -> dict[str, Target]:
    """Device traces; those that are pickles come in every pickle protocol."""
    behaviour = {n: {"active": [1, 50], "inactive": [9, 70], "finish_time": 86400, "model": "m"} for n in range(3)}
    states = ("battery_charged_on", "wifi", "screen_lock", "83.0%", "screen_unlock")
    messages = "".join(f"2020-01-28 0{hour}:00:00\t{state}\n" for hour, state in enumerate(states))
    users = json.dumps({name: {"messages": messages, "model": "m"} for name in ("ann", "bob")})

    def target(kind: str, content: bytes) -> Target:
        return Target("trace", content, lambda folder: CONVERTERS[kind](folder / "trace", Missing()))

    found = {f"FedScale: capacity, {p}": target("fedscale", pickle.dumps({**TRACE, 2: TRACE[1]}, p)) for p in range(6)}
    found |= {f"FedScale: behaviour, {p}": target("fedscale", pickle.dumps(behaviour, p)) for p in range(6)}
    windows = b"device,start_h,end_h,period_h\nann,22,24,24\nann,0,6,24\nbob,1,2,48\n"
    listed = {"devices: table": target("table", PHONES.encode()), "devices: windows": target("table", windows)}
    return found | listed | {"FLASH": target("flash", users.encode())}


def _runs() -> dict[str, Target]:
    """Every file of a run folder that reports read, and every file of a checkpoint."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = folders.write(Path(scratch) / "run")
        clients = {"ann": ClientRecord(Written(1, 9, "ab"), rounds=1)}
        progress = Progress(ServerState(np.ones(7, np.float32)), 1, clients)
        run = RunFolder(folder)
        run.save(progress)
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found = {}
    for name in files:
        if name.endswith((".lock", ".fedray")):
            continue
        others = tuple((other, content) for other, content in files.items() if other != name)
        read = _checkpoint if name.startswith("checkpoints/") else _report
        found[f"run folder: {name}"] = Target(name, files[name], read, others)
    return found


def _report(folder: Path) -> None:
    found = report.read(folder)
    found.table(Console(width=200))
    found.worst()
    for run in found.runs:
        assert run.clients is not None and run.predictions is not None


def _checkpoint(folder: Path) -> None:
    RunFolder(folder).load(1)
