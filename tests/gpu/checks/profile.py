"""Where the time of a Conformer's step goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from tests.gpu.record import Item, Values, Where
from tests.gpu.workloads import Trainer, milliseconds

TITLE = "Where the time goes: a step of the Conformer of fednst/embedded"
ABOUT = (
    "The first row is the whole step: its duration without the profiler, and from the profiler how long the device was "
    "busy in kernels and how many were launched. Then the operations with the most time of the device (of the "
    "processor, where that is the device), in milliseconds a step."
)
OPENS_DEVICE = True
SECONDS = 60
TOP = 15


def items(where: Where) -> Iterator[Item]:
    trainer = Trainer("conformer embedded", where)
    step, steps = trainer.step(), 1 if where.tiny else 5
    duration = milliseconds(step, where, 0.05 if where.tiny else 2.0)
    activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * where.gpu]
    with profile(activities=activities, acc_events=True) as found:
        for _ in range(steps):
            step()
        where.wait()
    events = list(found.key_averages())
    kernels = [event for event in events if event.device_type == DeviceType.CUDA]
    operations = [event for event in events if event.device_type == DeviceType.CPU]
    yield "step", lambda: _step(kernels, operations, steps, duration)
    for event in sorted(operations, key=lambda event: -(_device(event) if where.gpu else _processor(event)))[:TOP]:
        yield event.key[:80], lambda event=event: _row(event, steps)


def _step(kernels: list[Any], operations: list[Any], steps: int, duration: float) -> Values:
    busy = sum(map(_device, kernels)) / steps / 1000
    launches = sum(event.count for event in operations if "LaunchKernel" in event.key) / steps
    return {"ms": duration, "device, ms": busy, "processor, ms": None, "calls": launches}


def _row(event: Any, steps: int) -> Values:
    return {
        "ms": None,
        "device, ms": _device(event) / steps / 1000,
        "processor, ms": _processor(event) / steps / 1000,
        "calls": event.count / steps,
    }


def _device(event: Any) -> float:
    """Microseconds that the device spends in the operation itself."""
    return float(getattr(event, "self_device_time_total", 0.0))


def _processor(event: Any) -> float:
    return float(event.self_cpu_time_total)
