"""How causes of death are told apart, when a client is left out for them, and what counts as late."""

from __future__ import annotations

import math
import traceback
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import ray
import torch

from fedray.core.types import RunError
from fedray.engine.actors.hangs import Hangs
from fedray.engine.actors.ray_deaths import started_in_time
from fedray.engine.cluster import nodes
from fedray.engine.jobs.deaths import Cause, Death, doom
from fedray.engine.lane.lane import Failure, Lane
from fedray.engine.settings import DeadlineSettings


def test_without_a_deadline_or_a_usual_time_nobody_is_killed() -> None:
    for hangs, seconds in ((Hangs(1.0), 1e9), (Hangs(1.0, deadline=DeadlineSettings(factor=3.0, floor_s=2.0)), 1e9)):
        assert not hangs.overdue("train", 1.0, seconds)
    hangs = Hangs(1.0, deadline=DeadlineSettings(factor=3.0, floor_s=10.0))
    hangs.done(0, "node", "train", 2.0, 8.0)
    assert not hangs.overdue("train", 1.0, 11.0) and hangs.overdue("train", 1.0, 12.1), "3 times 4 seconds"
    assert not hangs.overdue("train", 0.1, 9.9) and hangs.overdue("train", 0.1, 10.1), "the floor"
    hangs.done(0, "node", "train", 1.0, 4.0)
    hangs.done(0, "node", "train", 1.0, 20.0)
    assert not hangs.overdue("train", 1.0, 39.0) and hangs.overdue("train", 1.0, 41.0), "twice the longest"


