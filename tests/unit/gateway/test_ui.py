"""The operator's page: who gets in, what it shows, what approving does, and what is left of attacks on it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from sandbox.events import Scope, Trace
from tests.ui_lab import TOKEN, Stage, stage

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

PATHS = (
    "/ui", "/ui/", "/ui/parts", "/ui/change?driver=test-mcp", "/ui/static/ui.js", "/ui/static/none", "/ui/sign-in",
    "/ui/sign-in?code=guess", "/ui/static/%2e%2e/%2e%2e/app.py", "/ui/static//etc/passwd",
    "/ui/nothing",
)  # fmt: skip


@pytest.mark.claim("P-UI-01")
async def test_without_a_credential_everything_below_ui_is_one_answer(tmp_path: Path) -> None:
    """What is there, what is not, and wrong secrets cannot be told apart, nor does the tenant without tokens get in."""
    async with stage(tmp_path / "driver") as on:
        told = {path: await on.get(path) for path in PATHS}
        cookie = await on.get(cookie=f"mcp-sandbox-ui-{on.url.rpartition(':')[2]}=made-up")
        junk = await on.get(authorization="Basic YTpi")
        forged = await on.get(authorization="Bearer e30.e30.e30")
        answers = {(one.status_code, one.text) for one in (*told.values(), cookie, junk, forged)}
        post = await on.post("/ui/approve", {"driver": "test-mcp"})

        assert 1 == len(answers), {path: one.status_code for path, one in told.items()}
        assert {401} == {status for status, _ in answers}
        assert "test-mcp" not in next(iter(answers))[1]
        assert (401, []) == (post.status_code, on.facts("pins.approve"))
        assert len(PATHS) + 4 == len(on.facts("gateway.refuse"))
        assert all("set-cookie" not in one.headers for one in told.values())


@pytest.mark.claim("P-UI-01")
async def test_where_nobody_may_come_in_there_is_no_page(tmp_path: Path) -> None:
    """Without link, token file or issuer the page answers as what does not exist."""
    async with stage(tmp_path / "driver", link=False, token="") as on:
        page, other = await on.get(), await on.get("/nothing")
        assert (404, 404, page.text) == (page.status_code, other.status_code, other.text)


@pytest.mark.claim("P-UI-02")
async def test_scopes_decide_who_looks_and_who_approves(tmp_path: Path) -> None:
    """A caller's token gets 403, an administrator's looks and does not approve, an operator's does both."""
    async with stage(tmp_path / "driver") as on:
        await on.sign_in()
        path = await on.change()
        on.client.cookies.clear()
        before, caller = on.approved(), on.bearer("files:read")
        admin, operator = on.bearer("mcp-sandbox:admin"), on.bearer("mcp-sandbox:operator", sub="olga")
        foreign = on.bearer("mcp-sandbox:admin", audience="https://else.example")
        looked = {name: (await on.get(**who)).status_code for name, who in (("caller", caller), ("admin", admin))}
        shown = await on.get(path, **admin)
        fields = dict(
            re.findall(r'name="(form|driver|digest|base)" value="([^"]*)"', (await on.get(path, **operator)).text)
        )
        theirs = await on.post("/ui/approve", fields, **admin)

        assert {"caller": 403, "admin": 200} == looked
        assert 401 == (await on.get(**foreign)).status_code
        assert "Approve exactly this" not in shown.text
        assert (403, before) == (theirs.status_code, on.approved())
        assert 303 == (await on.post("/ui/approve", fields, **operator)).status_code
        assert before != on.approved()
        assert "olga of acme" == next(one["by"] for one in on.facts("pins.approve") if "by" in one)


