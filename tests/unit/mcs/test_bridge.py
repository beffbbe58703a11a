"""Somebody's tool driver is copied as data, never imported here; our program speaks MCP for it. No engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.cli import main
from sandbox.errors import PlatformError, UsageError
from sandbox.launch.install import pip
from sandbox.mcs import SandboxedDriver, SandboxedToolDriver, bridge, own
from tests.shared import ROOT

DRIVER = """
import pathlib, sys
pathlib.Path({marker!r}).write_text("imported")
print("noise")
from mcs.driver.core import DriverBinding, DriverMeta, MCSToolDriver, Tool, ToolParameter

class Greeter(MCSToolDriver):
    meta = DriverMeta("g", "Greeter", "1.2.3", (DriverBinding("g", "*", "Custom"),), None, ("orchestratable",))

    def __init__(self, greeting="Hello"):
        self.greeting = greeting

    def list_tools(self):
        return [Tool("greet", "Greet", None, [ToolParameter("who", "Name.", True, {{"type": "string"}})])]

    def execute_tool(self, tool_name, arguments):
        print("more noise")
        if arguments["who"] == "nobody":
            raise ValueError("nobody is there")
        if arguments["who"] == "set":
            return {{1, 2}}
        return {{"said": f"{{self.greeting}} {{arguments['who']}}"}}
"""


def source(place: Path) -> Path:
    """Return a folder with a driver that leaves a mark when it is imported."""
    folder = place / "source"
    (folder / "__pycache__").mkdir(parents=True)
    (folder / "greeter.py").write_text(DRIVER.format(marker=str(place / "marker")))
    (folder / "__pycache__" / "x.pyc").write_bytes(b"x")
    (folder / "link").symlink_to("/etc/passwd")
    return folder


def made(place: Path, **settings: Any) -> Any:
    """Return what the folder is made from."""
    return bridge.bridged("greeter:Greeter", source(place), settings, {}, {})


@pytest.mark.claim("P-MCS-05")
def test_nothing_of_the_driver_is_imported_here(tmp_path: Path) -> None:
    """Its files are copied byte for byte; neither links nor caches are; its import, as a control, leaves a mark."""
    found = made(tmp_path)
    names = set(found.files)

    assert {"serve_mcs.py", "inside/own.py", "inside/source/greeter.py"} == names
    assert (tmp_path / "source" / "greeter.py").read_bytes() == found.files["inside/source/greeter.py"]
    assert not (tmp_path / "marker").exists()
    assert "greeter" not in sys.modules
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'source')!r}); import greeter"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    "name", ["greeter", "greeter:", ":Greeter", "a b:C", "../x:C", "greeter:C()", "-c:import", "os;x:y", "a:b\n"]
)
def test_names_that_are_no_class_are_refused(name: str, tmp_path: Path) -> None:
    """Nothing but dotted names reaches the program inside."""
    with pytest.raises(UsageError, match="CLI-220"):
        bridge.bridged(name, tmp_path, {}, {}, {})


def test_folders_beyond_the_bounds_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many files, too large, or none at all."""
    monkeypatch.setattr(bridge, "MAX_BYTES", 10)
    for folder in (tmp_path / "nowhere", source(tmp_path)):
        with pytest.raises(UsageError, match="CLI-220"):
            bridge.copied(folder)


def test_the_same_driver_has_the_same_folder(tmp_path: Path) -> None:
    """Files, settings and grants name it; one byte more is another one."""
    first = made(tmp_path / "a")
    names = {
        bridge.digest_of(first),
        bridge.digest_of(made(tmp_path / "b", greeting="Hi")),
        bridge.digest_of(bridge.bridged("greeter:Greeter", tmp_path / "a" / "source", {}, {"/w": "/x"}, {})),
    }
    assert 3 == len(names)
    (tmp_path / "a" / "source" / "greeter.py").write_text("# changed")
    changed = bridge.bridged("greeter:Greeter", tmp_path / "a" / "source", {}, {}, {})
    assert bridge.digest_of(changed) not in names
    assert bridge.digest_of(changed) == bridge.digest_of(
        bridge.bridged("greeter:Greeter", tmp_path / "a" / "source", {}, {}, {})
    )


def spoken(place: Path, *requests: dict[str, Any], interface: bool) -> list[dict[str, Any]]:
    """Return what our program answers, run as a plain process of the tests.

    Args:
        place: scratch folder.
        requests: JSON-RPC requests without version and id.
        interface: whether the published package can be imported.
    """
    program = Path(bridge.__file__).parent / "inside" / "serve_mcs.py"
    inside = place / "mcs"
    inside.mkdir(exist_ok=True)
    (inside / "own.py").write_bytes(Path(own.__file__).read_bytes())
    (inside / "source").symlink_to(source(place))
    text = program.read_text().replace('Path("/mcs")', f"Path({str(inside)!r})")
    words = [sys.executable, *([] if interface else ["-S"]), "-c", text, "greeter:Greeter", '{"greeting": "Hi"}']
    lines = "".join(json.dumps({"jsonrpc": "2.0", "id": n, **one}) + "\n" for n, one in enumerate(requests))
    done = subprocess.run(
        words, input=lines, capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]}
    )
    assert "noise" in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("interface", [True, False], ids=["published", "own"])
