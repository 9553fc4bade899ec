"""Source distributions from the package index that pip uses, without building anything.

`pip download` builds what it fetches to read its metadata: for a project that needs NumPy to be
built that takes minutes. Here pip says only which index it uses; its page is read as JSON (PEP 691)
or as HTML (PEP 503), and the archive is kept if its SHA-256 is the one that the caller knows.
"""

from __future__ import annotations

import base64
import hashlib
import html.parser
import http.client
import json
import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

JSON_PAGE = "application/vnd.pypi.simple.v1+json"
ACCEPTED = f"{JSON_PAGE}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
#: Seconds that one connection may be silent, and that a whole answer may take.
SILENCE, PATIENCE = 20.0, 120.0
#: Bytes of the largest answer that is taken.
LARGEST = 1 << 26
#: Asks pip's own parser, because `pip config list` leaves out what is not configured.
ASK_PIP = """
import json
from pip._internal.commands import create_command
options, _ = create_command("download").parse_args([])
urls = [] if options.no_index else [options.index_url, *options.extra_index_urls]
print(json.dumps({"urls": urls, "certificates": options.cert, "proxy": options.proxy}))
"""


class Unavailable(Exception):
    """A distribution that cannot be fetched, with the reason."""


class WrongChecksum(Exception):
    """An archive whose content is not what it should be."""


@dataclass(frozen=True)
class Index:
    """The indexes that pip is configured to use, and how they are reached."""

    urls: list[str]
    certificates: str | None = None
    proxy: str | None = None

    def opener(self) -> urllib.request.OpenerDirector:
        """Opens URLs with the certificates and the proxy of this configuration."""
        context = ssl.create_default_context(cafile=self.certificates)
        handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=context)]
        if self.proxy:
            proxies = {"http": self.proxy, "https": self.proxy}
            handlers.append(urllib.request.ProxyHandler(proxies))
        return urllib.request.build_opener(*handlers)


def configured() -> Index:
    """What pip uses by its files, its environment variables and its defaults."""
    command = [sys.executable, "-c", ASK_PIP]
    try:
        asked = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=True
        )
    except subprocess.SubprocessError as error:
        said = getattr(error, "stderr", None) or error
        raise Unavailable(f"pip does not say which index it uses: {said}") from error
    return Index(**json.loads(asked.stdout))


def download(release: str, sha256: str, folder: Path, index: Index | None = None) -> Path:
    """Writes the archive of a release, as "name-1.0", to a folder; Unavailable or WrongChecksum
    is raised where it cannot be had."""
    index = configured() if index is None else index
    content = _read(index, _archive_url(index, release), "*/*")[0]
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise WrongChecksum(f"the archive of {release} has the SHA-256 {found}, not {sha256}")
    archive = folder / f"{release}.tar.gz"
    archive.write_bytes(content)
    return archive


def _archive_url(index: Index, release: str) -> str:
    """Where the first index that has the source distribution keeps it."""
    name = _normal(release.rpartition("-")[0])
    wanted = _normal(f"{release}.tar.gz")
    reasons = []
    for url in index.urls:
        try:
            for file, place in _files(index, f"{url.rstrip('/')}/{name}/"):
                if _normal(file) == wanted:
                    return place
            reasons.append("an index does not list it")
        except Unavailable as error:
            reasons.append(str(error))
    raise Unavailable(f"no source distribution of {release}: {'; '.join(reasons) or 'no index'}")


def _files(index: Index, page: str) -> list[tuple[str, str]]:
    """The files that the page of a project lists, by name, with their URLs."""
    content, kind, base = _read(index, page, ACCEPTED)
    try:
        listed = _in_json(content) if kind == JSON_PAGE else _in_html(content)
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable(f"the index's page is not as PEP 691 says: {error!r}") from error
    return [(name, _with_login(urljoin(base, url), page)) for name, url in listed]


def _in_json(content: bytes) -> list[tuple[str, str]]:
    return [(file["filename"], file["url"]) for file in json.loads(content)["files"]]


def _in_html(content: bytes) -> list[tuple[str, str]]:
    links = _Links()
    links.feed(content.decode("utf-8", "replace"))
    return [(unquote(urlsplit(url).path.rpartition("/")[2]), url) for url in links.found]


class _Links(html.parser.HTMLParser):
    """The targets of the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [url for name, url in attrs if (tag, name) == ("a", "href") and url]


def _read(index: Index, url: str, accepted: str) -> tuple[bytes, str, str]:
    """What is at a URL, its content type, and the URL that was reached in the end."""
    bare, headers = _without_login(url)
    request = urllib.request.Request(bare, headers={"Accept": accepted, **headers})
    try:
        with index.opener().open(request, timeout=SILENCE) as answer:
            return _whole(answer), answer.headers.get_content_type(), answer.url
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unavailable(f"{urlsplit(bare).path} cannot be read: {error}") from error


def _whole(answer: http.client.HTTPResponse) -> bytes:
    """Reads to the end, within the limits of time and size."""
    until = time.monotonic() + PATIENCE
    content = bytearray()
    while part := answer.read1(1 << 16):
        content += part
        if time.monotonic() > until or len(content) > LARGEST:
            raise TimeoutError(f"no end after {len(content)} bytes")
    told = answer.headers.get("Content-Length")
    if told is not None and int(told) != len(content):
        raise ConnectionError(f"cut off after {len(content)} of {told} bytes")
    return bytes(content)


def _without_login(url: str) -> tuple[str, dict[str, str]]:
    """A URL without the login in it, and the header that states that login."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, {}
    coded = base64.b64encode(unquote(login).encode()).decode()
    return urlunsplit(parts._replace(netloc=host)), {"Authorization": f"Basic {coded}"}


def _with_login(url: str, page: str) -> str:
    """A URL with the login of an index's page, if the same host is asked."""
    login, at, host = urlsplit(page).netloc.rpartition("@")
    parts = urlsplit(url)
    same = at and parts.netloc == host
    return urlunsplit(parts._replace(netloc=f"{login}@{host}")) if same else url


def _normal(name: str) -> str:
    """A name as PEP 503 compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()