@pytest.mark.claim("P-UI-03")
async def test_a_link_counts_once_and_only_by_the_form(tmp_path: Path) -> None:
    """Reading the link changes nothing, using it opens one session, and using it again opens none."""
    async with stage(tmp_path / "driver") as on:
        code = on.link.partition("code=")[2]
        reads = [(await on.get(on.link)).status_code for _ in range(3)]
        first = await on.sign_in(code)
        given = first.headers["set-cookie"]
        on.client.cookies.clear()
        again = await on.sign_in(code)

        assert [200, 200, 200] == reads
        assert 43 <= len(code), "256 bits"
        assert (303, 401) == (first.status_code, again.status_code)
        assert re.fullmatch(r"mcp-sandbox-ui-\d+=[\w-]{43}; Path=/ui; HttpOnly; SameSite=Strict; Max-Age=28800", given)
        assert "set-cookie" not in again.headers
        assert [("link", "127.0.0.1")] == [(one["way"], one["peer"]) for one in on.facts("operator.sign_in")]
        assert code not in str(on.recorder.facts), "no secret is on record"


async def test_a_session_id_from_elsewhere_is_never_taken_on(tmp_path: Path) -> None:
    """Who signs in with somebody's cookie already set gets a fresh session; the planted one opens nothing."""
    async with stage(tmp_path / "driver") as on:
        name = f"mcp-sandbox-ui-{on.url.rpartition(':')[2]}"
        planted = {"cookie": f"{name}=planted-by-somebody"}
        signed = await on.post("/ui/sign-in", {"code": TOKEN}, **planted)
        own = signed.headers["set-cookie"].partition(";")[0]
        on.client.cookies.clear()

        assert 303 == signed.status_code
        assert "planted" not in own
        assert 401 == (await on.get(**planted)).status_code
        assert 401 == (await on.get(cookie=f"{own}; {name}=planted-by-somebody")).status_code, "of two none counts"
        assert 200 == (await on.get(cookie=own)).status_code


async def test_signing_out_ends_the_session_on_the_server(tmp_path: Path) -> None:
    """A cookie that somebody copied before is worth nothing after it."""
    async with stage(tmp_path / "driver") as on:
        copied = (await on.sign_in()).headers["set-cookie"].partition(";")[0]
        out = await on.post("/ui/sign-out", {"form": await on.form()})
        on.client.cookies.clear()

        assert (200, "Max-Age=0") == (out.status_code, out.headers["set-cookie"].rpartition("; ")[2])
        assert 401 == (await on.get(cookie=copied)).status_code
        assert 1 == len(on.facts("operator.sign_out"))


FORGERIES = (
    {"origin": "https://evil.example"}, {"origin": "null"}, {"origin": ""}, {"origin": "http://127.0.0.1:1"},
    {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"content-type": "text/plain"},
    {"content-type": "application/json"},
)  # fmt: skip


@pytest.mark.claim("P-UI-04")
async def test_no_page_but_its_own_can_make_it_approve(tmp_path: Path) -> None:
    """Forms of other origins, without origin, of another type or without the session's own secret approve nothing."""
    async with stage(tmp_path / "driver") as on:
        await on.sign_in()
        path = await on.change()
        before, fields = on.approved(), await on.fields(path)
        forged = [await on.post("/ui/approve", fields, **headers) for headers in FORGERIES]
        forged += [
            await on.post("/ui/approve", {**fields, "form": wrong}) for wrong in ("", "0" * 64, fields["form"][:-1])
        ]
        forged.append(await on.post("/ui/approve", "&".join(f"{k}={v}" for k, v in [*fields.items(), ("form", "x")])))
        forged.append(await on.client.get(on.url + "/ui/approve", params=fields))
        forged.append(await on.post("/ui/approve", {**fields, "more": "x" * 5000}))

        assert {400, 403, 404} >= {one.status_code for one in forged}
        assert (before, []) == (on.approved(), on.facts("pins.approve"))
        assert 303 == (await on.post("/ui/approve", fields)).status_code, "its own form does"
        assert before != on.approved()


async def test_nobody_can_be_signed_in_by_another_page(tmp_path: Path) -> None:
    """A form of another origin with a secret that holds opens no session (login CSRF)."""
    async with stage(tmp_path / "driver") as on:
        answer = await on.post("/ui/sign-in", {"code": TOKEN}, origin="https://evil.example")
        assert (403, []) == (answer.status_code, on.facts("operator.sign_in"))
        assert "set-cookie" not in answer.headers


