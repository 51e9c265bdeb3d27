"""gimbal report --serve: the page of live runs, on this machine only.

The server is stateless. The page sends which bytes of the runs' files it has seen and receives what was written since.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gimbal.report.page import Mark, describe, page

LOOPBACK = "127.0.0.1"


class Handler(BaseHTTPRequestHandler):
    """GET / returns the page; GET /news?marks=[...] returns what came since the page's marks, or 204 if nothing did."""

    def __init__(self, directories: Sequence[Path], request: Any, client: Any, server: Any) -> None:
        self.directories = directories
        super().__init__(request, client, server)  # answers before it returns, as the standard library does

    def do_GET(self) -> None:
        # Another site's page may make this browser send requests here under its own name (DNS rebinding): refuse them.
        assert isinstance(self.server, ThreadingHTTPServer)
        port = self.server.server_port
        if self.headers.get("Host") not in (f"{LOOPBACK}:{port}", f"localhost:{port}"):
            return self._send(
                HTTPStatus.FORBIDDEN, "text/plain", "this server only answers requests from its own machine"
            )
        url = urlsplit(self.path)
        if url.path == "/":
            return self._send(HTTPStatus.OK, "text/html", page(self.directories, live=True))
        if url.path != "/news":
            return self._send(HTTPStatus.NOT_FOUND, "text/plain", "not found; available: / and /news")
        try:
            marks = [Mark.read(text) for text in json.loads(parse_qs(url.query)["marks"][0])]
        except (KeyError, ValueError, TypeError, AttributeError):
            return self._send(HTTPStatus.BAD_REQUEST, "text/plain", "marks is malformed; send it as the page does")
        if len(marks) != len(self.directories):
            return self._send(HTTPStatus.BAD_REQUEST, "text/plain", "these marks belong to another page")
        if marks == [Mark.of(directory) for directory in self.directories]:
            return self._send(HTTPStatus.NO_CONTENT, "text/plain", "")
        data, details = describe(self.directories, marks)
        return self._send(HTTPStatus.OK, "application/json", json.dumps({"data": data, "details": details}))

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        with suppress(ConnectionError):  # the page was closed
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the terminal belongs to whoever started the server."""


def server(directories: Sequence[Path], port: int = 0) -> ThreadingHTTPServer:
    """A server on loopback, on any free port unless one is given; ``serve_forever`` runs it."""
    return ThreadingHTTPServer((LOOPBACK, port), partial(Handler, tuple(directories)))


def serve(directories: Sequence[Path], port: int = 0) -> None:
    """Until Ctrl-C."""
    with server(directories, port) as running:
        print(f"http://{LOOPBACK}:{running.server_port}/  (press Ctrl-C to stop)", flush=True)
        try:
            running.serve_forever()
        except KeyboardInterrupt:
            print()
