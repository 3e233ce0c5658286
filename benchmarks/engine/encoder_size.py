"""A round of an encoder of wav2vec2-base's size, 94 million random parameters, on this machine: seconds and memory.

    python -m benchmarks.engine.encoder_size [--clients 2] [--runs runs/encoder-size]

Needs FEDRAY_SPEECH, the folder that holds speechocean/. Each client is a speaker with about 20 utterances of up to five
seconds; one client actor. `doctor --estimate` predicts the memory of the actor from its own measurement.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from benchmarks import study
from benchmarks.studies.encoders import shortened, watched
from fedray import experiment
from fedray.doctor.estimate import estimate

ARMS: dict[str, dict[str, Any]] = {
    "FedAvg, Adam": {"algorithm": {"kind": "fedavg", "client": {"lr": 1e-4, "batch": 4, "optimizer": "adam"}}},
    "FedAvg, encoder frozen": {
        "algorithm": {"kind": "fedavg", "client": {"lr": 1e-3, "batch": 4, "optimizer": "adam"}},
        "model.frozen": ["^encoder"],
    },
    "FedLoRA, rank 16": {
        "algorithm": {"kind": "fedlora", "lora": {"rank": 16, "alpha": 32}, "client": {"lr": 1e-3, "batch": 4}}
    },
}


def checkpoint(folder: Path, **settings: float) -> Path:
    """A random checkpoint of wav2vec2-base's size. `settings`: of its configuration."""
    if not (folder / "model.safetensors").exists():
        from transformers import Wav2Vec2Config, Wav2Vec2FeatureExtractor, Wav2Vec2Model

        Wav2Vec2Model(Wav2Vec2Config(**settings)).save_pretrained(folder)
        Wav2Vec2FeatureExtractor(return_attention_mask=False).save_pretrained(folder)
    return folder


def overrides(arm: str, clients: int, runs: Path) -> list[str]:
    options = {"train": ["manifest.tsv"], "seconds_column": "seconds", "split_column": "official_split"}
    given = {
        "rounds": 1,
        "data.root": str(shortened(runs / "short", speakers=1)),
        "data.options": {**options, "text_column": "transcript"},
        "data.dev_share": None,
        "data.test_share": None,
        "cohort.fraction": None,
        "cohort.size": clients,
        "model.folder": str(checkpoint(runs / "wav2vec2-base-random")),
        "engine.actors": 1,
        "engine.lanes": 1,
        "task.decode": {"search": "greedy"},
        **ARMS[arm],
    }
    return study.overrides(given)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "encoder-size", seeds=(0,))
    parser.add_argument("--clients", type=int, default=2)
    chosen = parser.parse_args()
    rows, kept = [], {}
    for arm in ARMS:
        given = overrides(arm, chosen.clients, chosen.runs)
        config, source = experiment.load(study.ROOT / "configs/fedavg/encoder.yaml", given)
        config = experiment.check(config, source)
        predicted, *_ = estimate(config, source, print)
        out = chosen.runs / study.folder_name(arm)
        shutil.rmtree(out, ignore_errors=True)
        with watched() as spent:
            results = study.run("configs/fedavg/encoder.yaml", given, out)
        (played,) = study.rounds(out)
        assert predicted.memory is not None
        found = {
            "seconds of the round": played["time/round_s"],
            "MB sent by a client": played["traffic/up_bytes"] / chosen.clients / 1e6,
            "MB of the actor": spent["MB of an actor"],
            "doctor's estimate": predicted.memory / 1e6,
            "of it for activations": predicted.activations / 1e6,
            "CPU s": spent["CPU s"],
        }
        kept[arm] = {**found, "down": results["traffic/down_bytes"]}
        rows.append({"": arm, **{name: f"{value:,.0f}" for name, value in found.items()}})
        print(study.table(rows), flush=True)
    text = (
        f"# An encoder of wav2vec2-base's size\n\nA round of {chosen.clients} clients with about 20 utterances each, "
        f"one actor, batches of four utterances.\n\n{study.table(rows)}"
    )
    study.write("encoder_size", text, {"found": kept}, study.command(parser, chosen), chosen.seeds)


if __name__ == "__main__":
    main()