@pytest.mark.claim("P-UI-05")
async def test_approving_puts_the_tool_back_into_service_at_once(tmp_path: Path) -> None:
    """The held tool is listed and called again in the session that lost it, and the lock holds what was shown."""
    async with stage(tmp_path / "driver") as on:
        await on.sign_in()
        path, headers = await on.change(), await on.session()
        held, refused = await on.tools(headers), await on.call(headers)
        shown, fields = (await on.get(path)).text, await on.fields(path)
        approved = await on.post("/ui/approve", fields)
        after, called = await on.tools(headers), await on.call(headers)

        assert (["my-write"], True) == (held, "VET-140" in str(refused))
        assert "+ Now Returns the file." in shown or "+ Now" in shown
        assert 303 == approved.status_code
        assert (fields["digest"], ["my-read", "my-write"]) == (on.approved(), sorted(after))
        assert not called["result"]["isError"]
        parts = (await on.get("/ui/parts")).text
        assert "Every server offers what was approved" in parts
        assert (0, True) == (parts.count(">look<"), "approved as it is offered" in parts)
        assert ["token-file"] == [one["by"].partition(" ")[0] for one in on.facts("pins.approve") if "by" in one]


async def test_a_tool_that_was_held_from_the_start_can_be_called_once_approved(tmp_path: Path) -> None:
    """An instance that began with the changed tool had nothing prepared for it; after the approval it carries calls."""
    async with stage(tmp_path / "driver") as on:
        on.shift.append("Now ")
        await on.sign_in()
        headers = await on.session()
        held = await on.tools(headers)
        fields = await on.fields(await on.pending())
        await on.post("/ui/approve", fields)

        assert ["my-write"] == held
        assert ["my-read", "my-write"] == sorted(await on.tools(headers))
        assert not (await on.call(headers))["result"]["isError"]


@pytest.mark.claim("P-UI-05")
async def test_what_is_no_longer_pending_is_not_approved(tmp_path: Path) -> None:
    """A server that changes after it was read, and a lock that changed meanwhile, leave the approval without effect."""
    async with stage(tmp_path / "driver") as on:
        await on.sign_in()
        path = await on.change()
        before, fields = on.approved(), await on.fields(path)
        on.shift.append("Once more ")
        newer = await on.pending(path)
        moved = await on.post("/ui/approve", fields)
        guessed = await on.post("/ui/approve", {**fields, "digest": "sha256:" + "0" * 64})
        based = await on.post("/ui/approve", {**await on.fields(newer), "base": "sha256:" + "0" * 64})

        assert newer != path
        assert [409, 409, 409] == [moved.status_code, guessed.status_code, based.status_code]
        assert (409, before) == ((await on.get(path)).status_code, on.approved())
        fresh = await on.fields(newer)
        (on.folder / "driver.lock").unlink()
        assert 409 == (await on.post("/ui/approve", fresh)).status_code, "the lock is not what it was compared with"
        assert not (on.folder / "driver.lock").exists()


async def test_a_server_that_nobody_approved_is_shown_whole(tmp_path: Path) -> None:
    """First use is told apart from a change; approving it writes the pins that were missing."""
    async with stage(tmp_path / "driver", pinned=False) as on:
        await on.sign_in()
        headers = await on.session()
        await on.tools(headers)
        parts = (await on.get("/ui/parts")).text
        path = re.findall(r'href="(/ui/change\?[^"]+)"', parts)[0].replace("&amp;", "&")
        page = (await on.get(path)).text
        done = await on.post("/ui/approve", await on.fields(path))

        assert "never approved" in parts
        assert "tools/write" in page
        assert 303 == done.status_code
        assert on.approved()


@pytest.mark.claim("P-UI-06")
async def test_an_approval_that_cannot_be_recorded_does_not_happen(tmp_path: Path) -> None:
    """Without a trail nothing is written; with it, who decided stands there before the effect."""
    async with stage(tmp_path / "driver") as on:
        await on.sign_in()
        path = await on.change()
        before, fields = on.approved(), await on.fields(path)
        codes = []
        for name in ("operator.approve", "pins.approve/intent"):
            on.recorder.fails_at = frozenset((name,))
            codes.append((await on.post("/ui/approve", fields)).status_code)
        on.recorder.fails_at = frozenset(("operator.sign_in",))
        on.client.cookies.clear()
        signed = await on.sign_in()
        on.recorder.fails_at = frozenset()

        assert [500, 500] == codes
        assert before == on.approved()
        assert (500, False) == (signed.status_code, "set-cookie" in signed.headers)


