"""Fetches one address in a build container, alone: ``python3 -I -c <this file> ADDRESS MAX_BYTES``.

Prints ``body`` and a line feed before the body, or ``redirect <address>``; follows nothing, because where a redirect
leads is judged outside. Exit status 3 when the body is larger. Standard library only.
"""

import shutil
import sys
import urllib.error
import urllib.parse
import urllib.request

SECONDS = 120
TOO_LARGE = 3
PIECE = 1024 * 1024
REDIRECTS = (301, 302, 303, 307, 308)


class Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect."""

    def redirect_request(self, *_args: object) -> None:
        """Return nothing, which makes the redirect an error that is looked at."""


def main() -> int:
    """Fetch; return the exit status."""
    address, most = sys.argv[1], int(sys.argv[2])
    request = urllib.request.Request(address, headers={"User-Agent": "mcp-sandbox"})  # noqa: S310 - callers give https
    try:
        answer = urllib.request.build_opener(Stay).open(request, timeout=SECONDS)
    except urllib.error.HTTPError as error:
        target = error.headers.get("Location")
        if error.code not in REDIRECTS or not target:
            raise
        sys.stdout.write(f"redirect {urllib.parse.urljoin(address, target)}\n")
        return 0
    with answer:
        if int(answer.headers.get("Content-Length") or 0) > most:
            return TOO_LARGE
        sys.stdout.write("body\n")
        sys.stdout.flush()
        shutil.copyfileobj(answer, sys.stdout.buffer, PIECE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
