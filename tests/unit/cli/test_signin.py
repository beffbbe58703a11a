"""Signing in on stdio with a key: who holds a pinned one is served, and every other attempt is refused and recorded."""

from __future__ import annotations

import argparse
import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from sandbox.cli import main, signin
from sandbox.cli.prove import load_key
from sandbox.errors import Refused, UsageError
from sandbox.serve.identity.proof import (
    CONTEXT,
    Challenge,
    LocalClient,
    challenge,
    is_pin,
    pin_of,
    proof,
    proved,
    read_challenge,
)
from sandbox.testing.memory import MemoryRecorder
from tests.shared import ROOT

ALICE, MALLORY = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
CLIENTS = {pin_of(ALICE.public_key()): LocalClient("acme", "alice")}
AUDIENCE = "files.example"


def text(raw: bytes) -> str:
    """Return Base64 as proofs have it."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def with_signature(raw: bytes, key: Ed25519PrivateKey = ALICE) -> dict[str, Any]:
    """Return a proof with some signature."""
    params = {"key": pin_of(key.public_key()), "signature": text(raw)}
    return {"jsonrpc": "2.0", "method": "mcp-sandbox/proof", "params": params}


ATTACKS: dict[str, tuple[Callable[[Challenge], Any], str]] = {
    "nothing": (lambda _asked: None, "GATE-075"),
    "an ordinary client": (
        lambda _asked: {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}},
        "GATE-075",
    ),
    "no signature": (lambda _asked: with_signature(b""), "GATE-075"),
    "a short signature": (lambda asked: with_signature(ALICE.sign(asked.signed())[:-1]), "GATE-075"),
    "another key": (lambda asked: proof(asked, MALLORY), "GATE-076"),
    "another key under her name": (lambda asked: with_signature(MALLORY.sign(asked.signed())), "GATE-077"),
    "replay": (lambda _asked: proof(challenge(AUDIENCE), ALICE), "GATE-077"),
    "another audience": (lambda asked: proof(Challenge("evil.example", asked.nonce), ALICE), "GATE-077"),
    "a truncated nonce": (lambda asked: proof(Challenge(AUDIENCE, asked.nonce[:-1]), ALICE), "GATE-077"),
    "the bare nonce": (lambda asked: with_signature(ALICE.sign(asked.nonce)), "GATE-077"),
    "another context": (
        lambda asked: with_signature(ALICE.sign(asked.signed().replace(CONTEXT, b"mcp-sandbox audit v1\0"))),
        "GATE-077",
    ),
    "an audience moved into the nonce": (
        lambda asked: with_signature(ALICE.sign(CONTEXT + AUDIENCE.encode() + asked.nonce)),
        "GATE-077",
    ),
}


@pytest.mark.claim("P-GATE-13")
@pytest.mark.parametrize("name", ATTACKS)
def test_every_false_proof_is_refused(name: str) -> None:
    """Replayed, for another audience, of another key, nonce or context: refused with its id; the right proof passes."""
    answer, number = ATTACKS[name]
    asked = challenge(AUDIENCE)

    with pytest.raises(Refused, match=number):
        proved(answer(asked), asked, CLIENTS)
    assert "alice" == proved(proof(asked, ALICE), asked, CLIENTS)[1].user


@given(st.binary(min_size=64, max_size=64), st.recursive(st.none() | st.integers() | st.text(), st.lists))
def test_nothing_but_a_signature_proves(raw: bytes, junk: Any) -> None:
    """Whatever is sent in its place is refused, and nothing else happens."""
    asked = challenge(AUDIENCE)
    tries = (with_signature(raw), junk, {"method": "mcp-sandbox/proof", "params": {"key": junk, "signature": junk}})
    for message in tries:
        with pytest.raises(Refused, match=r"GATE-07[57]"):
            proved(message, asked, CLIENTS)


def test_a_client_signs_for_nobody_but_whom_it_means() -> None:
    """A dishonest server that passes on the challenge of another gets no signature; nor does one with a short nonce."""
    honest = challenge(AUDIENCE).message()
    bad = [
        {**honest, "params": {**honest["params"], "audience": "other"}},
        {**honest, "params": {**honest["params"], "nonce": honest["params"]["nonce"][:-2]}},
        {**honest, "params": {**honest["params"], "version": 2}},
        {**honest, "method": "initialize"},
        {},
    ]
    for message in bad:
        with pytest.raises(Refused, match="CLI-204"):
            read_challenge(message, AUDIENCE)
    assert honest == read_challenge(honest, AUDIENCE).message()


def test_a_key_has_one_spelling() -> None:
    """Padding, the other alphabet and stray bits make no second name for a key."""
    pin = pin_of(ALICE.public_key())
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".index(pin[-1])
    stray = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[last ^ 1]

    assert is_pin(pin)
    assert not [one for one in (pin + "=", pin[:-1] + stray, pin[8:], pin[:-1], "sha256/" + pin[8:]) if is_pin(one)]


def clients_file(folder: Path) -> Path:
    """Write a file of clients."""
    place = folder / "clients.toml"
    pin = pin_of(ALICE.public_key())
    place.write_text(f'audience = "{AUDIENCE}"\n[[client]]\nkey = "{pin}"\ntenant = "acme"\nuser = "alice"\n')
    return place


def key_file(folder: Path, key: Ed25519PrivateKey = ALICE) -> Path:
    """Write a private key."""
    place = folder / "client.key"
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    place.write_bytes(key.private_bytes(*pem))
    place.chmod(0o600)
    return place


def exchange(
    folder: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[[Challenge], bytes], *, line_ends: bool = True
) -> Any:
    """Sign in over two pipes; return the arguments, the facts, what was said, and what is left to read."""
    (ours, theirs), (reading, writing) = os.pipe(), os.pipe()
    monkeypatch.setattr(signin, "IN", ours)
    monkeypatch.setattr(signin, "OUT", writing)
    said: list[Any] = []

    def client() -> None:
        with os.fdopen(reading, "rb") as lines, os.fdopen(theirs, "wb") as out:
            said.append(json.loads(lines.readline()))
            out.write(answer(read_challenge(said[0], AUDIENCE)))
            out.flush()
            if line_ends:
                out.close()
            said.extend(json.loads(line) for line in lines)

    thread = threading.Thread(target=client)
    thread.start()
    arguments = argparse.Namespace(clients=clients_file(folder), tenant="local", user="")
    recorder, error = MemoryRecorder(), ""
    try:
        signin.sign_in(arguments, recorder)
    except Refused as refused:
        error = refused.id
    finally:
        os.close(writing)
        thread.join()
    with os.fdopen(ours, "rb") as rest:
        return arguments, recorder, error, said, rest.read()


def test_a_proved_client_is_its_tenant_and_loses_no_byte_of_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tenant and user are those of the key; what the client sent with its proof is still there for the session."""

    def answer(asked: Challenge) -> bytes:
        return json.dumps(proof(asked, ALICE)).encode() + b'\n{"jsonrpc":"2.0","id":1,"method":"initialize"}\n'

    arguments, recorder, error, said, rest = exchange(tmp_path, monkeypatch, answer)

    assert ("", "acme", "alice", "key") == (error, arguments.tenant, arguments.user, arguments.tenant_source)
    assert b'{"jsonrpc":"2.0","id":1,"method":"initialize"}\n' == rest
    assert ["client.sign_in"] == [fact.name for fact in recorder.facts]
    assert 1 == len(said)


