"""Egress by topology: a server's network namespace holds nothing but what the broker serves.

::

    server ── lo ──┐ listening sockets, made in the namespace by the holder, passed by SCM_RIGHTS
                   └──> broker ── checked name, checked address ──> internet

- ``inside``      what runs in the holder and broker containers; standard library and h11 only
- ``containers``  how those two containers are created; pure
- ``channel``     the supervisor's end of the broker's control stream
- ``evidence``    what the broker reports becomes facts
- ``provider``    holders in a pool, one broker, attachments; recovers a broker that died
- ``learn``       what a server tried becomes proposals for its driver

See docs/egress.md and docs/adr/0070-egress-by-topology.md.
"""
