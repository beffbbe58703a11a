"""The state of several gateways in Redis, or what speaks its protocol: each step is one Lua script, which is atomic.

All keys have the tag ``{mcps}``, so that a cluster keeps them in one place. Records are hashes; sorted sets by group,
by holder and over all say what there is and when it ends. Times are the server's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from sandbox.errors import UsageError
from sandbox.serve.ratelimit import MICRO, Standing
from sandbox.serve.shared import gcra
from sandbox.serve.shared.interface import (
    ANSWER_TIMEOUT,
    FORMAT,
    KEPT_AFTER_END,
    LASTING,
    Bucket,
    Kind,
    Record,
    StateUnavailable,
)

CONNECTIONS: Final = 32
"""Connections of one gateway."""

SAFE_POLICY: Final = "noeviction"
"""What a server does whose memory is full: refuse to write. Any other policy forgets rates, which gives calls away."""

_KEPT: Final = "".join(f"['{kind}']={int(KEPT_AFTER_END * MICRO)}," for kind in LASTING)
_PRELUDE: Final = f"""
local clock = redis.call('TIME')
local now = clock[1] * {MICRO} + clock[2]
local kept = {{{_KEPT}}}
local function text(number) return string.format('%.0f', number) end
local function at(kind, name) return '{{mcps}}:record:' .. kind .. ':' .. name end
local function group(kind, grp) return '{{mcps}}:group:' .. kind .. ':' .. grp end
local function holding(holder) return '{{mcps}}:holder:' .. holder end
local ENDS = '{{mcps}}:ends'
local function read(kind, name)
  local row = redis.call('HMGET', at(kind, name), 'grp', 'holder', 'value', 'fence', 'ends')
  if not row[5] then return nil end
  return {{kind, name, row[1], row[2], row[3], row[4], tonumber(row[5])}}
end
local function living(row) return row and row[7] > now end
local function shown(row) if not row then return nil end return {{row[1], row[2], row[3], row[4], row[5], row[6]}} end
local function forget(row)
  local id = row[1] .. ':' .. row[2]
  redis.call('DEL', at(row[1], row[2]))
  redis.call('ZREM', group(row[1], row[3]), row[2])
  redis.call('ZREM', holding(row[4]), id)
  redis.call('ZREM', ENDS, id)
end
local function write(row)
  local old = read(row[1], row[2])
  if old then forget(old) end
  local id, ends = row[1] .. ':' .. row[2], text(row[7])
  redis.call('HSET', at(row[1], row[2]),
    'grp', row[3], 'holder', row[4], 'value', row[5], 'fence', row[6], 'ends', ends)
  redis.call('ZADD', group(row[1], row[3]), ends, row[2])
  if row[4] ~= '' then redis.call('ZADD', holding(row[4]), ends, id) end
  redis.call('ZADD', ENDS, text(row[7] + (kept[row[1]] or 0)), id)
