"""Every algorithm that can translate does: a round by hand, personal scores, a memory, and Whisper."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from fedray.core.types import Change
from tests.algorithms import by_hand
from tests.algorithms.by_hand import arrived, client, personal
from tests.training.test_translation import PLAIN, build, settings

LOCAL = {"client": {"lr": 0.01, "batch": 4}, "pretrain": {"steps": 0}}
POOLED = {"kind": "sl", "adamw": {"lr": 0.01, "batch": 4}, "pretrain": {"steps": 0}}
LORA = {"rank": 2, "targets": ["self_att", "ffn"]}
MEMORY = {"kind": "fedmem", "k": [1], "share": [0.99], "temperature": [0.01], "memory": {"keys": "states"}}
WHOLE = {"cohort": {"fraction": 1.0}, "evaluation": {"personal_final": True}}
ALGORITHMS = {
    "fedavg": LOCAL,
    "fedprox": LOCAL,
    "scaffold": LOCAL,
    "ditto": LOCAL,
    "gao": {**LOCAL, "server": {"lr": 0.01, "batch": 4}},
    "fednst": LOCAL,
    "fedlora": {**LOCAL, "lora": LORA},
    "sl": POOLED,
    "nst": POOLED,
}


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_a_round_changes_the_model_and_its_scores_are_of_translations(folder: Path, kind: str) -> None:
    wanted = settings(folder, algorithm={**ALGORITHMS[kind], "kind": kind})
    if kind in ("sl", "nst"):
        wanted["data"]["clients"], wanted["cohort"] = {"by": "pooled"}, {"size": 1}
    algorithm, data, state = by_hand.build(wanted)
    received, one = arrived(algorithm, state), client(data)
    one = client(data, state=algorithm.client_prepare(one, received))
    update = algorithm.client_update(one, received)
    assert math.isfinite(update.metrics["loss"])
    if kind in ("fednst", "nst"):
        assert 0 <= update.metrics["label_bleu"] <= 100 and "label_wer" not in update.metrics
    after = algorithm.server_update(state, Change(update.delta, vectors=update.vectors, population=1, answered=1), 0)
    assert (after.params != state.params).any()
    one = client(data, state=update.state)
    scores = personal(algorithm, one, received, {"dev": data.evaluation("dev")})
    assert 0 <= scores["dev"]["bleu"] <= 100 and "wer" not in scores["dev"]
    assert "tok:zh" in algorithm.signatures["bleu"] and algorithm.best == ("dev/bleu", "max")


def test_a_memory_translates_what_it_has_heard(folder: Path) -> None:
    algorithm, data, state = build(folder, algorithm={**MEMORY, "pretrain": {"steps": 0}}, **WHOLE)
    received, mine = arrived(algorithm, state), data.load(data.client_ids()[0])
    update = algorithm.client_update(client(data), received)
    splits = {"mine": mine, "none": mine.take(mine.rows[:0])}
    scores = personal(algorithm, client(data, state=update.state), received, splits)
    assert scores["mine"]["bleu"] == scores["mine"]["bleu_beam"] == pytest.approx(100) == scores["mine"]["chrf"]
    assert scores["mine"]["bleu_alone"] < 50 and math.isnan(scores["none"]["bleu"])


@pytest.mark.parametrize("searched", [0, 2])
def test_dev_chooses_the_retrieval(folder: Path, searched: int) -> None:
    several = {"k": [1, 4], "share": [0.0, 0.9], "temperature": [0.01, 100.0], "costs": True, "searched": searched}
    algorithm, data, state = build(folder, algorithm={**MEMORY, **several, "pretrain": {"steps": 0}}, **WHOLE)
    received, mine = arrived(algorithm, state), data.load(data.client_ids()[0])
    update = algorithm.client_update(client(data), received)
    dev = personal(algorithm, client(data, state=update.state), received, {"dev": mine})["dev"]
    assert (dev["k"], dev["share"], dev["temperature"]) == (1, 0.9, 0.01), "it knows these by heart"
    assert dev["k=1 lambda=0.9 T=0.01"] == min(dev[name] for name in dev if name.startswith("k="))


def test_whisper_translates(folder: Path) -> None:
    pytest.importorskip("transformers")
    from tests.whisper import SPECIAL, write_checkpoint

    if not (folder / "whisper").exists():
        write_checkpoint(folder / "whisper", special=(*SPECIAL, "<|translate|>"))
    wanted = settings(folder, algorithm={"kind": "fedlora", "pretrain": {"steps": 0}})
    wanted["algorithm"] |= {"lora": {"rank": 4, "targets": ["self_attn.*_proj", "fc[12]"]}}
    wanted["algorithm"]["client"] = {"lr": 0.05, "warmup": 1, "epochs": 12}
    wanted |= {
        "features": {"kind": "whisper", "bins": 80, "normalise": "none"},
        "task": {"kind": "translation", "tokens": "pretrained", "bleu": "zh", "augment": PLAIN, "decode": {"beam": 2}},
        "model": {"kind": "whisper", "folder": str(folder / "whisper"), "seconds": 1.5, "prompt": "translate"},
    }
    algorithm, data, state = by_hand.build(wanted)
    task = algorithm.task
    prompt = task.flat("cpu").model.prompt
    assert task.tokeniser._tokenizer.decode(prompt, skip_special_tokens=False) == "".join(
        (SPECIAL[1], SPECIAL[2], "<|translate|>", SPECIAL[4])
    )
    losses, state = by_hand.play(algorithm, data, state, rounds=2)
    assert losses[1] < losses[0]
    found = algorithm.evaluate(data.evaluation("dev"), arrived(algorithm, state), final=True)
    assert {"bleu", "bleu_beam", "chrf"} <= set(found.metrics) and found.predictions[0]["reference"]
    with pytest.raises(ValueError, match="set task.tokens=pretrained and task.ctc_weight=0"):
        by_hand.build({**wanted, "task": {"kind": "translation", "ctc_weight": 0.5}})
    assert torch.isfinite(torch.from_numpy(state.params)).all()
