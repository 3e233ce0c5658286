"""The command line of fedray, whose driver and client actors are objects of its own process (see `in_process`).

    python -m tests.cluster.without_processes run CONFIG     # with the address of a Ray in FAKE_RAY

A job of a test ends and begins many times: it joins the Ray of the test, and has no processes to start.
"""

from __future__ import annotations

import os
import sys

os.environ["RAY_ADDRESS"] = os.environ["FAKE_RAY"]  # before Ray is imported

from fedray.cli.commands import main
from fedray.core.parallel import serial
from fedray.engine.driver import session
from tests.engine import in_process

session.run = in_process.run
session.parallel = serial
session.beside = lambda function: None
sys.exit(main())