end
"""

_TAKE: Final = """
local found = {}
for i, key in ipairs(KEYS) do
  local period, window = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  local row = redis.call('HMGET', key, 'full_at', 'seen')
  local full_at, seen = tonumber(row[1] or '0'), math.max(tonumber(row[2] or '0'), now)
  local after = math.max(full_at, seen) + period
  local fits = after - seen <= window
  if fits then full_at = after end
  redis.call('HSET', key, 'full_at', text(full_at), 'seen', text(seen))
  redis.call('PEXPIRE', key, text(math.max(0, full_at - now) / 1000 + 3600000))
  found[#found + 1] = {text(full_at), text(seen), fits and 1 or 0}
  if not fits then break end
end
return found
"""
_PUT: Final = "write({ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], now + tonumber(ARGV[7])})"
_GET: Final = """
local row = read(ARGV[1], ARGV[2])
if not living(row) then return nil end
if tonumber(ARGV[3]) > 0 then row[7] = math.max(row[7], now + tonumber(ARGV[3])); write(row) end
return shown(row)
"""
_DROP: Final = """
local row = read(ARGV[1], ARGV[2])
if row and (ARGV[3] == '' or ARGV[3] == row[4]) then row[7] = math.min(row[7], now); write(row) end
"""
_COUNT: Final = "return redis.call('ZCOUNT', group(ARGV[1], ARGV[2]), '(' .. text(now), '+inf')"
_ALL: Final = """
local from, to = '(' .. text(now), '+inf'
if ARGV[3] == '1' then from, to = '-inf', text(now) end
local found = {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', group(ARGV[1], ARGV[2]), from, to)) do
  found[#found + 1] = shown(read(ARGV[1], name))
end
return found
"""
_ACQUIRE: Final = """
local row = read(ARGV[1], ARGV[2])
if living(row) then return shown(row) end
local fence = math.max(now, row and tonumber(row[6]) + 1 or 0)
row = {ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], text(fence), now + tonumber(ARGV[7])}
write(row)
return shown(row)
"""
_RENEW: Final = """
local found = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', holding(ARGV[1]), '(' .. text(now), '+inf')) do
  local kind, name = string.match(id, '^([^:]+):(.*)$')
  local row = read(kind, name)
  row[7] = math.max(row[7], now + tonumber(ARGV[2]))
  write(row)
  found[#found + 1] = shown(row)
end
return found
"""
_SWEEP: Final = """
local ended = redis.call('ZRANGEBYSCORE', ENDS, '-inf', text(now), 'LIMIT', 0, 1000)
for _, id in ipairs(ended) do
  local kind, name = string.match(id, '^([^:]+):(.*)$')
  local row = read(kind, name)
  if row then forget(row) else redis.call('ZREM', ENDS, id) end
end
return #ended
"""


class RedisStore:
    """Implements :class:`~sandbox.serve.shared.interface.Store` in Redis 5 or newer.

    Args:
        url: as redis-py reads it; never shown.
        place: the same without credentials, for messages.
    """

    def __init__(self, url: str, place: str) -> None:
        self._place = place
        pool = BlockingConnectionPool.from_url(
            url,
            decode_responses=True,
            max_connections=CONNECTIONS,
            timeout=ANSWER_TIMEOUT,
            socket_timeout=ANSWER_TIMEOUT,
            socket_connect_timeout=ANSWER_TIMEOUT,
            retry=Retry(NoBackoff(), 1),  # a connection that was idle may be gone; counting twice only refuses sooner
        )
        self._redis: Redis = Redis.from_pool(pool)
        named = {"take": _TAKE, "put": _PUT, "get": _GET, "drop": _DROP, "count": _COUNT, "all": _ALL}
        named |= {"acquire": _ACQUIRE, "renew": _RENEW, "sweep": _SWEEP}
        self._scripts = {name: self._redis.register_script(_PRELUDE + text) for name, text in named.items()}

    # --- life ------------------------------------------------------------------------------------------------------
    async def open(self) -> None:
        """Connect.

        Raises:
            UsageError: ``CLI-197``; ``CLI-198``, it would forget what it is given.
        """
        try:
            policy = (await self._redis.info("memory")).get("maxmemory_policy", SAFE_POLICY)
            kept = await self._redis.set("{mcps}:format", FORMAT, nx=True, get=True) or FORMAT
        except (RedisError, OSError) as error:
            await self._redis.aclose()
            text = f"{self._place} cannot be used ({type(error).__name__})"
            raise UsageError("CLI-197", text, "look whether it runs, and at user, password and rights") from None
        if kept != FORMAT:
            await self._redis.aclose()
            raise UsageError("CLI-197", f"{self._place} is of another version of this program", "name another database")
        if policy != SAFE_POLICY:
            await self._redis.aclose()
            text = f"{self._place} forgets when its memory is full (`maxmemory-policy` is {policy})"
            raise UsageError("CLI-198", text, f"set `maxmemory-policy {SAFE_POLICY}`: forgotten limits admit anew")

    async def close(self) -> None:
        """Close every connection."""
        await self._redis.aclose()

    # --- what is done ----------------------------------------------------------------------------------------------
    async def take(self, chain: Sequence[Bucket]) -> list[Standing]:
        """Count one request."""
        numbers = [number for bucket in chain for number in (bucket.rate.period, bucket.rate.span)]
        rows = await self._run("take", *numbers, keys=["{mcps}:rate:" + bucket.key for bucket in chain])
        return [
            gcra.standing(bool(fits), int(full_at), int(seen), bucket)
            for bucket, (full_at, seen, fits) in zip(chain, rows, strict=False)
        ]

    async def put(self, record: Record, seconds: float) -> None:
        """Keep a record."""
        await self._run("put", *_row(record), int(seconds * MICRO))

    async def get(self, kind: Kind, name: str, seconds: float = 0) -> Record | None:
        """Return a record."""
        row = await self._run("get", kind, name, int(seconds * MICRO))
        return _record(row) if row else None

    async def drop(self, kind: Kind, name: str, holder: str = "") -> None:
        """End a record."""
        await self._run("drop", kind, name, holder)

    async def count(self, kind: Kind, group: str) -> int:
        """Return how many there are."""
        return int(await self._run("count", kind, group))

    async def all(self, kind: Kind, group: str, *, ended: bool = False) -> list[Record]:
        """Return the records of a group."""
        return [_record(row) for row in await self._run("all", kind, group, int(ended))]

    async def acquire(self, record: Record, seconds: float) -> Record:
        """Return who holds a lease."""
        return _record(await self._run("acquire", *_row(record), int(seconds * MICRO)))

    async def renew(self, holder: str, seconds: float) -> list[Record]:
        """Renew what a gateway holds."""
        return [_record(row) for row in await self._run("renew", holder, int(seconds * MICRO))]

    async def sweep(self) -> int:
        """Remove what has ended."""
        return int(await self._run("sweep"))

    async def _run(self, name: str, *arguments: Any, keys: Sequence[str] = ()) -> Any:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                return await self._scripts[name](keys=list(keys), args=list(arguments))
        except (RedisError, OSError, TimeoutError) as error:
            raise StateUnavailable(type(error).__name__) from None


def _row(record: Record) -> tuple[Any, ...]:
    return record.kind, record.name, record.group, record.holder, record.value, record.fence


def _record(row: Sequence[Any]) -> Record:
    return Record(row[0], row[1], row[2], row[3], row[4], int(row[5]))