async def test_a_lock_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says how to approve instead, and what was held stays out of service."""

    def fails(*_: object) -> None:
        raise PermissionError(13, "read-only")

    async with stage(tmp_path / "driver") as on:
        await on.sign_in()
        path, headers = await on.change(), await on.session()
        monkeypatch.setattr("sandbox.vet.pins.write", fails)
        answer = await on.post("/ui/approve", await on.fields(path))

        assert (409, True) == (answer.status_code, "GATE-092" in answer.text)
        assert ["my-write"] == await on.tools(headers)


async def test_only_the_static_files_that_exist_are_given(tmp_path: Path) -> None:
    """Paths that climb, encode or name other files of this machine find nothing, also for who is signed in."""
    async with stage(tmp_path / "driver") as on:
        await on.sign_in()
        good = await on.get("/ui/static/ui.js")
        tried = (
            "../app.py",
            "..%2fapp.py",
            "%2e%2e/app.py",
            "ui.js%00.css",
            "//etc/passwd",
            "UI.JS",
            "ui.js/../ui.css",
            "",
        )
        found = {name: await raw(on, f"/ui/static/{name}") for name in tried}

        assert (200, "text/javascript; charset=utf-8") == (good.status_code, good.headers["content-type"])
        assert {404} == set(found.values()), found


async def raw(on: Stage, path: str) -> int:
    """Return the status of a path that no client library has tidied."""
    host, port = on.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    cookie = "; ".join(f"{one.name}={one.value}" for one in on.client.cookies.jar)
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n".encode()
    )
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])


async def test_header_fields_hold_and_nothing_of_a_request_reaches_them(tmp_path: Path) -> None:
    """Every answer forbids scripts of others, framing, sniffing and storing; line ends in a request add no field."""
    async with stage(tmp_path / "driver") as on:
        await on.sign_in()
        evil = "%0d%0aSet-Cookie:%20x=1"
        answers = [
            await on.get(), await on.get("/ui/parts"), await on.get(f"/ui/change?driver={evil}&digest={evil}&base="),
            await on.get(f"/ui/sign-in?code={evil}"), await on.get(f"/ui/{evil}"), await on.get("/ui/static/ui.css"),
            await on.post("/ui/sign-in", {"code": "x\r\nSet-Cookie: x=1"}),
        ]  # fmt: skip
        for one in answers:
            policy = one.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert {"nosniff", "DENY", "no-store"} <= set(one.headers.values()), one.url
            assert "x=1" not in str(one.headers)
        assert 421 == (await on.get(host="evil.example")).status_code


async def test_what_is_remembered_does_not_grow(tmp_path: Path) -> None:
    """Tens of thousands of made-up facts leave as many rows as a page shows, and the page still comes."""
    async with stage(tmp_path / "driver") as on:
        await on.sign_in()
        seen = on.watch.seen
        record = Scope(seen, Trace.new(), tenant="t", driver="test-mcp")
        for number in range(5000):
            line = f'- "{number}.example"'
            record.fact("egress.connect", host=f"{number}.example", port=443, decision="deny", reason="EGR-101",
                        why="x", allow_line=line)  # fmt: skip
            record.fact("gateway.refuse", reason="GATE-020", status=401, path="/" + "x" * 5000, method="GET", peer="p")
            record.fact("gateway.skip", folder=f"folder-{number}", reason="X")
            record.within(driver=f"d{number}").fact("vet.refuse", reason="VET-1", message="y" * 5000, offered=0)
        on.recorder.facts.clear()

        rows = [len(one) for one in (seen.denials, seen.refusals, seen.skipped, seen.verdicts)]
        page = await on.get()
        assert [100, 60, 50, 500] == rows
        assert 5000 == seen.turned
        assert (200, True) == (page.status_code, len(page.content) < 200_000)
        assert "add to network.egress: - &#34;4999.example&#34;" in page.text
