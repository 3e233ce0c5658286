"""One kind of bad input: how it is made, the command that meets it, and what the user must read."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from fedray import cli
from fedray.core.parallel import serial
from fedray.core.types import RunError
from fedray.engine.cluster.resources import Node
from fedray.engine.driver import session
from fedray.report.canvas import Drawing

RUN = "run config.yaml --out run"
ROOT = Path(__file__).parents[2]
DRY = "run config.yaml --dry-run"
NODES = [Node(cpus=4.0, gpus=0.0, memory=None, driver=True)]
ACCEPTED = "this input is accepted: the run would start"


def nothing(folder: Path) -> None:
    """Leave the corpus and the configuration of `corpus.write` as they are."""


@dataclass(frozen=True)
class Case:
    """One row of the table. `data`: `fedray data` must find it too, before a run does."""

    name: str
    says: str | tuple[str, ...]  # pieces of the message
    make: Callable[[Path], object] = nothing
    command: str = RUN
    status: int = 2
    data: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def pieces(self) -> tuple[str, ...]:
        return (self.says,) if isinstance(self.says, str) else self.says


@dataclass(frozen=True)
class Answer:
    """What a command answered. `error` is the traceback of an uncaught exception and must be empty."""

    status: int
    text: str
    error: str = ""

    def shown(self, folder: Path) -> str:
        """Return the text with the parts replaced that differ between machines."""
        text = self.text.replace(str(folder.resolve()), "DIR").replace(str(folder), "DIR").replace(str(ROOT), "FEDRAY")
        text = re.sub(r"features-[0-9a-f]+\.[0-9a-f]+", "features-HASH", text)
        text = re.sub(r"case-\d{8}-\d{6}(-\w+)?", "case-TIME", text)
        return re.sub(r"[ \t]+", " ", text).strip()


def answer(folder: Path, command: str, environment: Mapping[str, str]) -> Answer:
    """Run a fedray command in this process, in `folder` and without Ray."""
    said = io.StringIO()
    names = {"FEDRAY_CACHE": str(folder / "cache"), "COLUMNS": "400", "RAY_ADDRESS": ""} | dict(environment)
    with (
        alone(),
        mock.patch.dict(os.environ, names),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        try:
            status = cli.main(shlex.split(command))
        except SystemExit as end:  # from argparse
            status = end.code if isinstance(end.code, int) else 1
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            return Answer(-1, said.getvalue(), "".join(traceback.format_exception(error)))
    return Answer(status, said.getvalue())


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Keep all work in this process, and render no picture; a run that would start ends with `ACCEPTED` instead."""

    def start(*_: Any, **__: Any) -> dict[str, Any]:
        raise RunError(ACCEPTED)

    parts = {"parallel": serial, "resources": lambda: NODES, "run": start, "device": lambda gpus: "cpu"}
    parts |= {"beside": lambda work: None}  # skip the background work of a run
    drawing = staticmethod(lambda canvas: Drawing("", "<svg></svg>", b"\x89PNG"))
    with (
        mock.patch.multiple(session, **parts),
        mock.patch.object(session.ray, "init"),
        mock.patch.object(Drawing, "of", drawing),
    ):
        yield
