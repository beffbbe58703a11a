"""Asks Python package indexes on which hosts they keep the files of a package; runs in a build container, alone.

``python3 -I -c <this file> PACKAGE INDEX…`` prints one ``https://host[:port]`` a line. Standard library only. Source:
simple repository API (HTML and JSON).
"""

import base64
import html.parser
import json
import sys
import urllib.error
import urllib.parse
import urllib.request

MAX_PAGE = 64 * 1024 * 1024
SECONDS = 30
ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"


class Links(html.parser.HTMLParser):
    """Collects the addresses of anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what an anchor points to."""
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def links(kind: str, body: bytes) -> list[str]:
    """Return the addresses of files of one page."""
    if "json" in kind:
        return [str(file["url"]) for file in json.loads(body)["files"]]
    parser = Links()
    parser.feed(body.decode("utf-8", "replace"))
    return parser.found


def ask(index: str, package: str) -> list[str]:
    """Return the origins of a package's files on one index."""
    parts = urllib.parse.urlsplit(index)
    host = parts.netloc.rpartition("@")[2]
    page = f"{parts.scheme}://{host}{parts.path.rstrip('/')}/{package}/"
    request = urllib.request.Request(page, headers={"Accept": ACCEPT})  # noqa: S310 - callers give https only
    if parts.username:
        user = urllib.parse.unquote(parts.username) + ":" + urllib.parse.unquote(parts.password or "")
        request.add_header("Authorization", "Basic " + base64.b64encode(user.encode()).decode())
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310 - the same
        body, kind, base = answer.read(MAX_PAGE), answer.headers.get("Content-Type", ""), answer.url
    files = [urllib.parse.urlsplit(urllib.parse.urljoin(base, link)) for link in links(kind, body)]
    return [f"{file.scheme}://{file.netloc.rpartition('@')[2]}" for file in files if file.scheme == "https"]


def main() -> None:
    """Ask every index; one that fails adds nothing."""
    package, *indexes = sys.argv[1:]
    found: dict[str, None] = {}
    for index in indexes:
        try:
            found |= dict.fromkeys(ask(index, package))
        except (OSError, ValueError, KeyError, TypeError) as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
    sys.stdout.write("".join(f"{origin}\n" for origin in found))


if __name__ == "__main__":
    main()