def test_our_program_speaks_mcp_for_a_driver(interface: bool, tmp_path: Path) -> None:
    """With the published interface beside it and without; what the driver prints is no protocol."""
    who = [
        {"method": "tools/call", "params": {"name": "greet", "arguments": {"who": one}}}
        for one in ("you", "nobody", "set")
    ]
    answers = spoken(
        tmp_path, {"method": "initialize", "params": {"protocolVersion": "2025-06-18"}}, {"method": "tools/list"}, *who,
        {"method": "nonsense"}, {"method": "ping"}, interface=interface,
    )  # fmt: skip

    assert ("2025-06-18", "Greeter") == (
        answers[0]["result"]["protocolVersion"],
        answers[0]["result"]["serverInfo"]["name"],
    )
    (listed,) = answers[1]["result"]["tools"]
    assert ("greet", ["who"], False) == (
        listed["name"],
        listed["inputSchema"]["required"],
        listed["inputSchema"]["additionalProperties"],
    )
    texts = [(one["result"]["isError"], one["result"]["content"][0]["text"]) for one in answers[2:5]]
    assert (False, '{"said": "Hi you"}') == texts[0]
    assert (True, "ValueError: nobody is there") == texts[1]
    assert (True, True) == (texts[2][0], texts[2][1].startswith("TypeError"))
    assert (-32601, {}) == (answers[5]["error"]["code"], answers[6]["result"])


def test_a_package_is_installed_and_our_program_runs_with_it(tmp_path: Path) -> None:
    """With a package, the interpreter is the program and ours its first argument; files of one's own may come along."""
    alone = bridge.bridged("a.b:C", None, {}, {}, {}, "mcs-driver-x==1.0")
    both = bridge.bridged("greeter:Greeter", source(tmp_path), {}, {}, {}, "mcs-driver-core==0.4.1")

    assert {"kind": "binary", "path": "python3", "args": ["/mcs/serve_mcs.py", "a.b:C", "{}"]} == alone.server(
        alone.name
    )
    assert [{"method": "pip", "package": "mcs-driver-x==1.0"}] == alone.install(alone.name)
    assert {"inside/own.py", "inside/serve_mcs.py"} == set(alone.files)
    assert {"inside/source/greeter.py"} == set(both.files) - set(alone.files)


def test_a_named_interpreter_runs_a_file_with_the_installed_packages(tmp_path: Path) -> None:
    """What starts it imports from the installed tree only, and hands the file its own arguments."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "installed.py").write_text("word = 'installed'")
    (tmp_path / "beside.py").write_text("word = 'beside'")
    (tmp_path / "file.py").write_text(
        "import installed, sys\n"
        "try:\n    import beside\nexcept ImportError:\n    print(installed.word, __name__, sys.argv[1:])\n"
    )
    (tmp_path / "start.py").write_text(pip.file_starter().decode().replace(f"/{pip.SITE}", str(site)))
    words = [sys.executable, "-I", str(tmp_path / "start.py"), str(tmp_path / "file.py"), "a", "b"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert "installed __main__ ['a', 'b']" == done.stdout.strip(), done.stderr


def test_a_driver_folder_says_itself_what_it_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    """`mcs serve DRIVER.md` takes no grants and no settings."""
    status = main(["mcs", "serve", str(ROOT / "drivers" / "text-mcp"), "--read", "/a=/b"])

    assert (2, True) == (status, "CLI-221" in capsys.readouterr().err)


# --- autostart --------------------------------------------------------------------------------------------------------
@pytest.mark.claim("P-MCS-01")
@pytest.mark.parametrize("kind", [SandboxedToolDriver, SandboxedDriver])
def test_autostart_without_an_engine_starts_nothing(
    kind: type[SandboxedToolDriver], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither an image nor a driver's program runs as a bare process: both fail for want of an engine."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    before = set(_children())
    audit = str(tmp_path / "audit")

    with kind(audit_dir=audit) as driver, pytest.raises(PlatformError, match="LAUNCH-001"):
        driver.autostart(image="mcp-sandbox/signing-server:1")
    with (
        kind(str(ROOT / "drivers" / "text-mcp"), audit_dir=audit) as driver,
        pytest.raises(PlatformError, match="LAUNCH"),
    ):
        driver.autostart()

    assert set(_children()) == before


def _children() -> list[str]:
    tasks = Path("/proc/self/task")
    return [one for task in tasks.iterdir() for one in (task / "children").read_text().split()]


IMAGE = {"image": "x"}
WANTED = [
    {"image": ""},
    {"image": 1},
    {"args": ["x"]},
    {"command": "sh"},
    {**IMAGE, "args": "x"},
    {**IMAGE, "privileged": True},
    {**IMAGE, "network": "host"},
    {**IMAGE, "volumes": {"/": "/host"}},
]


@pytest.mark.parametrize("wanted", WANTED, ids=range(len(WANTED)))
def test_autostart_takes_nothing_that_opens_the_sandbox(wanted: dict[str, Any]) -> None:
    """No option of the engine can be passed through."""
    with SandboxedToolDriver() as driver, pytest.raises(UsageError, match="MCS-013"):
        driver.autostart(**wanted)


def test_a_driver_without_a_server_says_so() -> None:
    """And one that has its server takes no other."""
    with SandboxedToolDriver() as empty:
        assert "UNKNOWN" == empty.healthcheck()["status"].value
        assert {"driver": "mcp-sandbox", "state": "new"} == empty.get_status()
        with pytest.raises(UsageError, match="MCS-013"):
            empty.list_tools()
    with SandboxedToolDriver(str(ROOT / "drivers" / "text-mcp")) as bound, pytest.raises(UsageError, match="MCS-013"):
        bound.autostart(image="x")