@pytest.mark.parametrize(
    "line", [b"", b"half", b"x" * 5000, b"not json\n", b'{"jsonrpc":"2.0","id":7,"method":"initialize"}\n']
)
def test_who_proves_nothing_is_told_and_recorded(line: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """EOF, silence, noise, too much, or an ordinary client: one answer with the reason, one fact, and no tenant."""
    monkeypatch.setattr(signin, "TIMEOUT", 0.2)
    ends = line != b"half"
    arguments, recorder, error, said, _rest = exchange(tmp_path, monkeypatch, lambda _asked: line, line_ends=ends)

    assert ("GATE-075", "local") == (error, arguments.tenant)
    assert [("client.refuse", "GATE-075")] == [(fact.name, fact.attrs["reason"]) for fact in recorder.facts]
    assert "GATE-075" == said[-1]["error"]["data"]["id"]
    assert (7 if b"initialize" in line else None) == said[-1]["id"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda body: body.replace("ed25519/", "sha256/"),
        lambda body: body.replace('"acme"', '"anonymous"'),
        lambda body: body.replace("audience", "name"),
        lambda body: body + body[body.index("[[") :],
        lambda body: body[: body.index("[[")],
        lambda body: body + "scopes = []\n",
        lambda body: body.replace(AUDIENCE, "a" * 300),
    ],
)
def test_a_file_of_clients_that_is_not_meant_is_refused(spoil: Callable[[str], str], tmp_path: Path) -> None:
    """CLI-202; the control is read."""
    place = clients_file(tmp_path)
    assert CLIENTS == signin.load_clients(place)[1]
    place.write_text(spoil(place.read_text()))

    with pytest.raises(UsageError, match="CLI-202"):
        signin.load_clients(place)


