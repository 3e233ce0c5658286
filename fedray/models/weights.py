"""Load initial weights from files of fedray's models and from checkpoints of SpeechBrain's recipes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedray.models.norms import running_statistics


def read_weights(path: Path | str, device: str = "cpu") -> dict[str, Tensor]:
    """Read a state dict that torch.save wrote. ValueError: the file is cut short, or holds something else.

    `device` "meta" reads only names and shapes.
    """
    state = read_saved(
        path,
        device,
        "is cut short, or torch.load cannot read it with weights_only=True: copy the file again, or save "
        "model.state_dict() with torch.save",
    )
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{path}: not a state dict (names -> tensors); save model.state_dict() with torch.save")
    return state


def read_saved(path: Path | str, device: str, broken: str) -> Any:
    """Read plain data that torch.save wrote. ValueError: the file cannot be read; `broken` says what to do."""
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except OSError:
        raise
    except Exception as error:  # torch raises many kinds for broken files
        raise ValueError(f"{path}: {broken}") from error


def load_weights(model: nn.Module, path: Path | str) -> list[str]:
    """Load a state dict of the same model, or of the ModuleList in a SpeechBrain recipe.

    `model.recipe` names the parts of such a list. The weights of the layer that `model.head` names may be missing; the
    layer then keeps its random weights. Returns the missing names. ValueError names the file and every other entry that
    is missing, unexpected or of another shape.
    """
    state = read_weights(path)
    parts = {str(place): part for place, part in enumerate(getattr(model, "recipe", ()))}
    if all(name.split(".")[0] in parts for name in state):
        state = {f"{parts[name.split('.')[0]]}.{name.split('.', 1)[1]}": value for name, value in state.items()}
    expected = model.state_dict()
    # Tables of positions are computed, not trained, and may have another size.
    state = {name: value for name, value in state.items() if not name.endswith(".pe")}
    learnt = {name for name in expected if not name.endswith(".pe")}
    head = {name for name in learnt if name.split(".")[0] == getattr(model, "head", None)}
    left = sorted(head) if head.isdisjoint(state) else []
    wrong = [f"missing {name}" for name in sorted(learnt - state.keys() - set(left))]
    wrong += [f"unexpected {name}" for name in sorted(state.keys() - learnt)]
    wrong += [
        f"{name} has shape {tuple(state[name].shape)}, the model {tuple(expected[name].shape)}"
        for name in sorted(learnt & state.keys())
        if state[name].shape != expected[name].shape
    ]
    if wrong:
        entries, remedy = "; ".join(wrong), "Set model.* as in its training"
        if state and not parts and _in_a_list(state) and not _in_a_list(expected):
            named = ", ".join(repr(name) for name, _ in model.named_children())
            remedy = (
                "Its names begin with places in a list, as in a checkpoint of SpeechBrain's ModuleList: give the class "
                f"{type(model).__name__} an attribute `recipe`, a tuple of the parts in the order of the list "
                f"(the class has {named})"
            )
        raise ValueError(f"{path} does not fit the model ({len(wrong)} entries): {entries}. {remedy}")
    model.load_state_dict(state, strict=False)
    return left


def _in_a_list(state: Mapping[str, Tensor]) -> bool:
    """Whether all names begin with a number, as those of a ModuleList do."""
    return all(name.split(".")[0].isdecimal() for name in state)


def constants(model: nn.Module) -> dict[str, Tensor]:
    """A copy of each float buffer of a model but batch norm's: clients build them anew, from the constructor."""
    kept = set(running_statistics(model))
    buffers = model.named_buffers()
    return {name: buffer.clone() for name, buffer in buffers if buffer.is_floating_point() and name not in kept}


def check_constants(model: nn.Module, before: Mapping[str, Tensor]) -> None:
    """ValueError: a checkpoint has set a buffer, which clients would not have. `before`: `constants` before loading."""
    now = model.state_dict()
    for name, buffer in before.items():
        if name in now and not torch.equal(now[name], buffer):
            raise ValueError(
                f"the checkpoint sets {name} of {type(model).__name__}, a buffer, and clients get parameters and "
                "running statistics of batch norm alone: make it nn.Parameter(..., requires_grad=False), which travels "
                "once"
            )
