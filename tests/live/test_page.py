"""The page of `fedray watch --web`, asked as a browser asks: what it serves, to whom, and what it says of runs."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from fedray.cli import main
from fedray.core.metrics import Metrics
from fedray.core.types import Evaluation
from fedray.live import snapshot
from fedray.live.server import Server
from fedray.live.snapshot import Watched
from fedray.runs.folder import RunFolder
from fedray.runs.hypotheses import Hypotheses
from tests.report import folders

HERE = {"host": socket.gethostname(), "pid": os.getpid()}
ROWS = [
    {"utterance": "ann-0", "speaker": "ann", "reference": "one two", "hypothesis": "one three"},
    {"utterance": "ann-1", "speaker": "ann", "reference": "", "hypothesis": "four"},
    {"class": "siren"},  # of a task of one's own
]


def running(root: Path, played: int = 2) -> RunFolder:
    """A run of three rounds that this process seems to drive."""
    folder = RunFolder(folders.write(root, played=played))
    folder.write_json("driver.json", HERE)
    file = Hypotheses(folder)
    file.write(Evaluation(Metrics(wer=(90.0, 1)).prefixed("dev"), ROWS[:1]), 0)
    file.write(Evaluation(Metrics(wer=(40.0, 1)).prefixed("dev"), ROWS), played)
    return folder


@contextmanager
def served(*paths: Path) -> Iterator[Server]:
    with Server(Watched(paths)) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def asked(
    server: Server, path: str = "/", method: str = "GET", host: str | None = "127.0.0.1", **query: str
) -> tuple[int, str, http.client.HTTPMessage]:
    """The status, body and headers of an answer. `host`: None sends no Host."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.putrequest(method, f"{path}?{urlencode({'token': server.token} | query)}", skip_host=True)
    if host is not None:
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body, answer.headers


def state(server: Server, **query: str) -> dict[str, Any]:
    status, body, _ = asked(server, "/state.json", **query)
    assert status == 200
    found: dict[str, Any] = json.loads(body)
    return found


def test_who_is_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    running(tmp_path / "run")
    with served(tmp_path / "run") as server:
        assert server.server_address[0] == "127.0.0.1" and server.token in server.url and len(server.token) >= 32
        for path in ("/", "/state.json"):
            for host in ("127.0.0.1", f"localhost:{server.server_port}", "LOCALHOST:9"):  # through a tunnel
                assert asked(server, path, host=host)[0] == 200
            for host in ("evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example", "[", "", None):
                assert asked(server, path, host=host)[0] in (400, 421)
            for token in ("", "x", server.token[:-1], server.token + "x", "é"):
                status, body, _ = asked(server, path, token=token)
                assert status == 403 and "run" not in body and server.token not in body
            assert [asked(server, path, method)[0] for method in ("POST", "PUT", "DELETE", "OPTIONS")] == [501] * 4
        for path in ("/config.yaml", "/../run/config.yaml", "/%2e%2e/run.json", "//etc/passwd", "/state.json/"):
            assert asked(server, path)[0] == 404
    assert capsys.readouterr() == ("", ""), "a log of requests would show the token"


def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    running(tmp_path / "run")
    with served(tmp_path / "run") as server:
        _, body, headers = asked(server)
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and headers["Referrer-Policy"] == "no-referrer"
    assert not re.search(r"(src|href)=.(?!data:)|@import|url\(", body.replace("http://www.w3.org/2000/svg", ""))
    assert "{{" not in body and '"COLOURS"' not in body and "innerHTML" not in body
    assert '<html lang="en">' in body and body.count("<h1") == 1 and "<label>" in body


