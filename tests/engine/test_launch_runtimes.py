"""What real servers are written in works under the profiles: Node.js, Python and git do their daily work."""

# ruff: noqa: E501 - programs inside
from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.limits import MIB
from sandbox.plan.model import EnvEntry, LimitPlan, Mount, Tmpfs
from tests.probe_kit import Inside, probe_plan, sandboxed, shipped_image

pytestmark = [pytest.mark.engine, pytest.mark.anyio]

LIMITS = LimitPlan(memory_bytes=512 * MIB, cpus=1.0, pids=128, nofile=1024, fsize_bytes=64 * MIB, lifetime=600)
ENV = (EnvEntry("HOME", "/tmp"), EnvEntry("PATH", "/usr/local/bin:/usr/bin:/bin"))

NODE = r"""
const { Worker } = require('node:worker_threads');
const { spawn, spawnSync } = require('node:child_process');
const fs = require('node:fs'), os = require('node:os'), net = require('node:net'), crypto = require('node:crypto');
const wasm = new Uint8Array([0,97,115,109,1,0,0,0,1,5,1,96,0,1,127,3,2,1,0,7,5,1,1,102,0,0,10,6,1,4,0,65,42,11]);
const steps = {
  worker: () => new Promise((ok, no) => { const w = new Worker("require('worker_threads').parentPort.postMessage(6*7)", { eval: true }); w.on('message', ok); w.on('error', no); }),
  child: () => new Promise((ok) => { const c = spawn(process.execPath, ['-e', 'process.stdout.write("x")']); let out = ''; c.stdout.on('data', (d) => out += d); c.on('close', () => ok(out)); c.on('error', (e) => ok(String(e))); }),
  sync: () => spawnSync(process.execPath, ['-p', '1+1']).stdout.toString().trim(),
  wasm: async () => (await WebAssembly.instantiate(wasm)).instance.exports.f(),
  files: async () => { await fs.promises.writeFile('/tmp/a', 'x'.repeat(1e6)); await fs.promises.copyFile('/tmp/a', '/tmp/b'); return (await fs.promises.stat('/tmp/b')).size; },
  watch: () => new Promise((ok) => { const w = fs.watch('/tmp', () => { w.close(); ok('seen'); }); setTimeout(() => fs.writeFileSync('/tmp/c', '1'), 50); }),
  crypto: () => crypto.scryptSync('a', 'b', 16).length,
  zip: () => require('node:zlib').gunzipSync(require('node:zlib').gzipSync('abc')).toString(),
  interfaces: () => Object.keys(os.networkInterfaces()).length >= 0,
  stream: () => new Promise((ok, no) => { const path = '/tmp/s'; const s = net.createServer((c) => c.end('hi')).listen(path, () => net.connect(path).on('data', (d) => { s.close(); ok(String(d)); }).on('error', no)); }),
  fetch: async () => { try { await fetch('http://127.0.0.1:8099/'); return 'connected'; } catch (e) { return e.cause ? e.cause.code : String(e); } },
  lookup: () => new Promise((ok) => require('node:dns').lookup('host.invalid', (e) => ok(e ? 'no address' : 'address'))),
};
require('node:readline').createInterface({ input: process.stdin }).on('line', async (name) => {
  let value; try { value = await steps[name](); } catch (e) { value = 'failed: ' + (e.code || e); }
  console.log(JSON.stringify({ value }));
});
"""

NODE_EXPECTED = {
    "worker": 42,
    "child": "x",
    "sync": "2",
    "wasm": 42,
    "files": 1_000_000,
    "watch": "seen",
    "crypto": 16,
    "zip": "abc",
    "interfaces": True,
    "stream": "hi",
    "lookup": "no address",
}

PYTHON = r"""
import asyncio, concurrent.futures, ctypes, json, mmap, multiprocessing, os, socket, sqlite3, ssl, subprocess, sys, tempfile, threading
async def tasks():
    process = await asyncio.create_subprocess_exec(sys.executable, '-c', 'print(6*7)', stdout=subprocess.PIPE)
    return (await process.communicate())[0].decode().strip()
async def unix_server():
    async def serve(reader, writer):
        writer.write(b'hi'); writer.close()
    server = await asyncio.start_unix_server(serve, '/tmp/u')
    async with server:
        reader, writer = await asyncio.open_unix_connection('/tmp/u')
        return (await reader.read()).decode()
def double(x):
    return 2 * x
def lookup():
    try:
        socket.getaddrinfo('host.invalid', 80)
    except OSError:
        return 'no address'
steps = {
  'subprocess': lambda: asyncio.run(tasks()),
  'unix': lambda: asyncio.run(unix_server()),
  'threads': lambda: sum(concurrent.futures.ThreadPoolExecutor(8).map(double, range(10))),
  'processes': lambda: multiprocessing.get_context('fork').Pool(2).map(double, [1, 2]),
  'sqlite': lambda: sqlite3.connect('/tmp/d').execute('select 1').fetchone()[0],
  'mmap': lambda: len(mmap.mmap(-1, 4096)),
  'callback': lambda: ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 3)(),
  'tls': lambda: ssl.create_default_context().verify_mode.name,
  'files': lambda: len(tempfile.TemporaryDirectory().name) > 0,
  'lookup': lookup,
}
for line in sys.stdin:
    try:
        value = steps[line.strip()]()
    except BaseException as error:
        value = 'failed: %r' % error
    print(json.dumps({'value': value}), flush=True)
"""

