"""Actions on packages that are files or folders: create, validate, inspect, sign, verify."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sandbox.cli import options
from sandbox.cli.packages.common import TRUST, action, add_signature, existing, tell
from sandbox.cli.report import line_of, say
from sandbox.errors import Refused, UsageError
from sandbox.mcpkg import signatures
from sandbox.mcpkg.archive import Archive
from sandbox.mcpkg.contents import Contents, FolderContents, open_contents
from sandbox.mcpkg.create import file_name, pack, write_file
from sandbox.mcpkg.find import describe
from sandbox.mcpkg.manifest import read_package
from sandbox.mcpkg.model import HttpEndpoint
from sandbox.mcpkg.trust import load_trust
from sandbox.registry.history.bare import environment, tree_of

PROVENANCE: Final = "meta/provenance.json"


def add_arguments(actions: Any) -> None:
    """Declare the actions."""
    create = action(actions, "create", "make a package of a folder; the same folder gives the same bytes", _create)
    create.add_argument("folder", type=options.path, metavar="DIR")
    create.add_argument("--out", type=options.path, metavar="FILE", help="default: <toolId>-<version>.mcpkg here")
    create.add_argument("--provenance", action="store_true", help="write meta/provenance.json from the folder's git")
    validate = action(actions, "validate", "report everything that is wrong with a package or folder", _validate)
    validate.add_argument("package", type=options.path, metavar="FILE")
    inspect = action(actions, "inspect", "show what a package holds, without installing it", _inspect)
    inspect.add_argument("package", type=options.path, metavar="FILE")
    sign = action(actions, "sign", "sign a package or folder with an Ed25519 key", _sign)
    sign.add_argument("package", type=options.path, metavar="FILE", nargs="?")
    sign.add_argument("--key", type=options.path, metavar="PEM", help="private key")
    sign.add_argument("--publisher", default="", metavar="ID", help="who signs (default: the manifest's publisher)")
    sign.add_argument("--new-key", type=options.path, metavar="PEM", help="make a key, and print its public part")
    sign.add_argument("--statement", action="store_true", help="print the bytes that a Sigstore bundle has to be over")
    sign.add_argument("--bundle", type=options.path, metavar="FILE", help="put a Sigstore bundle over them in")
    verify = action(actions, "verify", "say who signed a package; exit status 3 when nobody trusted did", _verify)
    verify.add_argument("package", type=options.path, metavar="FILE")
    add_signature(verify, "require")


def _create(arguments: argparse.Namespace) -> int:
    folder = FolderContents(existing(arguments.folder), tidy=True)
    manifest, _, findings = read_package(folder)
    more = {PROVENANCE: provenance(arguments.folder)} if arguments.provenance else {}
    data = pack(folder, more, frozenset({signatures.FILE}) if more else frozenset())
    out = arguments.out or Path(file_name(manifest.tool_id, manifest.version))
    read_package(Archive(data, str(out)))  # what is written is what a host will accept
    write_file(out, data)
    tell(findings)
    if folder.left_out:
        say(line_of(f"left out: {', '.join(folder.left_out)}"))
    print(json.dumps({"file": str(out), "bytes": len(data)}) if arguments.json else out)
    return 0


def provenance(folder: Path) -> bytes:
    """Return ``meta/provenance.json`` from git, with the commit's time: the same commit gives the same bytes.

    The folder may be somebody else's, and what its repository configures can start programs: git reads the objects from
    a repository of ours (ADR 0113), and the configuration as a text file.

    Raises:
        UsageError: ``PKG-027``, the folder is not in a git repository with a commit.
    """
    tree = tree_of(folder)
    if tree is None:
        raise _no_commit(folder)
    with environment(tree) as given:
        found = {
            "sourceRepo": _git(
                given, "config", "--file", str(tree.common / "config"), "--no-includes", "--get", "remote.origin.url"
            ),
            "commit": tree.commit,
            "builtAt": _git(given, "log", "-1", "--format=%cI", tree.commit),
            "builtBy": _git(given, "log", "-1", "--format=%ce", tree.commit),
        }
    if not found["builtAt"]:
        raise _no_commit(folder)
    before, at, after = found["sourceRepo"].partition("@")
    if at and "://" in before:  # an address may hold a token
        found["sourceRepo"] = before.partition("://")[0] + "://" + after
    return json.dumps(found, indent=2, sort_keys=True).encode() + b"\n"


def _no_commit(folder: Path) -> UsageError:
    return UsageError("PKG-027", f"{folder} is not in a git repository with a commit", "leave --provenance out")


def _git(environ: Mapping[str, str], *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words],  # noqa: S607 - the git that this person uses
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=environ,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _validate(arguments: argparse.Namespace) -> int:
    manifest, cases, findings = read_package(open_contents(existing(arguments.package)))
    if arguments.json:
        problems = [{key: getattr(one, key) for key in one.__slots__} for one in findings.problems]
        print(json.dumps({"toolId": manifest.tool_id, "version": manifest.version, "problems": problems}))
        return 0
    tell(findings)
    print(f"{manifest.tool_id} {manifest.version}: valid, MCPKG {manifest.format}, {len(cases)} tests")
    return 0


def _inspect(arguments: argparse.Namespace) -> int:
    contents = open_contents(existing(arguments.package))
    manifest, cases, findings = read_package(contents)
    try:
        signed = signatures.verify(contents, manifest, load_trust(TRUST))
        signature = f"{signed.state}{f', as {signed.publisher}' if signed.publisher else ''}"
    except Refused as error:
        signature = f"broken: {error.message}"
    shown = {
        "toolId": manifest.tool_id,
        "name": manifest.name,
        "version": manifest.version,
        "format": manifest.format,
        "description": manifest.description,
        "capabilities": list(manifest.capabilities),
        "works": describe(manifest),
        "egress": sorted({i.endpoint.origin for i in manifest.implementations if isinstance(i.endpoint, HttpEndpoint)}),
        "credential": ", ".join(manifest.auth.env[:1]) if manifest.auth.type != "none" else "",
        "tests": [case.name for case in cases],
        "signature": signature,
        "files": {name: contents.size(name) for name in contents.names()},
    }
    if arguments.json:
        print(json.dumps(shown, indent=1, ensure_ascii=False))
        return 0
    for key, value in shown.items():
        text = ", ".join(map(str, value)) if isinstance(value, list | dict) else str(value)
        print(line_of(f"{key:<13} {text or '-'}"))
    tell(findings)
    return 0


def _sign(arguments: argparse.Namespace) -> int:
    if arguments.new_key is not None:
        pem, public = signatures.new_key()
        descriptor = os.open(arguments.new_key, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
        print(json.dumps({"key": public}) if arguments.json else public)
        return 0
    if arguments.package is not None and (arguments.statement or arguments.bundle is not None):
        return _sign_by_bundle(arguments)
    if arguments.package is None or arguments.key is None:
        raise UsageError("CLI-170", "nothing says what is signed with which key", "write `pkg sign FILE --key PEM`")
    key = signatures.load_key(arguments.key)
    contents = open_contents(existing(arguments.package))
    manifest, _, _ = read_package(contents)
    publisher = arguments.publisher or manifest.publisher
    if not publisher:
        raise UsageError("CLI-170", "nothing says who signs", "write `--publisher ID`, or meta.publisher.id")
    _put(arguments.package, contents, signatures.sign(contents, manifest, key, publisher))
    shown = {"publisher": publisher, "key": signatures.key_text(key)}
    print(json.dumps(shown) if arguments.json else f"signed as {publisher} with {shown['key']}")
    return 0


def _put(package: Path, contents: Contents, data: bytes) -> None:
    """Put a signature into a package or folder."""
    if package.is_dir():
        (package / "meta").mkdir(exist_ok=True)
        write_file(package / signatures.FILE, data)
    else:
        write_file(package, pack(contents, {signatures.FILE: data}))


def _sign_by_bundle(arguments: argparse.Namespace) -> int:
    """Print what a Sigstore client signs, or put in what it made; verification is `pkg verify`'s."""
    contents = open_contents(existing(arguments.package))
    manifest, _, _ = read_package(contents)
    if arguments.statement:
        sys.stdout.buffer.write(signatures.statement(contents, manifest))
        return 0
    _put(arguments.package, contents, options.read_file(arguments.bundle))
    print(json.dumps({"bundle": str(arguments.bundle)}) if arguments.json else f"put in: {arguments.bundle}")
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    contents = open_contents(existing(arguments.package))
    manifest, _, _ = read_package(contents)
    signed = signatures.verify(contents, manifest, load_trust(arguments.trust))
    if arguments.json:
        print(json.dumps({"state": signed.state, "publisher": signed.publisher, "key": signed.key}))
    warning = signatures.demand(signed, arguments.signatures, manifest.tool_id)
    if warning:
        say(line_of(f"warning: {warning}"))
    if not arguments.json:
        print(line_of(f"{signed.state}{f': signed as {signed.publisher}' if signed.publisher else ''}"))
    return 0