def test_a_run_in_progress(tmp_path: Path) -> None:
    folder = running(tmp_path / "run")
    rows = folder.rows("metrics.jsonl")
    folder.rewrite("metrics.jsonl", [row | {"clients/failed": 1, "time/checkpoint_s": 1.0} for row in rows])
    folder.rewrite("failures.jsonl", [{"round": 2, "client": "<b>", "reason": "ValueError: \x1b loud"}])
    with served(tmp_path / "run") as server:
        found = state(server)
        (row,) = found["runs"]
        assert {key: row[key] for key in ("name", "label", "state", "round", "rounds", "failed", "left")} == {
            "name": "run", "label": "", "state": "running", "round": 2, "rounds": 3, "failed": 1, "left": 3.0,
        }  # fmt: skip
        assert found["metric"] == {"name": "dev/wer", "title": "dev WER (%)", "short": "dev WER"}
        (curve,) = found["curves"]
        assert [point[0] for point in curve] == [0, 1, 2] and curve[0][1] == 90.0
        assert curve[1:] == [[row["round"], row["dev/wer"]] for row in rows]
        assert row["best"] == row["newest"] == f"{rows[-1]['dev/wer']:.1f} %"
        run = found["run"]
        assert run["cohort"] == [[1, 2, 1, 0], [2, 2, 1, 0]] and run["seconds"] == [[1, 2.0], [2, 2.0]]
        assert run["failures"] == [[2, "<b>", "ValueError: \x1b loud"]] and ["Traffic so far", "2 GB"] in run["facts"]
        first, second = run["heard"]["rows"]
        assert run["heard"]["round"] == 2 and first["reference"] == "one two"
        assert first["now"] == first["before"] == [["same", "one", "one"], ["substituted", "two", "three"]]
        assert second["now"] == [["inserted", "", "four"]] and second["before"] is None
        assert state(server, metric="train/loss")["curves"] == [[[1, 3.0], [2, 1.5]]]
        assert state(server, metric="../etc", run="nobody")["metric"] == found["metric"]

        Hypotheses(folder).write(Evaluation(Metrics(), []), 3)
        folder.append("metrics.jsonl", [rows[-1] | {"round": 3}])
        folder.remove("driver.json")
        folder.write_text("error.txt", "Traceback\nRunError: too many failed")
        (row,) = state(server)["runs"]
        assert (row["state"], row["round"], row["left"], row["problem"]) == (
            "failed",
            3,
            None,
            "RunError: too many failed",
        )
        shutil.rmtree(tmp_path / "run")
        assert "no such folder" in state(server)["error"]


def test_several_runs_and_one_that_is_damaged(tmp_path: Path) -> None:
    running(tmp_path / "a")
    folders.write(tmp_path / "b", folders.config(algorithm__alpha=0.3))
    folders.write(tmp_path / "c", folders.config(algorithm__alpha=0.3, seed=1))
    (folders.write(tmp_path / "d") / "metrics.jsonl").write_text("[]\n")
    with served(tmp_path) as server:
        found = state(server, run="b")
        rows = {row["name"]: row for row in found["runs"]}
        assert {name: row["state"] for name, row in rows.items()} == {
            "a": "running", "b": "finished", "c": "finished", "d": "damaged",
        }  # fmt: skip
        assert [row["label"] for row in rows.values()] == ["alpha=0.5", "alpha=0.3, seed=0", "alpha=0.3, seed=1", ""]
        assert "metrics.jsonl:1: is not a row of a round" in rows["d"]["problem"]
        assert found["run"]["index"] == 1 and state(server)["run"]["index"] == 0, "the running one first"
        (tmp_path / "d" / "hypotheses.json").write_text('{"newest": 1}')
        (tmp_path / "d" / "metrics.jsonl").write_text("")
        assert "hypotheses.json: is not what a run writes" in state(server)["runs"][3]["problem"]
        json.dumps(state(server, run="d"))


def test_what_has_not_changed_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = running(tmp_path / "run")
    watched, read, real = Watched([tmp_path]), [], snapshot.Run.read
    monkeypatch.setattr(snapshot.Run, "read", lambda *given: read.append(given) or real(*given))
    before = [watched.snapshot() for _ in range(3)][0]
    assert len(read) == 1 and before["wait"] >= 2
    folder.append("metrics.jsonl", [folder.rows("metrics.jsonl")[-1] | {"round": 3}])
    assert watched.snapshot()["runs"][0]["round"] == 3 and len(read) == 2


def test_long_runs_are_thinned(tmp_path: Path) -> None:
    folder = running(tmp_path / "run")
    row = folder.rows("metrics.jsonl")[-1]
    folder.rewrite("metrics.jsonl", [row | {"round": number} for number in range(1, 3001)])
    (curve,) = Watched([tmp_path]).snapshot()["curves"]
    assert len(curve) == snapshot.POINTS and curve[-1][0] == 3000


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(server: Server) -> None:
        raise KeyboardInterrupt

    folders.write(tmp_path / "a")
    nice: list[int] = []
    monkeypatch.setattr(os, "nice", nice.append)
    for arguments in ([str(tmp_path), str(tmp_path)], [str(tmp_path), "--port", "8000"]):
        with pytest.raises(SystemExit):
            main(["watch", *arguments])
        assert "add --web" in capsys.readouterr().err
    with served(tmp_path / "a") as server:
        port = str(server.server_port)
        assert main(["watch", "--web", str(tmp_path), "--port", port]) == 2
        assert f"port {port} is in use: choose another with --port" in capsys.readouterr().err
    monkeypatch.setattr(Server, "serve_forever", interrupted)
    assert main(["watch", "--web", str(tmp_path / "a"), str(tmp_path)]) == 130 and nice == [10, 10]
    said = capsys.readouterr().out
    assert re.match(r"http://127.0.0.1:\d+/\?token=[\w-]{32}\n", said) and "Ctrl-C ends the page, not the run" in said
    assert main(["watch", "--web", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err
