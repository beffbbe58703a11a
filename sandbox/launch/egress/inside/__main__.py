"""Entry point of the image: ``python3 /opt/egress holder`` or ``python3 /opt/egress broker``."""

from __future__ import annotations

import os
import sys


def main(role: str) -> int:
    """Run one of the two programs; each imports only what it needs, which is most of a holder's memory."""
    if role == "holder":
        from sandbox.launch.egress.inside import holder  # noqa: PLC0415 - see above

        return holder.main(os.environ["EGRESS_HOLDER"])
    from sandbox.launch.egress.inside import broker  # noqa: PLC0415 - see above

    return broker.main()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