@pytest.mark.parametrize(("settings", "words"), [
    ({"factor": 0.5}, "factor must be at least 1, not"), ({"factor": math.nan}, "factor must be at least 1"),
    ({"floor_s": 0.0}, "floor_s must be above 0"), ({"floor_s": math.nan}, "floor_s must be above 0"),
])  # fmt: skip
def test_deadlines_are_checked(settings: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DeadlineSettings(**settings)


@pytest.mark.parametrize(("error", "cause"), [
    (MemoryError(), Cause.MEMORY),
    (OSError(12, "Cannot allocate memory"), Cause.MEMORY),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), Cause.GPU_MEMORY),
    (RuntimeError("CUDA error: out of memory"), Cause.GPU_MEMORY),
    (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"), Cause.GPU_MEMORY),
    (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"), Cause.GPU_MEMORY),
    (RuntimeError("NVML_SUCCESS == r INTERNAL ASSERT FAILED at \"CUDACachingAllocator.cpp\""), Cause.GPU_MEMORY),
    (RuntimeError("CUDA error: device-side assert triggered"), Cause.GPU),
    (torch.AcceleratorError("CUDA error: an illegal memory access was encountered"), Cause.GPU),
    (ValueError("CUDA error: is in the transcript"), None),
    (RuntimeError("shapes differ"), None),
])  # fmt: skip
def test_which_errors_end_an_actor(error: Exception, cause: Cause | None) -> None:
    found = doom(error)
    assert (found.death.cause if found is not None else None) is cause
    wrapped = LookupError("a library's words")
    wrapped.__cause__ = error
    again = doom(wrapped)
    assert (again.death.cause if again is not None else None) is cause


def test_where_a_client_failed_is_a_line_of_the_users_code() -> None:
    """A failure names the line of the user's code, not the line of the library that raised the error."""
    try:
        np.concatenate([])
    except ValueError as error:
        told = "".join(traceback.format_exception(error))
        line = error.__traceback__.tb_lineno if error.__traceback__ else 0
    name = "test_where_a_client_failed_is_a_line_of_the_users_code"
    assert Failure("a", "", told).where == f"test_causes.py:{line}, in {name}"
    assert Failure("a", "", f'File "{np.__file__}", line 3, in <module>').where == ""


def test_numpy_and_torch_without_memory_are_recognised() -> None:
    for take in (lambda: np.ones(2**55), lambda: torch.ones(2**55)):
        with pytest.raises((MemoryError, RuntimeError)) as caught:
            take()
        found = doom(caught.value)
        assert found is not None and found.death.cause is Cause.MEMORY, caught.value


def test_what_the_kernel_counts() -> None:
    assert nodes.kills_in("pgfault 3\noom_kill 7\noom_kill_x 9\n") == 7 and nodes.kills_in("") == 0
    assert nodes.oom_kills() >= 0


MEMORY, CRASH, HANG, GPU_MEMORY = (
    Death(cause, "") for cause in (Cause.MEMORY, Cause.CRASH, Cause.HANG, Cause.GPU_MEMORY)
)


@pytest.mark.parametrize(("deaths", "reason"), [
    ([CRASH, CRASH], "killed its actor 2 times (out of memory, or a crash in native code): left out of this round"),
    ([HANG, HANG], "had its actor hang 2 times, beyond engine.deadline: left out of this round"),
    ([MEMORY, MEMORY], None),
    ([GPU_MEMORY, GPU_MEMORY],  # alone, it would have the same share
     "ran out of GPU memory 2 times, within the share of engine.gpus_per_client: left out of this round"),
    ([MEMORY, MEMORY, Death(Cause.MEMORY, "", alone=True)],
     "ran out of memory 3 times, at last while no other client trained: left out of this round"),
    ([Death(Cause.MEMORY, "", alone=True)] * 2,
     "ran out of memory 2 times, at last while no other client trained: left out of this round"),
])  # fmt: skip
def test_when_a_client_is_left_out(cluster: None, tmp_path: Path, deaths: list[Death], reason: str | None) -> None:
    lane = Lane(3, 0, (("a", None), ("b", None)), marker=tmp_path / "lane_3")
    here = ray.get_runtime_context().get_node_id()
    for death in deaths:
        with lane.marking() as mark:
            mark("b")
        lane = lane.after_death(here, death, lambda text: None)
    assert lane.excluded == ({} if reason is None else {"b": reason}) and lane.alone == (reason is None)


def test_the_marker_names_the_client_at_work_and_nobody_before_the_first(cluster: None, tmp_path: Path) -> None:
    here, lane = ray.get_runtime_context().get_node_id(), Lane(3, 7, (), marker=tmp_path / "lane_3")
    assert lane.client_at_work(here) is None
    for client in ("the longest name of äll ü", "höhe", "ü", "b 7"):
        with lane.marking() as mark:
            assert lane.client_at_work(here) is None, "left from the same attempt, which may run twice"
            mark("another ünbelievably long name")
            mark(client)
        assert lane.client_at_work(here) == client
        assert replace(lane, attempt=1).client_at_work(here) is None


def test_a_client_of_a_group_is_left_out_when_it_was_alone(cluster: None, tmp_path: Path) -> None:
    """If clients train together, nobody knows whose model killed the actor: the lane is first retried one by one."""
    lane = Lane(3, 0, (("a", None), ("b", None)), marker=tmp_path / "lane_3", together=2)
    for together in (2, 1, 1):
        with lane.marking() as mark:
            mark("b")
        lane = lane.after_death(ray.get_runtime_context().get_node_id(), CRASH, lambda text: None)
        assert lane.together == together
    assert list(lane.excluded) == ["b"]


def test_a_node_that_is_slow_is_named_once() -> None:
    said: list[str] = []
    hangs = Hangs(note=said.append)
    for n in range(30):
        hangs.done(n % 3, f"node {n % 3}", "train", 2.0, 8.0 if n % 3 == 2 else 2.0)
        hangs.done(n % 3, f"node {n % 3}", "score", 0.0, 0.08 if n % 3 == 2 else 0.02)
    (words,) = said
    assert words.startswith("node node 2 is slow: the same work takes 4.0 times as long there as elsewhere")


def test_a_ray_that_starts_too_slowly_is_one_sentence() -> None:
    words = "Ray did not start within half a minute: .*; repeat the command"
    with pytest.raises(RunError, match=words), started_in_time():
        raise Exception("The current node timed out during startup. This could happen because ...")
    with pytest.raises(ZeroDivisionError), started_in_time():
        raise ZeroDivisionError
