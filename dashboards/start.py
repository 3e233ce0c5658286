"""`make dashboards`: Prometheus and Grafana over the Ray that was started last, on the loopback.

Ctrl-C ends both, nothing is kept.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent.resolve()
FOUND = "session_latest/prom_metrics_service_discovery.json"  # written by a Ray with a dashboard
INSTALL = {
    "prometheus": "Prometheus is not installed. On Debian and Ubuntu: apt-get install prometheus; else https://prometheus.io/download",
    "grafana": "Grafana is not installed: get https://grafana.com/grafana/download and put `grafana` on the PATH. "
    "Another Grafana can import dashboards/grafana.json.",
}


def prometheus(program: str, folder: Path, port: int) -> subprocess.Popen[bytes]:
    config = folder / "prometheus.yml"
    text = (HERE / "prometheus.yml").read_text(encoding="utf-8")
    base = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"  # as Ray and fedray choose
    started = f"/tmp/ray/{FOUND}"
    # That of `ray start`, and that of fedray's own Ray, whose folder is the user's alone.
    text = text.replace(started, f"{base}/ray/{FOUND}, {base}/fedray-{os.getuid()}/ray/{FOUND}")
    config.write_text(text, encoding="utf-8")
    data, address = folder / "prometheus", f"127.0.0.1:{port}"
    options = [
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address={address}",
        "--log.level=error",
    ]
    return subprocess.Popen([program, *options])


def grafana(program: str, folder: Path, port: int, source: str) -> subprocess.Popen[bytes]:
    """Whoever reaches the port may look, and nobody may log in: there is no password to guess."""
    packaged = Path("/usr/share/grafana")
    home = packaged if packaged.is_dir() else Path(program).resolve().parent.parent
    settings = {
        "SERVER_HTTP_ADDR": "127.0.0.1",
        "SERVER_HTTP_PORT": str(port),
        "PATHS_DATA": str(folder / "grafana"),
        "PATHS_LOGS": str(folder / "grafana"),
        "PATHS_PROVISIONING": str(HERE / "provisioning"),
        "AUTH_ANONYMOUS_ENABLED": "true",
        "AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
        "AUTH_BASIC_ENABLED": "false",
        "AUTH_DISABLE_LOGIN_FORM": "true",
        "ANALYTICS_REPORTING_ENABLED": "false",
        "ANALYTICS_CHECK_FOR_UPDATES": "false",
        "DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": str(HERE / "grafana.json"),
        "LOG_LEVEL": "error",
    }
    own = {"FEDRAY_PROMETHEUS": source, "FEDRAY_DASHBOARDS": str(HERE)}  # for the files under provisioning/
    environment = os.environ | {f"GF_{name}": value for name, value in settings.items()} | own
    return subprocess.Popen([program, "server", f"--homepath={home}"], env=environment)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prometheus-port", type=int, default=9090)
    parser.add_argument("--grafana-port", type=int, default=3000)
    ports = parser.parse_args()
    found = {name: shutil.which(name) for name in INSTALL}
    for name, program in found.items():
        if program is None:
            print(INSTALL[name], flush=True)
    if (program := found["prometheus"]) is None:
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="fedray-dashboards-") as folder:
        try:
            source = f"http://127.0.0.1:{ports.prometheus_port}"
            started.append(prometheus(program, Path(folder), ports.prometheus_port))
            print(f"Prometheus: {source}", flush=True)
            if found["grafana"] is not None:
                started.append(grafana(found["grafana"], Path(folder), ports.grafana_port, source))
                print(f"Grafana:    http://127.0.0.1:{ports.grafana_port}", flush=True)
            print("Ctrl-C ends it.", flush=True)
            while all(process.poll() is None for process in started):
                time.sleep(0.5)
            return 1  # it has said why
        except KeyboardInterrupt:
            return 0
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait()


if __name__ == "__main__":
    sys.exit(main())
