"""A package registry for one test: static files over TLS, in the layouts of npm and the Python index.

Usage: registry.py PORT CERT KEY FOLDER. ``/npm/<name>`` is ``FOLDER/npm/<name>.json``; ``/simple/<name>/`` is
``FOLDER/simple/<name>/index.html``; ``x.redirect`` says where ``x`` has moved; every other path is a file. The first
line on stdout is ``listening``, and each request is a further one.
"""

from __future__ import annotations

import http.server
import ssl
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

PORT, CERT, KEY, FOLDER = sys.argv[1:]


class Registry(http.server.BaseHTTPRequestHandler):
    """Serves files."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer from the folder."""
        path = unquote(urlsplit(self.path).path).strip("/")
        sys.stdout.write(path + "\n")
        sys.stdout.flush()
        file = Path(FOLDER) / path
        moved = file.with_name(file.name + ".redirect")
        if moved.is_file():
            self.send_response(302)
            self.send_header("Location", moved.read_text())
            self.send_header("Content-Length", "0")
            return self.end_headers()
        for candidate in (file.with_name(file.name + ".json"), file / "index.html", file):
            if candidate.is_file():
                return self.answer(candidate)
        return self.send_error(404)

    def do_HEAD(self) -> None:
        """Answer without a body."""
        self.do_GET()

    def answer(self, file: Path) -> None:
        """Send one file."""
        kinds = {".json": "application/json", ".html": "text/html"}
        data = file.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", kinds.get(file.suffix, "application/octet-stream"))
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """Stay quiet; requests are printed already."""


server = http.server.ThreadingHTTPServer(("0.0.0.0", int(PORT)), Registry)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(CERT, KEY)
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
sys.stdout.write("listening\n")
sys.stdout.flush()
server.serve_forever()
