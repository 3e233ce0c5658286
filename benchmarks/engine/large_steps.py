"""Memory of a client of an encoder with 94 million parameters, by the settings that make its steps smaller.

    python -m benchmarks.engine.large_steps [--runs runs/encoder-size]

Needs FEDRAY_SPEECH, the folder that holds speechocean/. Two clients with about 20 utterances of up to five seconds each
train with Adam, batches of four, in a process of its own for each setting: the peak of the process's memory beside what
`doctor --estimate` predicts for an actor, seconds, and the loss. Nothing is random in the steps (no dropout, no masks,
all layers), so that the settings change the losses only by rounding.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks import study
from benchmarks.engine import lane_profile
from benchmarks.engine.encoder_size import checkpoint, overrides
from benchmarks.engine.scale import private
from fedray import experiment
from fedray.engine.actors.gpu import keep_activations, set_up
from fedray.experiment.memory import activation_bytes, actor_bytes
from fedray.runs.client_states import ClientStore

ARM, CLIENTS = "FedAvg, Adam", 2
DROPOUTS = ("hidden_dropout", "attention_dropout", "activation_dropout", "feat_proj_dropout", "final_dropout")
STILL = dict.fromkeys(("layerdrop", "mask_time_prob", *DROPOUTS), 0.0)
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "micro_batch: 1": {"micro_batch": 1},
    "recompute": {"recompute": True},
    "precision: bf16": {"precision": "bf16"},
    "all three": {"micro_batch": 1, "recompute": True, "precision": "bf16"},
}


def play(setting: str, runs: Path) -> dict[str, Any]:
    """The training of the clients in this process."""
    more = study.overrides({f"algorithm.client.{key}": value for key, value in SETTINGS[setting].items()})
    folder = checkpoint(runs / "wav2vec2-base-still", **STILL)
    alone = ["engine.vectorise=never", f"model.folder={folder}"]
    config, source = experiment.load(
        study.ROOT / "configs/fedavg/encoder.yaml", [*overrides(ARM, CLIENTS, runs), *alone, *more]
    )
    config = experiment.check(config, source)
    data, _ = experiment.build_data(config, source)
    program = experiment.build_program(config, data, ClientStore(runs / "states"), 0)
    keep_activations(program.large)
    place, broadcast = lane_profile.workplace(program)
    peak, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            peak[0] = max(peak[0], private())

    thread = threading.Thread(target=watch)
    thread.start()
    since = time.perf_counter()
    result = lane_profile.lane(program, CLIENTS, 0).run(place, broadcast, broadcast)
    seconds = time.perf_counter() - since
    over.set()
    thread.join()
    assert not result.failures, result.failures
    predicted = actor_bytes(program, activations=activation_bytes(program))
    # Of an actor, the broadcast lies in Ray's shared memory.
    found = {"peak": peak[0] - broadcast.params.nbytes, "predicted": predicted, "seconds": seconds}
    return {**found, "loss": result.partial.metrics["loss"]}


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "encoder-size", seeds=(0,))
    parser.add_argument("--setting", choices=list(SETTINGS), help="only this one, in this process; writes no page")
    chosen = parser.parse_args()
    if chosen.setting is not None:
        set_up(0.0)
        print(json.dumps(play(chosen.setting, chosen.runs)))
        return
    found = {}
    for setting in SETTINGS:
        command = [sys.executable, "-m", __spec__.name, "--setting", setting, "--runs", str(chosen.runs)]
        done = subprocess.run(
            command,
            cwd=study.ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            text=True,
            stdout=subprocess.PIPE,
            check=True,
        )
        found[setting] = json.loads(done.stdout.splitlines()[-1])
        print(setting, found[setting], flush=True)
    rows = [
        {
            "setting": setting,
            "peak (MB)": f"{one['peak'] / 1e6:,.0f}",
            "predicted (MB)": f"{one['predicted'] / 1e6:,.0f}",
            "predicted / peak": f"{one['predicted'] / one['peak']:.2f}",
            "seconds": f"{one['seconds']:.0f}",
            "loss": f"{one['loss']:.4f}",
        }
        for setting, one in found.items()
    ]
    text = f"""# Smaller steps of a large model

Two clients of a random encoder of wav2vec2-base's size, 94 million parameters, all trained with Adam on about 20
utterances each of up to five seconds, in batches of four, without dropout, masks and layers left out. *Peak*: of the
process's own memory, without the broadcast, which lies in Ray's shared memory. *Predicted*: what
`fedray doctor --estimate` says of an actor.

{study.table(rows)}"""
    print(text)
    study.write("large_steps", text, {"found": found}, study.command(parser, chosen), chosen.seeds)


if __name__ == "__main__":
    main()
