"""Puts values in place of placeholders in the requests of one connection; no I/O.

Where a placeholder stands decides how the value is written: as it is in a header field and in a body of no known type,
percent-encoded in the query of a target and in a form, JSON-escaped in a JSON body, and inside the Base64 of ``Basic``
credentials. Everything else of a request goes on as :class:`~.requests.Gate` writes it.

Invariant: what is sent on holds no placeholder; a placeholder of a secret that is not for this host, or in a place
where none is put in (method, path, name of a field, body beyond the bound), ends the connection.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from sandbox.launch.egress.inside.bounds import MAX_BODY, MAX_HEAD
from sandbox.launch.egress.inside.reasons import PLACEHOLDER, REFLECTED, Denied

PREFIX: Final = b"mcpsub_"
"""What every placeholder begins with."""

LENGTH: Final = len(PREFIX) + 32
"""Bytes of a placeholder."""

FORM: Final = b"application/x-www-form-urlencoded"

Fields = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Substitutes:
    """The secrets of one namespace.

    Attributes:
        values: host → placeholder → value.
        known: every placeholder.
        leaves: host → PEM of certificate and key.
        authorities: PEM of whom to trust to name real servers.
    """

    values: Mapping[str, Mapping[bytes, bytes]]
    known: frozenset[bytes]
    leaves: Mapping[str, str]
    authorities: str

    @classmethod
    def of(cls, message: Mapping[str, object] | None) -> Substitutes | None:
        """Return the substitutes of an ``attach`` command, ``None`` when it has none."""
        if not message:
            return None
        values: dict[str, dict[bytes, bytes]] = {}
        known = set()
        for placeholder, value, hosts in message["secrets"]:  # type: ignore[attr-defined]
            known.add(placeholder.encode())
            for host in hosts:
                values.setdefault(host, {})[placeholder.encode()] = value.encode()
        return cls(values, frozenset(known), message["leaves"], message["authorities"])  # type: ignore[arg-type]

    def on_its_way(self, data: bytes) -> bool:
        """Return whether some placeholder stands in bytes, as it is."""
        return PREFIX in data and any(placeholder in data for placeholder in self.known)


class Replacer:
    """Rewrites the requests of one connection to one intended host.

    Args:
        substitutes: of the namespace.
        host: canonical name.
    """

    def __init__(self, substitutes: Substitutes, host: str) -> None:
        self._all = substitutes
        self._own = substitutes.values[host]
        self.replaced = 0

    def head(self, target: bytes, fields: Fields) -> tuple[bytes, Fields]:
        """Return target and header fields with values put in.

        Raises:
            Denied: ``EGR-126``.
        """
        path, mark, query = target.partition(b"?")
        self.none(path)
        written = [(self.none(name), self._field(name.lower(), value)) for name, value in fields]
        written = [(name, value) for name, value in written if name.lower() != b"accept-encoding"]
        written.append((b"Accept-Encoding", b"identity"))  # what comes back is looked through
        target = path + mark + self._put(query, _percent)
        if len(target) + sum(len(name) + len(value) for name, value in written) > MAX_HEAD:
            raise Denied(PLACEHOLDER, "a head beyond the bound with the value in it")
        return target, written

    def body(self, data: bytes, kind: bytes) -> bytes:
        """Return a whole body with values put in.

        Args:
            data: at most :data:`~.bounds.MAX_BODY` bytes.
            kind: media type.

        Raises:
            Denied: ``EGR-126``.
        """
        kind = kind.partition(b";")[0].strip().lower()
        if kind == FORM:
            return self._put(data, _percent)
        return self._put(data, _escaped if kind.endswith(b"json") else bytes)

    def beyond(self, data: bytes) -> None:
        """Look at bytes of a body that is too long for anything to be put in.

        Raises:
            Denied: ``EGR-126``.
        """
        if self._all.on_its_way(data):
            raise Denied(PLACEHOLDER, f"in a body of more than {MAX_BODY} bytes")

    def _field(self, name: bytes, value: bytes) -> bytes:
        scheme, space, rest = value.partition(b" ")
        if name in {b"authorization", b"proxy-authorization"} and scheme.lower() == b"basic" and space:
            return scheme + b" " + self._basic(rest)
        if name in {b"host", b"content-length", b"transfer-encoding", b"upgrade"}:
            return self.none(value)
        return self._put(value, bytes)

    def _basic(self, text: bytes) -> bytes:
        try:
            plain = base64.b64decode(text.strip(), validate=True)
        except binascii.Error:
            return self.none(text)
        return base64.b64encode(self._put(plain, bytes)) if PREFIX in plain else text

    def _put(self, data: bytes, write: type[bytes] | object) -> bytes:
        if PREFIX not in data:
            return data
        for placeholder, value in self._own.items():
            count = data.count(placeholder)
            if count:
                self.replaced += count
                data = data.replace(placeholder, write(value))  # type: ignore[operator]
                if len(data) > MAX_BODY + MAX_HEAD:
                    raise Denied(PLACEHOLDER, "too much with the values in it")
        return self.none(data)

    def none(self, data: bytes) -> bytes:
        """Return bytes of a place where no value is put in.

        Raises:
            Denied: ``EGR-126``, a placeholder stands there.
        """
        if self._all.on_its_way(data):
            raise Denied(PLACEHOLDER, "of another secret, or where no value is put in")
        return data


def _percent(value: bytes) -> bytes:
    return quote(value, safe="").encode()


def _escaped(value: bytes) -> bytes:
    return json.dumps(value.decode("ascii"))[1:-1].encode()


class Mirror:
    """Looks for values in what a server sends back: they must not enter the sandbox.

    What could be the beginning of a value is held back until it is known not to be one, or until the server is silent
    (:meth:`rest`): then it goes on, and is still known when the rest of a value follows.

    Args:
        values: of this host.
    """

    def __init__(self, values: Mapping[bytes, bytes]) -> None:
        forms = set()
        for value in values.values():
            forms |= {value, _percent(value), _escaped(value), base64.b64encode(value)}
        self._forms = tuple(forms)
        self._longest = max(len(form) for form in forms)
        self._tail = b""
        self._held = 0

    @property
    def holding(self) -> bool:
        """Whether something is held back."""
        return self._held > 0

    def feed(self, data: bytes) -> bytes:
        """Return what may go on.

        Raises:
            Denied: ``EGR-129``, a value comes back.
        """
        whole = self._tail + data
        if any(form in whole for form in self._forms):
            raise Denied(REFLECTED)
        begin = len(self._tail) - self._held
        end = max(begin, len(whole) - self._beginning(whole))
        self._held = len(whole) - end
        self._tail = whole[-(self._longest - 1) :]
        return whole[begin:end]

    def rest(self) -> bytes:
        """Return what was held back."""
        held, self._held = self._held, 0
        return self._tail[len(self._tail) - held :]

    def _beginning(self, data: bytes) -> int:
        """Return how many bytes at the end begin a value."""
        tail = data[-(self._longest - 1) :]
        return max(_overlap(tail, form) for form in self._forms)


def _overlap(tail: bytes, form: bytes) -> int:
    """Return how many bytes at the end of ``tail`` begin ``form``, which does not stand in it whole."""
    at = tail.find(form[:1], max(0, len(tail) - len(form) + 1))
    while at >= 0:
        if form.startswith(tail[at:]):
            return len(tail) - at
        at = tail.find(form[:1], at + 1)
    return 0
