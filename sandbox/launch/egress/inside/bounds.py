"""Every bound of the broker and the holder, with unit and reason. Durations are seconds, sizes bytes."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# --- what a hostile process may send ---
MAX_HELLO: Final = 32 * KIB
"""A ClientHello. Post-quantum key shares and a session ticket stay below 8 KiB."""

MAX_HEAD: Final = 64 * KIB
"""An HTTP request head; what common servers accept is 8 to 32 KiB."""

MAX_BODY: Final = MIB
"""A request body that a secret is put into, kept whole until it has been; longer ones go on unchanged."""

MAX_DNS_MESSAGE: Final = 4 * KIB
"""A question with EDNS options; a question alone is at most 300."""

MAX_DNS_TCP: Final = 32
"""DNS connections over TCP of one namespace at once; resolvers use one."""

# --- time ---
HELLO_TIMEOUT: Final = 10.0
"""From accept to a complete ClientHello or request head; a client that connects without speaking is a slow attack."""

RESOLVE_TIMEOUT: Final = 10.0
"""One name, all attempts of the system's resolver."""

DIAL_TIMEOUT: Final = 10.0
"""All addresses of one name together."""

DIAL_EACH: Final = 4.0
"""One address, so that a dead first one does not use the time of the others."""

INTENT_TIMEOUT: Final = 5.0
"""For the supervisor to record an intent; without its word nothing is dialled."""

ATTACH_TIMEOUT: Final = 15.0
"""For a holder that is still starting to say hello."""

DNS_TCP_IDLE: Final = 10.0
"""Between two questions on one DNS connection (RFC 7766 §6.2.3)."""

SWEEP_SECONDS: Final = 5.0
"""Between two looks for idle connections; the precision of the idle bound."""

ORPHAN_SECONDS: Final = 30.0
"""How long a holder waits for a broker to come back before it ends itself."""

RECONNECT_SECONDS: Final = 0.05
"""Between a holder's attempts to reach a broker that is being replaced."""

# --- counts ---
MAX_PAST: Final = 256
"""Holders that have gone and are remembered, so that nobody waits for one of them to say hello."""

MAX_FLOWS: Final = 3000
"""Connections of all namespaces together; two descriptors each, below the broker's limit of 8192."""

MAX_NAMES: Final = 4096
"""Names below wildcards that one namespace may ask for; each keeps an address for the life of the namespace."""

MAX_RESOLVING: Final = 8
"""Names of one namespace being resolved at once, of the broker's 16 resolver threads."""

RESOLVERS: Final = 16
"""Threads that wait in the system's resolver."""

BACKLOG: Final = 512
"""Connections the kernel accepts for the broker before it looks; a burst of a web crawler."""

ACCEPT_BATCH: Final = 64
"""Connections taken from one listener before others get their turn."""

MAX_LISTENERS: Final = 4096
"""Names × ports of one namespace; each is a descriptor in holder and broker."""

FDS_PER_MESSAGE: Final = 200
"""Descriptors of one message; the kernel allows 253 (SCM_MAX_FD)."""

MAX_PASSED: Final = 128 * KIB
"""One message on the holder's socket; 200 listeners need 8 KiB."""

# --- relaying ---
CHUNK: Final = 256 * KIB
"""Read at once; larger no longer raises throughput."""

READS_PER_TURN: Final = 4
"""Full chunks of one connection before others get their turn."""

MAX_LINE: Final = 4 * MIB
"""One command of the supervisor: 256 rules and the certificates of a substitution stay below 1 MiB."""

MAX_UNSENT: Final = 4 * MIB
"""Events that the supervisor has not taken yet; beyond it nothing new is admitted, so that no evidence is lost."""

# --- evidence of floods ---
TALLY_WINDOW: Final = 10.0
"""Repetitions of one denial within it are one event with a count."""

TALLY_BURST: Final = 100
"""Different denials written at once; a start-up of a talkative server has about 20."""

TALLY_RATE: Final = 2.0
"""Different denials written each second after a burst."""

TALLY_KEYS: Final = 256
"""Different denials counted apart within one window; the rest is one number."""

PACKETS_PER_TURN: Final = 64
"""Refused packets looked at before others get their turn; the kernel counts what it drops meanwhile."""

MAX_WAITING: Final = 8192
"""Refused packets that can wait in one watching socket's buffer."""

PACKET_PAUSE: Final = 0.05
"""Rest after a full turn of refused packets, so that a flood costs bounded time."""
