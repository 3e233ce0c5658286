"""The server of the page: on the loopback, for whoever knows the token. It opens no file that a request names."""

from __future__ import annotations

import base64
import errno
import hashlib
import hmac
import secrets
import sys
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fedray.core.texts import json_text
from fedray.core.words import words
from fedray.live.snapshot import Watched
from fedray.report.canvas import COLOURS

LOOPBACK = "127.0.0.1"
HOSTS = (LOOPBACK, "localhost")  # a page elsewhere whose name leads here (DNS rebinding) sends its own name
HERE = Path(__file__).parent
STATE = "/state.json"


def built() -> tuple[bytes, str]:
    """The page, and the content security policy that allows its own script and style only."""
    script = (HERE / "page.js").read_text(encoding="utf-8").replace('"COLOURS"', json_text(COLOURS))
    style = "".join(
        path.read_text(encoding="utf-8") for path in (HERE.parent / "report" / "page.css", HERE / "page.css")
    )
    page = (
        (HERE / "page.html").read_text(encoding="utf-8").replace("{{ style }}", style).replace("{{ script }}", script)
    )
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page.encode(), policy


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


class Server(ThreadingHTTPServer):
    """Serves the page of some runs on a port of the loopback; port 0: a free one. ValueError: the port is taken."""

    def __init__(self, watched: Watched, port: int = 0) -> None:
        self.watched, self.token = watched, secrets.token_urlsafe(24)
        self.page, self.policy = built()
        try:
            super().__init__((LOOPBACK, port), Handler)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                what = "is in use" if error.errno == errno.EADDRINUSE else "is not yours to use"
                raise ValueError(f"port {port} {what}: choose another with --port, or leave --port out") from error
            raise

    @cached_property
    def url(self) -> str:
        """The address to open, with the token."""
        return f"http://{LOOPBACK}:{self.server_port}/?token={self.token}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error of a request, unless the browser has only gone away."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Answers GET, and nothing else."""

    server: Server
    server_version, sys_version = "fedray", ""
    timeout = 10  # seconds, for the request to arrive

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        values = {name: given[-1] for name, given in parse_qs(asked.query).items()}
        if not self._from_here():
            self._send(HTTPStatus.MISDIRECTED_REQUEST, b"the Host of a request must be 127.0.0.1 or localhost\n")
        elif not hmac.compare_digest(values.get("token", "").encode(), self.server.token.encode()):
            self._send(HTTPStatus.FORBIDDEN, b"open the address that fedray watch --web has printed, token included\n")
        elif asked.path == "/":
            self._send(HTTPStatus.OK, self.server.page, "text/html")
        elif asked.path == STATE:
            self._send(HTTPStatus.OK, self._state(values.get("metric", ""), values.get("run", "")), "application/json")
        else:
            self._send(HTTPStatus.NOT_FOUND, b"there is no such page\n")

    def _from_here(self) -> bool:
        """Whether the request names this machine's loopback, on any port: a tunnel may have another."""
        named = self.headers.get_all("Host", [])
        try:
            return len(named) == 1 and urlsplit(f"//{named[0]}").hostname in HOSTS
        except ValueError:  # no host at all, such as [
            return False

    def _state(self, metric: str, run: str) -> bytes:
        try:
            found = self.server.watched.snapshot(metric, run)
        except (ValueError, OSError) as error:  # the folder was removed, or the store cannot be reached
            found = {"error": words(error)}
        return json_text(found).encode()

    def _send(self, status: HTTPStatus, body: bytes, kind: str = "text/plain") -> None:
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": self.server.policy,
            "Cross-Origin-Resource-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a line of each request would print the token."""
