"""`python -m tests.dashboards`: Prometheus (dashboards/start.py) collects a toy run; Grafana's queries must find it.

`--url http://127.0.0.1:9090` queries a Prometheus that is already running. Not part of the tests: it takes two minutes,
and needs Prometheus and a machine on which Ray's dashboard can start.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
ROUNDS, CLIENT_SECONDS = 10, 0.5


def queries() -> list[tuple[str, str]]:
    """(panel, query) of everything on the Grafana dashboard, for all runs."""
    panels = json.loads((ROOT / "dashboards" / "grafana.json").read_text(encoding="utf-8"))["panels"]
    return [(panel["title"], target["expr"].replace("$run", ".*")) for panel in panels for target in panel["targets"]]


def ask(url: str, query: str) -> list[dict[str, Any]]:
    """Prometheus' current answer, one entry per series."""
    with urllib.request.urlopen(f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}", timeout=10) as answer:
        return list(json.load(answer)["data"]["result"])


def watch(url: str, over: threading.Event) -> dict[str, list[dict[str, Any]]]:
    """For each query, the answer with the most series until `over` is set."""
    best: dict[str, list[dict[str, Any]]] = {query: [] for _, query in queries()}
    while not over.wait(2):
        for query in best:
            with suppress(urllib.error.URLError):  # Prometheus is not up yet
                found = ask(url, query)
                best[query] = found if len(found) >= len(best[query]) else best[query]
    return best


def shown(answers: dict[str, list[dict[str, Any]]]) -> int:
    """Print one line per query. Return the number of queries without an answer."""
    for panel, query in queries():
        found = answers[query]
        last = (
            f"{float(found[-1]['value'][1]):<9.4g} {' '.join(found[-1]['metric'].values())}"
            if found
            else f"NOTHING: {query}"
        )
        print(f"{panel:30} {len(found):3} series, the last: {last}")
    return sum(not found for found in answers.values())


def play(folder: Path) -> None:
    """Play a run with devices on a new Ray; one client kills its actor once in each round that it takes part in."""
    import ray

    from fedray.core.devices.availability import Anytime
    from fedray.core.devices.clock import Clock
    from fedray.core.devices.settings import ClassDevices, DeviceClass, RoundsClock
    from fedray.core.devices.table import of_classes
    from fedray.engine.driver import session
    from tests.engine import toys

    session.connect()
    session.ship(toys)
    trouble = {"trouble": "die once", "troubled": ("client-03",), "folder": str(folder)}
    settings, ids = toys.ToySettings(seconds=CLIENT_SECONDS, **trouble), toys.ToyData().client_ids()
    phones = ClassDevices({"phone": DeviceClass(seconds=60.0, down=1e6, up=1e6)}, spread=1.0)
    clock = Clock(RoundsClock(), of_classes(phones, 7, len(ids), Anytime()), ids, 7, 8)
    options: dict[str, Any] = {"settings": settings, "cohort": 8, "replacements": 50, "clock": clock}
    toys.run(folder / "runs" / "toy", rounds=ROUNDS, actors=2, **options)
    ray.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", help="of a Prometheus that watches a run: nothing is started")
    url = parser.parse_args().url
    if url is not None:
        return 1 if shown({query: ask(url, query) for _, query in queries()}) else 0
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        port = some.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="fd-", dir="/tmp") as folder:  # Ray's sockets need a short path
        os.environ |= {"RAY_TMPDIR": folder, "FEDRAY_DASHBOARD": "1", "OMP_NUM_THREADS": "1"}
        os.environ.pop("RAY_ADDRESS", None)
        start = [sys.executable, ROOT / "dashboards" / "start.py", "--prometheus-port", str(port)]
        dashboards = subprocess.Popen(start)
        over, answers = threading.Event(), dict[str, list[dict[str, Any]]]()
        watcher = threading.Thread(target=lambda: answers.update(watch(f"http://127.0.0.1:{port}", over)))
        try:
            watcher.start()
            started = time.monotonic()
            play(Path(folder))
            print(f"the run took {time.monotonic() - started:.0f} s")
        finally:
            over.set()
            watcher.join()
            dashboards.terminate()
            dashboards.wait()
        return 1 if shown(answers) else 0


if __name__ == "__main__":
    sys.exit(main())
