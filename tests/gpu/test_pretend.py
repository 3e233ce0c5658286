"""Every algorithm on a pretend device: none forgets to move a tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedray.core.parameters import FlatModel
from fedray.engine.actors import gpu_trials
from tests.gpu.checks import algorithms
from tests.gpu.federation import Federation, sections
from tests.gpu.pretend import DEVICE, pretending
from tests.gpu.toys import Size, federation
from tests.whisper import BINS, write_checkpoint

SMALL = Size(clients=2, utterances=3, letters=(3, 5), words=3, alphabet=3)
FIRST = ("fedavg crnn", "fedlora conformer", "fedmem conformer", "fedmlac crnn", "fednst conformer")  # the rest: long


def cases() -> list[Any]:
    return [
        pytest.param(case, id=name, marks=[pytest.mark.long] * (name not in FIRST))
        for name, case in algorithms.cases().items()
    ]


@pytest.mark.parametrize("case", cases())
def test_an_algorithm_moves_all_that_it_computes_with(case: dict[str, Any]) -> None:
    data = federation(Size(**{**vars(SMALL), "labelled": case.pop("labelled", None)}))
    case = {"model": algorithms.CONFORMER, "task": {"kind": "recognition"}, "rounds": 1} | case
    case["algorithm"] = {**case["algorithm"], "pretrain": {"steps": 2, "warmup": 1, "batch": 2}}
    play(case, data)


def test_attention_search_moves_all_that_it_computes_with() -> None:
    task = {"kind": "recognition", "ctc_weight": 0.3, "decode": {"search": "attention", "beam": 2}}
    model = {**algorithms.CONFORMER, "decoder_layers": 1}
    play({"model": model, "task": task, "algorithm": {"kind": "fedavg", "pretrain": {"steps": 0}}}, federation(SMALL))


@pytest.mark.long
def test_whisper_moves_all_that_it_computes_with(tmp_path: Path) -> None:
    task = {"kind": "recognition", "tokens": "pretrained", "ctc_weight": 0.0}
    task["decode"] = {"search": "attention", "beam": 2, "ctc_weight": 0.0}
    values = {
        "model": {"kind": "whisper", "folder": str(write_checkpoint(tmp_path / "whisper"))},
        "task": task,
        "features": {"kind": "whisper", "bins": BINS, "normalise": "none"},
        "algorithm": {"kind": "fedavg", "pretrain": {"steps": 0}},
    }
    play(values, federation(Size(**{**vars(SMALL), "bins": BINS, "clients": 1})))


def play(values: dict[str, Any], data: Any) -> None:
    with pretending():
        played = Federation(sections(values), data, DEVICE)
        assert played.workplace.program.algorithm.task.flat(DEVICE).values.device.type == DEVICE
        assert played.round()
        assert played.score(final=True)
        played.personal("c0")


def test_a_broadcast_is_uploaded_once_and_subtracted_there(monkeypatch: pytest.MonkeyPatch) -> None:
    uploads, tensor = list[int](), torch.tensor

    def counted(values: Any, *rest: Any, **named: Any) -> torch.Tensor:
        uploads.append(len(values))
        return tensor(values, *rest, **named)

    with pretending():
        flat = FlatModel(torch.nn.Linear(3, 2, device=DEVICE))
        monkeypatch.setattr("fedray.core.parameters.torch.tensor", counted)
        broadcast, own = np.arange(8, dtype=np.float32), np.ones(8, np.float32)
        broadcast.flags.writeable = False
        for client in range(3):
            flat.load(broadcast)
            flat.values[:2] += client
            assert flat.difference(broadcast).tolist() == [client] * 2 + [0] * 6
        assert uploads == [8]
        flat.load(own)  # a client's own vector may change: it is uploaded each time
        own[0] = 5
        flat.load(own)
        assert uploads == [8, 8, 8] and flat.difference(own).tolist() == [0] * 8


def test_the_pretended_device_refuses_what_a_gpu_refuses() -> None:
    with pretending():
        there, here = torch.arange(6.0, device=DEVICE).view(2, 3), torch.ones(2, 3)
        with pytest.raises(RuntimeError, match="expected all tensors to be on the same device"):
            there + here
        with pytest.raises(RuntimeError, match="expected all tensors to be on the same device"):
            torch.cat([there, here])
        with pytest.raises(RuntimeError, match="generator"):
            torch.randn(3, device=DEVICE, generator=torch.Generator())
        with pytest.raises(RuntimeError, match="numpy"):
            there.numpy()
        assert (there + torch.tensor(1.0)).cpu().tolist() == [[1, 2, 3], [4, 5, 6]]
        assert there[torch.tensor([1])].tolist() == [[3, 4, 5]] and int(there.max()) == 5
        for name, trial in gpu_trials.TRIALS.items():
            if name != "free memory":
                trial(DEVICE)
