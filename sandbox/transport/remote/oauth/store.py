"""Where logins lie: a file for each, which only its owner can use, and which belongs to one driver, server and tenant.

The name of a file is a digest of its binding: driver id, digest of the driver's reviewed files, URL, resource and
tenant. A driver that differs in one of them finds nothing, and asks for a login of its own. The binding is also inside,
and is compared, so that a file that was moved to another name is refused.

A file that anybody else may read or write, that is a link, or that belongs to somebody else is refused rather than
mended: what it holds may be known already, or may not be ours. Files are replaced whole (written, synced, renamed).
Two processes renew one login one after the other: a lock file beside it (``flock``), which ends with its process.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from sandbox import jsontext
from sandbox.errors import PlanRefused, PlatformError
from sandbox.limits import KIB, OAUTH_TIMEOUT
from sandbox.plan.model import SandboxPlan
from sandbox.transport.remote.oauth.tokens import Client, Tokens

MAX_BYTES: Final = 128 * KIB
"""One login: two tokens of at most 16 KiB, a client and its binding."""

MAX_LOGINS: Final = 4096
"""Files that are looked at when somebody logs out."""

LOCK_TIMEOUT: Final = 4 * OAUTH_TIMEOUT
"""Seconds in which another process may be renewing the same login."""

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Binding:
    """What a login is for."""

    driver: str
    digest: str
    url: str
    resource: str
    tenant: str

    @classmethod
    def of(cls, plan: SandboxPlan, tenant: str) -> Binding:
        """Return the binding of a plan for a tenant."""
        resource = plan.auth.resource if plan.auth is not None else ""
        return cls(plan.driver_id, plan.driver_digest, plan.remote_url, resource, tenant)

    @property
    def name(self) -> str:
        """Name of its file."""
        return jsontext.digest(asdict(self)).removeprefix("sha256:") + ".json"

    def same_driver(self, other: Binding) -> bool:
        """Return whether another login is of the same driver, in whatever state its files were."""
        return (self.driver, self.url, self.tenant) == (other.driver, other.url, other.tenant)


@dataclass(frozen=True, slots=True)
class Login:
    """One login: who issued it, to which client, and the tokens."""

    issuer: str
    client: Client
    tokens: Tokens = field(repr=False)


class Store:
    """The logins of the person who runs this.

    Args:
        folder: made with mode 0700 when absent.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, binding: Binding) -> Login | None:
        """Return a login, or ``None`` when nobody has logged in.

        Raises:
            PlanRefused: ``OAU-002``, others may have it; ``OAU-003``, it is damaged or of another binding.
        """
        if not self._folder.exists():
            return None
        self._private_folder()
        data = self._bytes(self._folder / binding.name)
        return None if data is None else self._login(data, binding)[1]

    def write(self, binding: Binding, login: Login) -> None:
        """Keep a login, in place of an earlier one; whoever does so holds it (:meth:`locked`).

        Raises:
            PlanRefused: ``OAU-002``.
            PlatformError: ``OAU-005``, it cannot be written.
        """
        body = {"version": 1, "binding": asdict(binding), "login": asdict(login)}
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._private_folder()
            fresh = self._folder / f".{binding.name}.{secrets.token_hex(8)}"
            descriptor = os.open(fresh, _CREATE, 0o600)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(jsontext.canonical(body))
                    file.flush()
                    os.fsync(file.fileno())
                fresh.replace(self._folder / binding.name)
                self._left_over(binding)
            except BaseException:
                fresh.unlink(missing_ok=True)
                raise
            _sync(self._folder)
        except OSError as error:
            message = f"the login cannot be kept in {self._folder}: {error.strerror}"
            raise PlatformError("OAU-005", message, "see that there is room and that you may write there") from None

    def remove(self, binding: Binding) -> None:
        """Forget a login; nothing when there is none. Whoever does so holds it (:meth:`locked`)."""
        (self._folder / binding.name).unlink(missing_ok=True)
        self._left_over(binding)

    def _left_over(self, binding: Binding) -> None:
        """Remove what a process that was killed while it wrote has left of a login."""
        for path in self._folder.glob(f".{binding.name}.*"):
            path.unlink(missing_ok=True)

    def all_of(self, binding: Binding) -> Iterator[tuple[Binding, Login]]:
        """Yield every login of a driver, server and tenant, whatever state the driver's files were in.

        Raises:
            PlanRefused: ``OAU-002``, one of the files is open for others; those that are damaged are passed over.
        """
        if not self._folder.exists():
            return
        self._private_folder()
        for path in sorted(self._folder.glob("*.json"))[:MAX_LOGINS]:
            data = self._bytes(path)
            try:
                found = None if data is None else self._login(data, None)
            except PlanRefused:
                continue
            if found is not None and binding.same_driver(found[0]):
                yield found

    @contextlib.asynccontextmanager
    async def locked(self, binding: Binding) -> AsyncIterator[None]:
        """Hold a login alone, among all processes of this person.

        Raises:
            PlanRefused: ``OAU-002``.
            PlatformError: ``OAU-004``, another process does not let go; ``OAU-005``.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._private_folder()
            descriptor = os.open(self._folder / binding.name.replace(".json", ".lock"), _LOCK, 0o600)
        except OSError as error:
            message = f"the login in {self._folder} cannot be held: {error.strerror}"
            raise PlatformError("OAU-005", message, "see that there is room and that you may write there") from None
        try:
            await _taken(descriptor)
            yield
        finally:
            os.close(descriptor)  # which lets go

    def _private_folder(self) -> None:
        status = self._folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
            message = f"{self._folder}, where logins lie, is no folder of your own that only you can use"
            raise PlanRefused("OAU-002", message, f"see who has looked at it; then `chmod 700 {self._folder}`")

    def _bytes(self, path: Path) -> bytes | None:
        try:
            descriptor = os.open(path, _READ)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _open_to_others(path, error.strerror or "it cannot be opened") from None
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                raise _open_to_others(path, "it is no regular file with one name")
            if status.st_uid != os.geteuid():
                raise _open_to_others(path, f"it belongs to uid {status.st_uid}")
            if status.st_mode & _OTHERS:
                raise _open_to_others(path, f"its mode is {stat.S_IMODE(status.st_mode):04o}, not 0600")
            return file.read(MAX_BYTES + 1)

    def _login(self, data: bytes, binding: Binding | None) -> tuple[Binding, Login]:
        try:
            body = jsontext.parse(data)
            found = Binding(**body["binding"])
            written = body["login"]
            login = Login(written["issuer"], Client(**written["client"]), _tokens(written["tokens"]))
            body.setdefault("version", 0)
        except (ValueError, KeyError, TypeError):
            raise self._damaged() from None
        texts = (login.issuer, login.client.id, login.client.secret, login.tokens.access, login.tokens.refresh)
        times = (login.tokens.renew_at, login.tokens.expires_at, login.tokens.got_at)
        fine = all(isinstance(one, float) for one in times) and all(isinstance(one, str) for one in login.tokens.scopes)
        fine = fine and body["version"] == 1 and len(data) <= MAX_BYTES and all(isinstance(one, str) for one in texts)
        if not fine or (binding is not None and found != binding):
            raise self._damaged()
        return found, login

    def _damaged(self) -> PlanRefused:
        message = f"a login in {self._folder} is damaged, or is that of another driver, server or tenant"
        return PlanRefused("OAU-003", message, "run `mcp-sandbox login` again")


def _tokens(written: Mapping[str, Any]) -> Tokens:
    return Tokens(**{**written, "scopes": tuple(written["scopes"])})


def _open_to_others(path: Path, why: str) -> PlanRefused:
    mend = "take what it holds as known to others: remove it, and run `mcp-sandbox login` again"
    return PlanRefused("OAU-002", f"the login {path} is not its owner's alone: {why}", mend)


async def _taken(descriptor: int) -> None:
    """Return when the lock is held."""
    pause = 0.01
    try:
        async with asyncio.timeout(LOCK_TIMEOUT):
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    await asyncio.sleep(pause)
                    pause = min(pause * 1.5, 0.25)
                else:
                    return
    except TimeoutError:
        message = f"another process has been renewing the same login for {LOCK_TIMEOUT:g} s"
        raise PlatformError("OAU-004", message, "see which one hangs") from None


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
