"""Endpoints and commands for packages: an HTTP server on an address of the documentation range, small local tools."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from sandbox.resources import shipped
from tests.mcpkg_kit import ECHO, ECHO_TEST, folder

SUBNET: Final = "198.51.100.224/29"
ADDRESS: Final = "198.51.100.225"

ANY: Final = {"type": "object"}
TEXT: Final = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


@contextmanager
def network() -> Iterator[str]:
    """Give this machine an address of the documentation range."""
    name = f"mcp-sandbox-test-pkg-{os.urandom(4).hex()}"
    until = time.monotonic() + 120
    command = ["docker", "network", "create", "--subnet", SUBNET, name]
    while subprocess.run(command, capture_output=True, check=False).returncode:
        assert time.monotonic() < until, "the network cannot be made"
        time.sleep(1)
    try:
        yield ADDRESS
    finally:
        subprocess.run(["docker", "network", "rm", name], check=True, capture_output=True)


@dataclass
class Endpoint:
    """An HTTP server; ``seen`` has method, path, header fields and body of every request."""

    port: int
    seen: list[dict[str, Any]] = field(default_factory=list)

    def url(self, path: str = "/mcp/echo") -> str:
        """Return an address on it."""
        return f"http://{ADDRESS}:{self.port}{path}"


@contextmanager
def endpoint(redirect_to: str = "") -> Iterator[Endpoint]:
    """Serve: `/mcp/echo` echoes its JSON, `/away` redirects, `/text` is no JSON, `/fail` fails, `/slow` takes 5 s."""
    served: Endpoint

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fields = {name.lower(): value for name, value in self.headers.items()}
            served.seen.append({"method": self.command, "path": self.path, "body": body, **fields})
            place = self.path.partition("?")[0]
            if place == "/away":
                self.send_response(307)
                self.send_header("Location", redirect_to)
                self.end_headers()
                return
            if place == "/slow":
                time.sleep(5)
            text = {"/text": b"no JSON", "/twice": b'{"message": "a", "message": "b"}'}.get(
                place, body or b'{"message":"q"}'
            )
            self.send_response(500 if place == "/fail" else 200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    server = ThreadingHTTPServer((ADDRESS, 0), Handler)
    served = Endpoint(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()


@dataclass(frozen=True)
class Bed:
    """A place with a store, a trail and a policy of its own, where commands are run."""

    place: Path

    def pkg(self, action: str, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run `mcp-sandbox pkg`."""
        more = ["--store", str(self.store)]
        if action in {"install", "test", "call"}:
            more += ["--policy", str(self.policy()), "--audit-dir", str(self.place / "audit")]
        if action in {"rollback", "uninstall"}:
            more += ["--audit-dir", str(self.place / "audit")]
        if action in {"create", "validate", "inspect", "sign", "verify"}:
            more = []
        return self.run("pkg", action, *words, *more, env=env)

    def run(self, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run `mcp-sandbox`."""
        argv = [sys.executable, "-m", "sandbox", *words]
        return subprocess.run(
            argv,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.place,
            env={**os.environ, **(env or {})},
            timeout=150,
        )

    @property
    def store(self) -> Path:
        """Where packages are installed."""
        return self.place / ".mcp"

    def tool(self, tool_id: str) -> Path:
        """Return the driver folder of an installed tool."""
        return self.store / "tools" / tool_id

    def policy(self) -> Path:
        """Return a policy that opens the documentation range and nothing else beyond the shipped one."""
        text = shipped("policies", "default.toml").read_text()
        text = text.replace('name = "default"', 'name = "own"\nreplaces = "default"', 1)
        text += '\n[[egress.private]]\ncidr = "198.51.100.0/24"\nreason = "test"\n'
        text += '\n[[egress.hosts]]\npattern = "198.51.100.0/24"\nreason = "test"\n'
        path = self.place / "policy.toml"
        path.write_text(text)
        return path

    def package(self, manifest: dict[str, Any], files: dict[str, Any] | None = None) -> str:
        """Make a package with `pkg create` and return its file."""
        source = folder(self.place / "src" / manifest["toolId"] / manifest["version"], files or {})
        folder(source, {"manifest.json": manifest})
        done = self.pkg("create", str(source), "--out", f"{manifest['toolId']}-{manifest['version']}.mcpkg")
        assert 0 == done.returncode, done.stderr
        return done.stdout.strip()

    def echo(self, url: str, **changes: Any) -> str:
        """Make the specification's own example, at an address of the test's own."""
        manifest = {**ECHO, "endpoint": {**ECHO["endpoint"], "url": url}, **changes}
        return self.package(manifest, {"tests/echo.test.json": ECHO_TEST})

    def records(self) -> list[dict[str, Any]]:
        """Return the records of the audit trail, by stream."""
        return [
            json.loads(line)
            for path in sorted((self.place / "audit" / "segments").glob("*.jsonl"))
            for line in path.read_text().splitlines()
        ]


def local(tool_id: str, command: str, **changes: Any) -> dict[str, Any]:
    """Return the manifest of a tool with one local command."""
    runtime = "node" if command.startswith("node") else "python3.11"
    return {
        "toolId": tool_id,
        "name": tool_id,
        "version": "1.0.0",
        "description": f"The tool {tool_id}.",
        "capabilities": ["test"],
        "implementations": [{"id": "only", "runtime": runtime, "endpoint": {"type": "local", "command": command}}],
        "input_schema": ANY,
        "output_schema": ANY,
        **changes,
    }


def pdf(text: str) -> bytes:
    """Return a PDF of one page whose text is in a compressed stream."""
    stream = zlib.compress(f"BT /F1 24 Tf 72 720 Td ({text}) Tj ET".encode())
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    out, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj%s endobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    tail = b"xref\n0 6\n0000000000 65535 f \n%strailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n"
    return out + tail % (table, len(out))


PDF_READER: Final = """
const fs = require("node:fs"), zlib = require("node:zlib");
const { path } = JSON.parse(process.argv[2]);
const data = fs.readFileSync(path);
let content = "", at = 0;
for (;;) {
  const begin = data.indexOf("stream\\n", at);
  if (begin < 0) break;
  const end = data.indexOf("\\nendstream", begin);
  const text = zlib.inflateSync(data.subarray(begin + 7, end)).toString("latin1");
  for (const [, shown] of text.matchAll(/\\(([^)]*)\\) Tj/g)) content += shown;
  at = end + 10;
}
console.log(JSON.stringify({ content, pages: data.toString("latin1").match(/\\/Type\\/Page\\//g).length }));
"""
"""The example's `sdk/javascript/pdf-read.js`: reads text of uncompressed-font PDFs with Node alone."""

PDF_TOOL: Final[dict[str, Any]] = {
    "toolId": "tools.pdf.read_local",
    "name": "Read PDFs Locally",
    "version": "1.0.0",
    "description": "Read and extract text/structure from PDFs on the local machine.",
    "capabilities": ["pdf", "local", "fs"],
    "implementations": [
        {
            "id": "dotnet-itext",
            "language": "dotnet",
            "runtime": "net8.0",
            "platforms": ["win-x64", "linux-x64"],
            "endpoint": {"type": "local", "command": "dotnet ./sdk/dotnet/PdfReader.dll"},
        },
        {
            "id": "python-pymupdf",
            "language": "python",
            "runtime": "python3.11",
            "platforms": ["linux-x64", "darwin-arm64"],
            "endpoint": {"type": "local", "command": "python ./sdk/python/pdf_reader.py"},
            "requirements": {"packages": ["PyMuPDF>=1.23.0"]},
        },
        {
            "id": "node-pdfjs",
            "language": "javascript",
            "runtime": "node",
            "platforms": ["linux-x64", "linux-arm64", "win-x64", "darwin-arm64"],
            "endpoint": {"type": "local", "command": "node ./sdk/javascript/pdf-read.js"},
            "requirements": {"minNodeVersion": "18.0.0"},
        },
    ],
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    "output_schema": {
        "type": "object",
        "properties": {"content": {"type": "string"}, "pages": {"type": "integer"}},
        "required": ["content"],
    },
    "tests": ["tests/read.test.json"],
    "examples": ["examples/read.md"],
}
"""The example of MCPKG §10.2, its implementations in an order in which the first two cannot be used here."""

PDF_FILES: Final[dict[str, Any]] = {
    "sdk/dotnet/PdfReader.dll": b"MZ",
    "sdk/python/pdf_reader.py": "import fitz\n",
    "sdk/javascript/pdf-read.js": PDF_READER,
    "examples/read.md": "# Read a report\n\nPass the path of a PDF.\n",
    "tests/read.test.json": {
        "name": "reads a report",
        "input": {"path": "/docs/report.pdf"},
        "expected": {"pages": 1},
        "assertions": [
            {"path": "$.content", "equals": "Quarterly report"},
            {"path": "$.error", "notExists": True},
            {"path": "$.pages", "notEquals": 2},
        ],
    },
}
