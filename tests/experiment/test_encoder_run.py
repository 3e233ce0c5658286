"""The shipped configurations for pre-trained encoders need `model.folder` and `data` alone.

Each is run for a round on a tiny random checkpoint: the same bits for one and for three actors, after the death of one,
resumed, and with clients side by side.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import fedray
from fedray.runs.folder import RunFolder
from fedray.storage.cache import file_hash
from tests.algorithms.test_encoder_algorithms import write_corpus
from tests.engine.runs import an_actor_dies, cut_short, same

transformers = pytest.importorskip("transformers")
from tests.encoders import write_encoder, write_vocabulary  # noqa: E402 - it needs transformers
from tests.whisper import write_checkpoint  # noqa: E402

pytestmark = pytest.mark.usefixtures("in_process")
CONFIGS = {  # configuration -> checkpoint
    "fedavg/encoder": "letters",
    "fedavg/encoder_keywords": "hubert",
    "fedlora/encoder": "letters",
    "fednst/encoder": "letters",
    "fedavg/whisper": "whisper",
    "fedlora/whisper": "whisper",
}
FIRST = ("fedavg/encoder", "fedlora/whisper")
SMALL = [
    *("rounds=1", "cohort.fraction=0.8", "data.dev_share=0.2", "data.test_share=0.2", "evaluation.shards=2"),
    *("engine.lanes=4", "engine.cpus_per_client=0.3"),
]
MORE = {"fednst/encoder": ["data.server.share=0.2", "algorithm.pretrain.steps=2"]}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.tsv, as its only table."""
    folder = write_corpus(tmp_path_factory.mktemp("tones"))
    with (folder / "manifest.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    columns = ("path", "speaker", "text", "label")
    lines = ["\t".join(columns), *("\t".join(row[name] for name in columns) for row in rows)]
    (folder / "train.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("checkpoints")
    return {
        "letters": write_vocabulary(write_encoder(folder / "letters", "wav2vec2", "ctc", layerdrop=0.1), "ABCD"),
        "hubert": write_encoder(folder / "hubert", "hubert"),
        "whisper": write_checkpoint(folder / "whisper"),
    }


def overrides(name: str, corpus: Path, checkpoints: dict[str, Path], actors: int, *more: str) -> list[str]:
    needed = [f"model.folder={checkpoints[CONFIGS[name]]}", f"data.root={corpus}"]
    return [*needed, *SMALL, *MORE.get(name, []), f"engine.actors={actors}", *more]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name not in FIRST)) for name in CONFIGS]
)
def test_a_round_with_one_and_three_actors(
    name: str, corpus: Path, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    one, three = (
        fedray.run(name, overrides(name, corpus, checkpoints, actors), out=tmp_path / str(actors)) for actors in (1, 3)
    )
    same(one.folder, three.folder, 1)
    (row,) = RunFolder(one.folder).rows("metrics.jsonl")
    assert row["train/loss"] > 0 and row["clients/failed"] == 0
    described = json.loads((one.folder / "run.json").read_text(encoding="utf-8"))
    weights = checkpoints[CONFIGS[name]] / "model.safetensors"
    assert described["checkpoint"]["files"]["model.safetensors"] == file_hash(weights)
    model = {
        "encoder": transformers.AutoModelForCTC,
        "encoder_keywords": transformers.AutoModelForAudioClassification,
        "whisper": transformers.WhisperForConditionalGeneration,
    }[name.split("/")[1]]
    model.from_pretrained(one.folder / "model")


@pytest.mark.parametrize("name", ["fedavg/encoder", pytest.param("fedlora/encoder", marks=pytest.mark.long)])
def test_a_resume_gives_the_same_bits(name: str, corpus: Path, checkpoints: dict[str, Path], tmp_path: Path) -> None:
    straight = fedray.run(name, overrides(name, corpus, checkpoints, 1, "rounds=2"), out=tmp_path / "straight").folder
    folder = shutil.copytree(straight, tmp_path / "run")
    cut_short(folder, 2)
    fedray.resume(folder)
    same(folder, straight, 2)


def test_another_checkpoint_is_no_resume(corpus: Path, tmp_path: Path) -> None:
    mine = write_encoder(tmp_path / "mine", "wav2vec2")
    run = fedray.run("fedavg/encoder", overrides("fedavg/encoder", corpus, {"letters": mine}, 1), out=tmp_path / "run")
    write_encoder(mine, "wav2vec2", layerdrop=0.2)
    with pytest.raises(ValueError, match="the checkpoint of model.folder has changed"):
        fedray.resume(run.folder, ["rounds=2"])


def test_clients_side_by_side(corpus: Path, checkpoints: dict[str, Path], tmp_path: Path) -> None:
    """Stacked clients draw other dropout masks than clients alone, but the same ones for any number of actors."""
    beside = ["model.layer_drop=0", "engine.vectorise=2"]
    one, three = (
        fedray.run(
            "fedavg/encoder",
            overrides("fedavg/encoder", corpus, checkpoints, actors, *beside),
            out=tmp_path / str(actors),
        )
        for actors in (1, 3)
    )
    same(one.folder, three.folder, 1)


@pytest.mark.nightly
def test_three_actors_of_which_one_is_killed(
    corpus: Path, checkpoints: dict[str, Path], tmp_path: Path, on_ray: None
) -> None:
    given: Any = overrides("fedlora/encoder", corpus, checkpoints, 1, "rounds=3")
    straight = fedray.run("fedlora/encoder", given, out=tmp_path / "straight").folder
    folder = tmp_path / "run"
    killed = an_actor_dies(folder)
    fedray.run("fedlora/encoder", [*given, "engine.actors=3"], out=folder)
    assert killed
    same(folder, straight, 3)