PYTHON_EXPECTED = {
    "subprocess": "42",
    "unix": "hi",
    "threads": 90,
    "processes": [2, 4],
    "sqlite": 1,
    "mmap": 4096,
    "callback": 3,
    "tls": "CERT_REQUIRED",
    "files": True,
    "lookup": "no address",
}


async def answers(inside: Inside, names: object) -> dict[str, object]:
    """Return what each step of a program came to."""
    return {name: (await inside.ask(name))["value"] for name in names}


@pytest.mark.parametrize("profile", ["nonet", "net"])
async def test_node_works(profile: str) -> None:
    """Workers, children, WebAssembly, files, watching, sockets and lookups of Node.js work under both profiles."""
    plan = probe_plan(
        image_id=shipped_image("node"), argv=("/usr/bin/node", "-e", NODE), env=ENV, limits=LIMITS,
        tmpfs=(Tmpfs("/tmp", 64 * MIB, 1024),), seccomp=profile,
    )  # fmt: skip
    async with sandboxed(plan) as inside:
        found = await answers(inside, NODE_EXPECTED)
        fetched = (await inside.ask("fetch"))["value"]

    assert NODE_EXPECTED == found
    assert fetched == {"nonet": "EPERM", "net": "ECONNREFUSED"}[profile]


@pytest.mark.parametrize("profile", ["nonet", "net"])
async def test_python_works(profile: str) -> None:
    """asyncio, threads, processes, SQLite, foreign functions and TLS of Python work under both profiles."""
    plan = probe_plan(
        image_id=shipped_image("python"), argv=("/usr/bin/python3", "-I", "-c", PYTHON), env=ENV, limits=LIMITS,
        tmpfs=(Tmpfs("/tmp", 64 * MIB, 1024),), seccomp=profile,
    )  # fmt: skip
    async with sandboxed(plan) as inside:
        assert PYTHON_EXPECTED == await answers(inside, PYTHON_EXPECTED)


async def test_python_works_without_children() -> None:
    """Under the profile that starts nothing threads and asyncio work, and a child fails."""
    plan = probe_plan(
        image_id=shipped_image("python"), argv=("/usr/bin/python3", "-I", "-c", PYTHON), env=ENV, limits=LIMITS,
        seccomp="nonet-nospawn", init=False,
    )  # fmt: skip
    async with sandboxed(plan) as inside:
        found = await answers(inside, ("threads", "unix", "sqlite", "subprocess"))

    assert {"threads": 90, "unix": "hi", "sqlite": 1} == {name: found[name] for name in ("threads", "unix", "sqlite")}
    assert "PermissionError" in str(found["subprocess"])


async def test_git_works(tmp_path: Path) -> None:
    """A repository in a writable root is made, committed to, branched and read."""
    import os

    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    root = tmp_path / "repo"
    root.mkdir()
    root.chmod(0o777)
    if os.geteuid() == 0:
        os.chown(root, 65532, 65532)
    script = (
        "import json,subprocess\n"
        "def git(*a): return subprocess.run(['git','-C','/data','-c','user.name=a','-c','user.email=a@b',*a],"
        "capture_output=True,text=True)\n"
        "input()\n"
        "runs=[git('init','-q'),git('commit','-q','--allow-empty','-m','one'),git('checkout','-q','-b','x'),"
        "git('log','--format=%s'),git('gc','-q'),git('status','--short')]\n"
        "print(json.dumps({'codes':[r.returncode for r in runs],'log':runs[3].stdout,'err':[r.stderr for r in runs]}))\ninput()\n"
    )
    plan = probe_plan(
        image_id=shipped_image("python-git"), argv=("/usr/bin/python3", "-I", "-c", script), env=ENV, limits=LIMITS,
        mounts=(Mount(str(root), "/data", writable=True),),
    )  # fmt: skip
    async with sandboxed(plan) as inside:
        found = await inside.ask("go")

    assert ([0] * 6, "one\n") == (found["codes"], found["log"]), json.dumps(found["err"])
