"""Loss and gradients of every model: the processor in float64 against the device in float64 and in float32."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from speechbrain.nnet.attention import LocationAwareAttention, RelPosEncXL
from torch import Tensor, nn
from torch.nn import functional

from fedray.data.features.dataset import Batch, collate
from fedray.training.task import Targets, Task
from tests.gpu.federation import sections, task_of
from tests.gpu.record import Item, Missed, Values, Where
from tests.gpu.toys import Size, federation

TITLE = "Models: loss and gradients"
LIMITS = {"float64": 1e-8, "float32": 1e-4, "as it runs": 3e-2}
ABOUT = (
    "One batch of utterances of different lengths, without dropout. Errors are relative to the processor in float64: "
    "of the loss, and the norm of the gradient's difference by the norm of the gradient. A row fails above "
    f"{LIMITS['float64']:g} in float64 and {LIMITS['float32']:g} in float32 without TF32. `as it runs` is float32 "
    f"with torch's defaults, where convolutions may use TF32: it fails above {LIMITS['as it runs']:g}. `again` says "
    "whether the gradient of a second pass on the device has the same bits."
)
OPENS_DEVICE = True
SECONDS = 90

CONFORMER = {"d_model": 32, "layers": 2, "ffn": 64, "kernel": 7, "dropout": 0.0}
CRDNN = {"channels": [8, 16], "rnn_neurons": 32, "dnn_neurons": 32, "dropout": 0.0}
CRDNN_DECODER = {"decoder_layers": 1, "decoder_neurons": 32, "attention": 32, "attention_channels": 4, "embedding": 16}
TINY = ("conformer RelPosMHAXL decoder", "crdnn decoder", "crnn lite different lengths", "audio_cnn")
SILENT = {"time_masks": 0, "frequency_masks": 0}  # no SpecAugment: devices draw other masks


def cases() -> dict[str, dict[str, Any]]:
    """The sections `model` and `task` of every model, by name."""
    found: dict[str, dict[str, Any]] = {}
    joint = {"kind": "recognition", "ctc_weight": 0.3, "augment": SILENT}
    for attention in ("RoPEMHA", "RelPosMHAXL", "regularMHA"):
        for front in ("conv1d", "conv2d"):
            model = {"kind": "conformer", **CONFORMER, "attention": attention, "front": front}
            found[f"conformer {attention} {front}"] = {"model": model}
        found[f"conformer {attention} decoder"] = {
            "model": {"kind": "conformer", **CONFORMER, "attention": attention, "decoder_layers": 1},
            "task": joint,
        }
    for rnn in ("lstm", "gru"):
        found[f"crdnn {rnn}"] = {"model": {"kind": "crdnn", **CRDNN, "rnn": rnn}}
    found["crdnn decoder"] = {"model": {"kind": "crdnn", **CRDNN, **CRDNN_DECODER}, "task": joint}
    for size in ("tiny", "lite", "mid", "base", "deep"):
        for equal in (True, False):
            name = f"crnn {size} {'equal' if equal else 'different'} lengths"
            model = {"kind": "crnn", "size": size, "dropout": 0.0}
            found[name] = {"model": model, "task": {"kind": "classification"}, "equal": equal}
    model = {"kind": "audio_cnn", "dropout": 0.0}
    found["audio_cnn"] = {"model": model, "task": {"kind": "classification"}, "equal": True}
    found["audio_cnn different lengths"] = {"model": model, "task": {"kind": "classification"}}
    return {name: {"task": {"kind": "recognition", "augment": SILENT}} | case for name, case in found.items()}


def items(where: Where) -> Iterator[Item]:
    for name, case in cases().items():
        if not where.tiny or name in TINY:
            yield name, _work(case, where)
    yield "whisper", lambda: _whisper(where)


def _work(case: dict[str, Any], where: Where) -> Callable[[], Values]:
    return lambda: _compare(dict(case), where)


def _whisper(where: Where) -> Values:
    from tests.whisper import BINS, write_checkpoint  # not above: transformers may be missing

    folder = write_checkpoint(Path(tempfile.mkdtemp(prefix="fedray-whisper-")))
    task = {"kind": "recognition", "tokens": "pretrained", "ctc_weight": 0.0, "augment": SILENT}
    task["decode"] = {"search": "attention", "beam": 1, "ctc_weight": 0.0}
    features = {"kind": "whisper", "bins": BINS, "normalise": "none"}
    return _compare({"model": {"kind": "whisper", "folder": str(folder)}, "task": task, "features": features}, where)


def _compare(case: dict[str, Any], where: Where) -> Values:
    equal, bins = case.pop("equal", False), case.get("features", {}).get("bins", 40)
    settings = sections(case)
    data = federation(Size(clients=1, utterances=6, equal=equal, bins=bins, letters=(6, 12)))
    task, client = task_of(settings, data), data.load("c0")
    batch, targets = collate(client, torch.arange(len(client)).numpy()), task.targets(client)
    torch.manual_seed(0)
    model = task.model().train()
    if hasattr(model, "load_pretrained"):
        model.load_pretrained()
    truth = _gradient(task, model, torch.float64, batch, targets, "cpu")

    def errors(dtype: torch.dtype) -> tuple[float, float, bool]:
        found, again = (_gradient(task, model, dtype, batch, targets, where.device) for _ in range(2))
        loss = abs(found[0] - truth[0]) / max(abs(truth[0]), 1e-12)
        return loss, float((found[1] - truth[1]).norm() / truth[1].norm()), bool(torch.equal(found[1], again[1]))

    exact, single = errors(torch.float64), None
    with without_tf32():
        single = errors(torch.float32)
    usual = errors(torch.float32)
    values: Values = {"parameters": sum(p.numel() for p in model.parameters()), "loss": truth[0]}
    values |= {"float64 loss": exact[0], "float64 gradient": exact[1]}
    values |= {"float32 loss": single[0], "float32 gradient": single[1]}
    values |= {"as it runs": usual[1], "again": "equal" if usual[2] else "differs"}
    high = {"float64": max(exact[:2]), "float32": max(single[:2]), "as it runs": max(usual[:2])}
    missed = [f"{name} error {high[name]:.1e} above {limit:g}" for name, limit in LIMITS.items() if high[name] > limit]
    if missed or any(value != value for value in high.values()):
        raise Missed(", ".join(missed) or "NaN", values)
    return values


def _gradient(
    task: Task, model: nn.Module, dtype: torch.dtype, batch: Batch, targets: Targets, device: str
) -> tuple[float, Tensor]:
    """The loss of a copy of the model in this type, and all its gradients as one float64 vector on the processor."""
    typed = copy.deepcopy(model).to(device, dtype)
    for module in typed.modules():
        if isinstance(module, RelPosEncXL):
            module.emb_dtype = dtype
        elif isinstance(module, LocationAwareAttention):  # its initial attention weights are float32
            module.conv_loc.register_forward_pre_hook(lambda conv, inputs: inputs[0].to(dtype))
    moved = Batch(batch.features.to(device, dtype), batch.lengths.to(device), batch.positions)
    with _computing_in(dtype):
        loss = task.loss(typed, moved, targets)
        loss.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad.double().cpu().reshape(-1) for p in typed.parameters() if p.grad is not None]
    return float(loss.detach()), torch.cat(gradients)


@contextmanager
def _computing_in(dtype: torch.dtype) -> Iterator[None]:
    """While open, SpeechBrain uses this type for the tensors and softmaxes that it would compute in float32."""
    softmax = functional.softmax

    def of_type(x: Tensor, *arguments: Any, dtype: torch.dtype | None = None, **others: Any) -> Tensor:
        return softmax(x, *arguments, dtype=x.dtype if x.dtype == torch.float64 else dtype, **others)

    torch.set_default_dtype(dtype)
    functional.softmax = of_type
    try:
        yield
    finally:
        functional.softmax = softmax
        torch.set_default_dtype(torch.float32)


@contextmanager
def without_tf32() -> Iterator[None]:
    """While open, a GPU computes float32 without TF32."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before