def test_the_command_line_cannot_say_another_tenant(tmp_path: Path) -> None:
    """`--tenant` beside `--clients` is refused: nobody chooses who he is."""
    arguments = argparse.Namespace(clients=clients_file(tmp_path), tenant="beta", user="")
    with pytest.raises(UsageError, match="CLI-202"):
        signin.sign_in(arguments, MemoryRecorder())


@pytest.mark.claim("P-GATE-13")
def test_nothing_is_reviewed_or_started_for_a_stranger(tmp_path: Path) -> None:
    """`run --clients` ends with 3 before it looks at the driver, let alone starts one; the trail says why."""
    audit = tmp_path / "audit"
    command = [sys.executable, "-m", "sandbox", "run", "no-such-driver/DRIVER.md", "--clients",
               str(clients_file(tmp_path)), "--audit-dir", str(audit)]  # fmt: skip
    asked = b'{"jsonrpc":"2.0","id":1,"method":"initialize"}\n'
    stranger = subprocess.run(command, input=asked, capture_output=True, check=False)
    prove = [sys.executable, "-m", "sandbox", "prove", "--key", str(key_file(tmp_path)), "--audience", AUDIENCE, "--"]
    known = subprocess.run([*prove, *command], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    trail = "".join(path.read_text() for path in audit.rglob("*.jsonl"))

    assert 3 == stranger.returncode
    assert b"GATE-075" in stranger.stdout
    assert b"DRIVER.md" not in stranger.stderr
    assert known.returncode in {1, 2}
    assert b"no-such-driver" in known.stderr
    names = [json.loads(line)["name"] for line in trail.splitlines() if '"client.' in line]
    assert ["client.refuse", "client.sign_in"] == sorted(names)


def test_prove_passes_everything_on_and_returns_the_status(tmp_path: Path) -> None:
    """Bytes go through as they are, in both directions; the end and the status come through too."""
    script = tmp_path / "server.py"
    message = json.dumps(challenge(AUDIENCE).message())
    script.write_text(
        "import sys\n"
        f"sys.stdout.write({message!r} + '\\n'); sys.stdout.flush()\n"
        "proof = sys.stdin.buffer.readline()\nassert b'proof' in proof\n"
        "data = sys.stdin.buffer.read()\nsys.stdout.buffer.write(data[::-1])\nsys.exit(7)\n"
    )
    data = os.urandom(300_000)
    asked = ["prove", "--key", str(key_file(tmp_path)), "--audience"]
    command = [sys.executable, "-m", "sandbox", *asked, AUDIENCE, "--", sys.executable, str(script)]
    other = [*command[:6], "--audience", "else", "--", *command[-2:]]
    done = subprocess.run(command, input=data, capture_output=True, check=False, cwd=ROOT)
    wrong = subprocess.run(other, capture_output=True, check=False, cwd=ROOT)

    assert (7, data[::-1]) == (done.returncode, done.stdout)
    assert (3, b"") == (wrong.returncode, wrong.stdout)
    assert b"CLI-204" in wrong.stderr


def test_keys_that_others_can_read_are_not_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-203, also for a key of another kind; `--show` prints what the file of clients needs."""
    place = key_file(tmp_path)
    assert 0 == main(["prove", "--key", str(place), "--show"])
    assert pin_of(ALICE.public_key()) == capsys.readouterr().out.strip()
    assert 2 == main(["prove", "--key", str(place)])
    place.chmod(0o644)
    with pytest.raises(UsageError, match="CLI-203"):
        load_key(place)
    place.chmod(0o600)
    place.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    with pytest.raises(UsageError, match="CLI-203"):
        load_key(place)
