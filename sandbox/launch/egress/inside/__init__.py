"""What runs inside the holder and broker containers.

Nothing here imports a package other than h11, nor anything of ``sandbox`` but :mod:`sandbox.policy.destinations` and
its own siblings: these files alone are copied into the image ``mcp-sandbox/egress``.

- ``holder``    owns a network namespace: routes, sockets, then nothing but a connection to the broker
- ``broker``    serves the sockets of many namespaces under the policy of each
- ``guest``     one attached namespace; ``flow`` one connection of it, in numbered steps
- ``dns``, ``hello``, ``requests``, ``packets``   pure parsers of what a hostile process may send
"""
