"""Source distributions come from either form of an index's page, and only as they should be."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import os
import socket
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import package_index
import sdists
from package_index import Index, Unavailable, WrongChecksum, configured, download

RELEASE = "a-project-1.0"
LOGIN = "somebody:a%20word"


def archive() -> bytes:
    """A source distribution with one file."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as made:
        entry = tarfile.TarInfo("a_project-1.0/tests/test_it.py")
        made.addfile(entry, io.BytesIO())
    return content.getvalue()


ARCHIVE = archive()
SHA256 = hashlib.sha256(ARCHIVE).hexdigest()
NAMES = ("a_project-0.9.tar.gz", "a_project-1.0-py3-none-any.whl", "a_project-1.0.tar.gz")
AS_JSON = json.dumps({"files": [{"filename": n, "url": f"../../files/{n}"} for n in NAMES]})
AS_HTML = "".join(f'<a href="../../files/{n}#sha256=0" data-x>{n}</a><br>' for n in NAMES)


class Server(http.server.ThreadingHTTPServer):
    """A package index on this machine; `pages` says what it answers, and in which form."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self.server_port}/simple"
        self.pages = {"/files/a_project-1.0.tar.gz": (ARCHIVE, "application/octet-stream")}
        self.missing_bytes = 0
        self.login = ""
        self.asked: list[tuple[str, str]] = []

    def page(self, content: str, kind: str) -> None:
        self.pages["/simple/a-project/"] = (content.encode(), kind)


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers from the pages of the server."""

    server: Server

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Accept", "")))
        expected = base64.b64encode(self.server.login.encode()).decode()
        if self.server.login and self.headers.get("Authorization") != f"Basic {expected}":
            self.send_error(401)
        elif self.path in self.server.pages:
            self.answer(*self.server.pages[self.path])
        else:
            self.send_error(404)

    def answer(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content) + self.server.missing_bytes))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Says nothing: the tests look at what was asked."""


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither pip nor a proxy is configured on this machine."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as served:
        served.page(AS_JSON, package_index.JSON_PAGE)
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield served
        served.shutdown()
        thread.join()


@pytest.fixture
def refused() -> Iterator[str]:
    """The URL of an index where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/simple"


def fetched(folder: Path, *urls: str, sha256: str = SHA256) -> bytes:
    return download(RELEASE, sha256, folder, Index(list(urls))).read_bytes()


def test_a_json_page_leads_to_the_archive(server: Server, tmp_path: Path) -> None:
    assert fetched(tmp_path, server.url) == ARCHIVE
    assert [path for path, _ in server.asked] == [
        "/simple/a-project/",
        "/files/a_project-1.0.tar.gz",
    ]
    assert server.asked[0][1].startswith(package_index.JSON_PAGE)


@pytest.mark.parametrize(
    "kind", ["text/html; charset=utf-8", "application/vnd.pypi.simple.v1+html"]
)
def test_an_html_page_leads_to_the_archive(server: Server, tmp_path: Path, kind: str) -> None:
    server.page(AS_HTML, kind)
    assert fetched(tmp_path, server.url + "/") == ARCHIVE


def test_another_content_is_an_error_and_is_not_kept(server: Server, tmp_path: Path) -> None:
    with pytest.raises(WrongChecksum, match=f"has the SHA-256 {SHA256}, not 00"):
        fetched(tmp_path, server.url, sha256="00")
    assert list(tmp_path.iterdir()) == []


def test_a_refused_connection_is_said(refused: str, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"a-project-1.0: .*refused"):
        fetched(tmp_path, refused)


def test_the_next_index_is_asked(server: Server, refused: str, tmp_path: Path) -> None:
    assert fetched(tmp_path, refused, f"{server.url}/none", server.url) == ARCHIVE


def test_an_index_without_the_release_is_said(server: Server, tmp_path: Path) -> None:
    server.page(AS_JSON.replace("1.0.tar.gz", "1.1.tar.gz"), package_index.JSON_PAGE)
    with pytest.raises(Unavailable, match="an index does not list it"):
        fetched(tmp_path, server.url)
    with pytest.raises(Unavailable, match="no index"):
        fetched(tmp_path)


def test_an_archive_that_is_gone_is_said(server: Server, tmp_path: Path) -> None:
    del server.pages["/files/a_project-1.0.tar.gz"]
    with pytest.raises(Unavailable, match="404"):
        fetched(tmp_path, server.url)


@pytest.mark.parametrize("content", ["", "[]", '{"files": [{}]}', '{"files": 3}'])
def test_a_page_of_another_kind_is_said(server: Server, tmp_path: Path, content: str) -> None:
    server.page(content, package_index.JSON_PAGE)
    with pytest.raises(Unavailable, match="PEP 691"):
        fetched(tmp_path, server.url)


def test_an_answer_that_is_cut_off_is_no_wrong_checksum(server: Server, tmp_path: Path) -> None:
    server.missing_bytes = 5
    with pytest.raises(Unavailable, match="cut off"):
        fetched(tmp_path, server.url)


@pytest.mark.parametrize(("limit", "value"), [("LARGEST", 10), ("PATIENCE", -1.0)])
def test_an_answer_has_limits(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: float
) -> None:
    monkeypatch.setattr(package_index, limit, value)
    with pytest.raises(Unavailable, match="no end after"):
        fetched(tmp_path, server.url)


def test_a_silent_index_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_index, "SILENCE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        with pytest.raises(Unavailable, match="timed out"):
            fetched(tmp_path, url)


def test_the_login_of_an_index_is_sent(server: Server, tmp_path: Path) -> None:
    server.login = "somebody:a word"
    with pytest.raises(Unavailable, match="401"):
        fetched(tmp_path, server.url)
    assert fetched(tmp_path, server.url.replace("//", f"//{LOGIN}@")) == ARCHIVE


def test_the_index_is_the_one_that_pip_uses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "pip.conf"
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    file.write_text("[global]\nindex-url = http://one/simple\n[download]\ncert = /some/file\n")
    assert configured().urls[0] == "http://one/simple"
    assert configured().certificates == "/some/file"
    monkeypatch.setenv("PIP_INDEX_URL", "http://two/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "http://three/simple http://four/simple")
    assert configured().urls == [f"http://{host}/simple" for host in ("two", "three", "four")]
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert configured().urls == []


def test_without_a_configuration_pip_has_an_index() -> None:
    assert urlsplit(configured().urls[0]).scheme == "https"


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The cache of a new environment, for which one release is known."""
    monkeypatch.setattr(sdists, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(sdists, "CHECKSUMS", {RELEASE: SHA256})
    return tmp_path / "cache"


def test_a_release_is_fetched_once_and_unpacked(
    server: Server, known: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", server.url)
    folder = sdists.unpacked(RELEASE)
    assert (folder / "tests" / "test_it.py").is_file()
    assert sdists.unpacked(RELEASE) == folder
    assert len(server.asked) == 2
    assert [entry.name for entry in known.iterdir()] == [RELEASE]


def test_a_fetch_that_cannot_be_made_skips(
    refused: str, known: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", refused)
    with pytest.raises(pytest.skip.Exception, match=r"a-project-1.0: .*refused"):
        sdists.unpacked(RELEASE)


def test_a_wrong_or_unknown_checksum_fails(
    server: Server, known: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", server.url)
    monkeypatch.setitem(sdists.CHECKSUMS, RELEASE, "00")
    with pytest.raises(WrongChecksum):
        sdists.unpacked(RELEASE)
    with pytest.raises(AssertionError, match=r"no checksum for a-project-1\.1"):
        sdists.unpacked("a-project-1.1")
