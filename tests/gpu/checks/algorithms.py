"""Two rounds of every algorithm over four clients: the processor against the device, and the device against itself."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from fedray.core.types import ServerState
from fedray.data.federation.speech_data import SpeechData
from tests.gpu.checks.models import without_tf32
from tests.gpu.federation import Federation, sections
from tests.gpu.record import Item, Missed, Values, Where
from tests.gpu.toys import Size, federation

TITLE = "Algorithms: two rounds over four clients"
LIMIT = 0.02
# For `side by side`. In float64 both are equal (tests/training/test_together.py). In float32 two rounds of a CRDNN with
# batch norm turn a rounding error into 5 %, and its compiled loops and its modules differ as much.
GROUPED = 0.2
ABOUT = (
    "Without dropout and SpecAugment, which draw other numbers on other devices, and without TF32: `parameters` is the "
    "norm of the difference between device and processor by the norm of what the rounds changed, `states` the same for "
    "everything else that a run keeps (clients' states, the server's extra state), `side by side` the largest of both "
    "with three clients at a time on the device (`engine.vectorise: 3`). All start from a model of the processor. "
    f"A row fails above {LIMIT:g}, or {GROUPED:g} side by side. `same bits` compares two runs on the device as fedray "
    "plays them, with dropout and SpecAugment; `differs in` names the first things that differ. fedray promises the "
    "same bits on a GPU up to what CUDA does deterministically, and the backward pass of CTC is not."
)
OPENS_DEVICE = True
SECONDS = 120
ROUNDS = 2
TINY = ("fedavg conformer", "fednst crdnn", "fedlora conformer", "scaffold crnn", "fedmlac crnn")

CONFORMER = {"kind": "conformer", "d_model": 32, "layers": 1, "ffn": 64, "kernel": 7}
CRDNN = {"kind": "crdnn", "channels": [8, 16], "rnn_neurons": 32, "dnn_neurons": 32}
CLASSIFY = {"kind": "classification"}
JOINT = {"kind": "recognition", "ctc_weight": 0.3}
SGD = {"lr": 0.1, "batch": 3, "epochs": 1, "clip": 5}
SERVER = {"lr": 0.1, "batch": 3, "utterances": 4, "clip": 5}
PRETRAIN = {"steps": 20, "warmup": 5, "batch": 3}
NONE = {"steps": 0}


def cases() -> dict[str, dict[str, Any]]:
    """The sections of a configuration that differ from the defaults, by name."""
    nst = {"kind": "fednst", "client": SGD, "server": SERVER, "pretrain": PRETRAIN, "alpha": 0.3}
    gao = {"kind": "gao", "client": SGD, "server": SERVER, "pretrain": PRETRAIN, "central_utterances": 4}
    lora = {"kind": "fedlora", "client": {"lr": 1e-3, "warmup": 2, "batch": 3}, "pretrain": PRETRAIN}
    crnn = {"kind": "crnn", "size": "lite"}
    found: dict[str, dict[str, Any]] = {
        "fedavg conformer": {"algorithm": {"kind": "fedavg", "client": SGD, "pretrain": PRETRAIN}},
        "fedavg conformer attention": {
            "algorithm": {"kind": "fedavg", "client": SGD, "pretrain": PRETRAIN},
            "model": {**CONFORMER, "decoder_layers": 1},
            "task": JOINT,
        },
        "fedavg crdnn": {"algorithm": {"kind": "fedavg", "client": SGD, "pretrain": PRETRAIN}, "model": CRDNN},
        "fednst conformer": {"algorithm": nst},
        "fednst crdnn": {"algorithm": nst, "model": CRDNN},
        "gao crdnn by_wer": {"algorithm": gao, "model": CRDNN, "strategy": {"kind": "by_wer"}},
        "fedlora conformer": {"algorithm": lora},
        "fedlora conformer product": {"algorithm": {**lora, "averaging": "product"}},
        "fedmem conformer": {"algorithm": {"kind": "fedmem", "pretrain": PRETRAIN}},
    }
    for kind in ("fedavg", "fedprox", "scaffold", "ditto", "fedper", "fedrep", "fedbabu", "moon", "feddyn", "fedntd"):
        algorithm = {"kind": kind, "client": SGD, "pretrain": NONE}
        found[f"{kind} crnn"] = {"algorithm": algorithm, "model": crnn, "task": CLASSIFY}
    mlac = {"kind": "fedmlac", "sizes": ["base", "mid"], "client": SGD}
    found["fedmlac crnn"] = {"algorithm": mlac, "model": crnn, "task": CLASSIFY}
    star = {"kind": "fedstar", "client": {"lr": 1e-3, "batch": 4, "optimizer": "sgd", "clip": None}}
    windows = {"model": {"kind": "audio_cnn"}, "task": {**CLASSIFY, "window": 0.5}}
    found["fedavg audio_cnn"] = {"algorithm": {"kind": "fedavg", "client": SGD, "pretrain": NONE}, **windows}
    found["fedbn audio_cnn"] = {"algorithm": {"kind": "fedbn", "client": SGD, "pretrain": NONE}, **windows}
    norms = {"kind": "fedbn", "client": SGD, "pretrain": PRETRAIN}
    found["fedbn crdnn"] = {"algorithm": norms, "model": CRDNN}
    found["fedstar audio_cnn"] = {"algorithm": star, **windows, "labelled": 0.5}
    return found


def items(where: Where) -> Iterator[Item]:
    for name, case in cases().items():
        if not where.tiny or name in TINY:
            yield name, _work(case, where)


def _work(case: Mapping[str, Any], where: Where) -> Callable[[], Values]:
    return lambda: _compare(dict(case), where)


def _compare(case: dict[str, Any], where: Where) -> Values:
    data = federation(Size(labelled=case.pop("labelled", None)))
    case = {"model": CONFORMER, "task": {"kind": "recognition"}, "rounds": ROUNDS} | case
    here = still(case)
    with without_tf32():
        reference = Federation(sections(here), data, "cpu")
        start = reference.state
        _play(reference)
        there = _play(Federation(sections(here), data, where.device, start))
        grouped = _play(Federation(sections(here), data, where.device, start, together=3))
    before = {"params": start.params}
    errors = _differences(reference.numbers(), there.numbers(), before)
    values: Values = {"parameters": errors.pop("params", 0.0), "states": max(errors.values(), default=0.0)}
    apart = _differences(reference.numbers(), grouped.numbers(), before)
    values |= {"side by side": max(apart.values()), "score": _first(there.score())}
    values |= _bits(case, data, where, start)
    if not values["side by side"] <= GROUPED:
        raise Missed(f"three clients side by side differ by more than {GROUPED:g}", values)
    if not max(values["parameters"], values["states"]) <= LIMIT:
        worst = max(errors, key=lambda name: errors[name], default="params")
        raise Missed(f"device and processor differ by more than {LIMIT:g} (states: most in {worst})", values)
    return values


def still(case: Mapping[str, Any]) -> dict[str, Any]:
    """The case without dropout and SpecAugment."""
    still = copy.deepcopy(dict(case))
    still["model"]["dropout"] = 0.0
    still["task"]["augment"] = {"time_masks": 0, "frequency_masks": 0}
    return still


def _bits(case: Mapping[str, Any], data: SpeechData, where: Where, start: ServerState) -> Values:
    once, again = (_play(Federation(sections(case), data, where.device, start)).numbers() for _ in range(2))
    differing = [name for name in once if not np.array_equal(once[name], again.get(name), equal_nan=True)]
    return {"same bits": "yes" if not differing else "no", "differs in": ", ".join(differing[:3])}


def _play(played: Federation) -> Federation:
    for _ in range(ROUNDS):
        played.round()
    return played


def _differences(
    here: Mapping[str, np.ndarray], there: Mapping[str, np.ndarray], before: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """For each float array, the norm of the difference divided by the norm of the change from `before`."""
    found = {}
    for name, array in here.items():
        if array.dtype.kind != "f":
            continue
        if array.shape != there[name].shape:
            raise ValueError(f"{name} has shape {array.shape} here, {there[name].shape} on the device")
        error = float(np.linalg.norm(there[name].astype(np.float64) - array))
        scale = float(np.linalg.norm(array.astype(np.float64) - before.get(name, 0.0)))
        found[name] = error / scale if scale else error
    return found


def _first(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in list(metrics.items())[:2])
