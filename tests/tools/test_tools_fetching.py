"""web_fetch against a server on loopback. A guard at the socket lets no test connect to anything else."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.tools.base import Page, ToolContext, ToolOutput
from pytest_agentbench.tools.builtin import BUILTIN_TOOLS
from pytest_agentbench.tools.fetching import MAX_PAGE_BYTES, make_web_fetch
from pytest_agentbench.tools.network import Resolve
from pytest_agentbench.tools.toolbox import Toolbox
from pytest_agentbench.tools.web_client import FetchError

HTML = (
    '<html><head><meta charset="iso-8859-1"><title>Owls</title><script>steal()</script></head>'
    '<body><h1>Gray owls</h1><p>Na\xefve <a href="/more">more</a></p></body></html>'
).encode("latin-1")
LOOPBACK = NetworkSettings(allow_private=("127.0.0.1",))

connected: list[tuple[Any, ...]] = []


def _guard(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        connected.append(arguments[1])
        if arguments[1][0] != "127.0.0.1":
            raise RuntimeError(f"a test connects to {arguments[1]}")


sys.addaudithook(_guard)


class Site(BaseHTTPRequestHandler):
    """Pages, and `/to?URL`, which leads elsewhere."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.seen.append((self.headers["Host"], self.path))  # type: ignore[attr-defined]
        path, _, query = self.path.partition("?")
        pages: dict[str, tuple[str | None, bytes]] = {
            "/owls": ("text/html", HTML),
            "/json": ("application/json; charset=utf-8", '{"a": "ä"}'.encode()),
            "/odd": (f"text/plain; charset={query}", "ä".encode()),
            "/attributes": ("text/html", b"<a " + b" ".join(b"a%d" % n for n in range(MAX_PAGE_BYTES // 8)) + b">"),
            "/broken": ("text/html; charset=utf-8", b"<p>\xc3\xa4 \xff"),
            "/replacement": ("text/html; charset=iso-2022-kr", b"<p>plain"),
            "/bold": ("text/html", b"<p>" + b"x" * 200_010),
            "/bare": (None, b"bare"),
            "/pdf": ("application/pdf", b"%PDF"),
            "/missing": ("text/plain", b"no such page"),
            "/long": ("text/plain", b"x" * 200_010),
            "/big": ("text/plain", b"x" * (MAX_PAGE_BYTES + 1)),
        }
        if path == "/to":
            self.send_response(302)
            self.send_header("Location", query)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path == "/bomb":
            self.answer("text/plain", gzip.compress(bytes(50 * 2**20)), encoding="gzip")
        elif path == "/squeezed":
            self.answer("text/plain", gzip.compress(b"small"), encoding="gzip")
        elif path == "/twice":
            self.answer("text/plain", gzip.compress(gzip.compress(b"small")), encoding="gzip, gzip")
        elif path == "/never":
            self.send_response(200)
            self.send_header("Content-Length", "10")
            self.end_headers()
        else:
            self.answer(*pages[path], status=404 if path == "/missing" else 200)

    def answer(self, kind: str | None, body: bytes, status: int = 200, encoding: str | None = None) -> None:
        self.send_response(status)
        if kind:
            self.send_header("Content-Type", kind)
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except ConnectionError:  # it hung up, as it should where too much comes
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as made:
        made.seen = []  # type: ignore[attr-defined]
        made.daemon_threads = True
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def site(server: ThreadingHTTPServer) -> str:
    connected.clear()
    server.seen.clear()  # type: ignore[attr-defined]
    return f"http://127.0.0.1:{server.server_port}"


def in_thread(function: Callable[[], Any]) -> Awaitable[Any]:
    return asyncio.to_thread(function)


def fetch(url: str, settings: NetworkSettings = LOOPBACK, resolve: Resolve | None = None) -> Page:
    async def get() -> Page:
        fetcher = make_web_fetch(settings, in_thread, resolve)
        assert fetcher is not None
        return await fetcher(url)

    return asyncio.run(get())


def names(**addresses: str) -> Resolve:
    """A resolver that knows these `<name>.test` and no others, and every IP address as itself."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        name = host.removesuffix(".test")
        if name == host:
            return [host]
        if name not in addresses:
            raise OSError("unknown")
        return addresses[name].split()

    return resolve


@pytest.mark.slow
def test_a_page_is_its_text_and_where_it_came_from(site: str) -> None:
    page = fetch(f"{site}/to?/owls")
    assert page.text == "Owls\n\nGray owls\n\nNaïve more (/more)"
    assert [(hop.url, hop.address, hop.status) for hop in page.hops] == [
        (f"{site}/to?/owls", "127.0.0.1", 302),
        (f"{site}/owls", "127.0.0.1", 200),
    ]
    assert (page.media_type, page.size) == ("text/html", len(HTML))
    assert page.sha256 == hashlib.sha256(HTML).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/json", '{"a": "ä"}'),
        ("/odd?nonsense", "ä"),
        ("/odd?idna", "ä"),  # codecs of Python, not of the web; this one raises
        ("/odd?punycode", "ä"),  # and this one takes hours for a long text
        ("/odd?windows-1252", "Ã¤"),
        ("/broken", "ä \ufffd"),
        ("/replacement", "plain"),
        ("/bare", "bare"),
        ("/squeezed", "small"),
    ],
)
def test_other_texts_come_as_they_are(site: str, path: str, text: str) -> None:
    assert fetch(site + path).text == text


@pytest.mark.slow
@pytest.mark.parametrize(("path", "size"), [("/long", 200_010), ("/bold", 200_013)])
def test_a_long_page_is_cut_with_a_note(site: str, path: str, size: int) -> None:
    page = fetch(site + path)
    assert page.text.endswith("xx\n[... 10 characters left out ...]")
    assert len(page.text) < 200_100
    assert page.size == size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/pdf", "found 'application/pdf', expected text"),
        ("/big", "over 5 MB"),
        ("/bomb", "over 5 MB"),
        ("/twice", "packed more than once"),
        ("/to?/to?/to?/to?/to?/to?/owls", "more than 5 redirects"),
        ("/to?file:///etc/passwd", "begins with http:// or https://"),
        ("/to?http://a:b@127.0.0.1/", "a user name or password"),
        ("/to?http://127.0.0.1:99999/", "expected a URL such as"),
    ],
)
def test_a_failed_fetch_raises_an_error_with_the_reason(site: str, path: str, problem: str) -> None:
    with pytest.raises(FetchError, match=problem):
        fetch(site + path)


@pytest.mark.slow
def test_html_that_takes_for_ever_to_read_holds_nobody_else_up(site: str) -> None:
    async def both() -> int:
        reading = asyncio.create_task(asyncio.to_thread(fetch, f"{site}/attributes"))
        ticks = 0
        while not reading.done():
            await asyncio.sleep(0.1)
            ticks += 1
        with pytest.raises(FetchError, match=r"/attributes: its HTML could not be read within 10 s"):
            await reading
        return ticks

    assert asyncio.run(both()) > 20


def test_nothing_is_connected_to_where_the_address_is_refused(site: str) -> None:
    port = site.rpartition(":")[2]
    known = names(inner="127.0.0.1", cloud="169.254.169.254", mixed="93.184.216.34 10.0.0.1", mapped="::ffff:127.0.0.1")
    for name in ("inner", "cloud", "mixed", "mapped"):
        with pytest.raises(FetchError, match=rf"{name}\.test \(.*\) is refused"):
            fetch(f"http://{name}.test:{port}/owls", NetworkSettings(), known)
    for literal in (site, "http://169.254.169.254/latest/meta-data/", "http://[::1]/", "https://192.168.0.1/"):
        with pytest.raises(FetchError, match="is refused"):
            fetch(literal, NetworkSettings(), known)
    assert connected == []


@pytest.mark.parametrize("target", ["http://169.254.169.254/latest/", "http://10.0.0.1/", "http://cloud.test/"])
def test_a_redirect_to_a_refused_address_ends_there(site: str, target: str) -> None:
    with pytest.raises(FetchError, match=r"/to\?.* -> .*is refused"):
        fetch(f"{site}/to?{target}", resolve=names(cloud="169.254.169.254"))
    assert {address[0] for address in connected} == {"127.0.0.1"}
    assert len(connected) == 1


def test_the_connection_goes_to_the_address_that_was_checked(site: str, server: ThreadingHTTPServer) -> None:
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])  # a name that changes its mind

    async def resolve(host: str, port: int) -> Sequence[str]:
        return next(answers)

    port = site.rpartition(":")[2]
    assert fetch(f"http://owls.test:{port}/bare", resolve=resolve).text == "bare"
    assert server.seen == [(f"owls.test:{port}", "/bare")]  # type: ignore[attr-defined]
    with pytest.raises(FetchError, match=r"owls\.test \(10\.0\.0\.1\) is refused"):
        fetch(f"http://owls.test:{port}/bare", resolve=resolve)
    assert len(connected) == 1


def test_the_next_address_is_tried_where_one_does_not_answer(site: str) -> None:
    both = NetworkSettings(allow_private=("127.0.0.0/8",))
    port = site.rpartition(":")[2]

    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1", "127.0.0.1"]

    with pytest.raises(FetchError, match="no answer"):
        fetch("http://closed.test:9/", both, resolve)
    assert len(connected) == 2
    assert fetch(f"http://open.test:{port}/bare", both, resolve).hops[0].address == "127.0.0.1"


def test_proxies_of_the_environment_are_not_used(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert fetch(f"{site}/bare").text == "bare"


def test_names_that_no_resolver_takes_are_an_answer(site: str) -> None:
    for host in ("unknown.test", "a" * 70 + ".test"):
        with pytest.raises(FetchError, match="cannot be resolved"):
            fetch(f"http://{host}/", resolve=names())
    with pytest.raises(FetchError, match="cannot be resolved"):
        fetch(f"http://{'a' * 300}/")


# -- the tools


def call(name: str, arguments: dict[str, Any], **context: Any) -> tuple[ToolOutput, list[tuple[str, dict[str, Any]]]]:
    noted: list[tuple[str, dict[str, Any]]] = []

    def unused() -> Any:
        raise AssertionError("a web tool needs no workspace and no sandbox")

    async def ask() -> ToolOutput:
        settings = context.setdefault("network", LOOPBACK)
        fetcher = make_web_fetch(settings, in_thread)
        note = lambda name, **data: noted.append((name, data))  # noqa: E731
        box = Toolbox([BUILTIN_TOOLS[name]], ToolContext(unused, unused, unused, fetch=fetcher, note=note, **context))
        return await box.call(name, arguments)

    return asyncio.run(ask()), noted


@pytest.mark.slow
def test_the_tool_shows_the_page_and_the_trace_what_was_fetched(site: str) -> None:
    output, noted = call("web_fetch", {"url": f" {site}/to?/json "})
    assert output.content == f'{site}/json\nHTTP 200, application/json, 11 bytes\n\n{{"a": "ä"}}'
    assert not output.is_error
    [(name, facts)] = noted
    assert name == "web_fetch"
    assert facts["requests"][0] == {"url": f"{site}/to?/json", "address": "127.0.0.1", "status": 302}
    assert (facts["bytes"], len(facts["sha256"])) == (11, 64)


def test_a_missing_page_is_an_error_with_its_text(site: str) -> None:
    output, _ = call("web_fetch", {"url": f"{site}/missing"})
    assert output.is_error
    assert output.content.endswith("HTTP 404, text/plain, 12 bytes\n\nno such page")


def test_a_refusal_is_an_answer(site: str) -> None:
    output, noted = call("web_fetch", {"url": site}, network=NetworkSettings())
    assert output.is_error
    assert "127.0.0.1 is refused: it is not a public address" in output.content
    assert noted == []
    assert connected == []


def test_web_deny_keeps_both_tools_from_the_web(site: str) -> None:
    for tool, arguments in (("web_fetch", {"url": site}), ("web_search", {"query": "owls"})):
        with pytest.raises(UnavailableError, match=f"{tool} has no access to the web: the run profile has"):
            call(tool, arguments, network=NetworkSettings(web="deny"), search=None)


def test_a_missing_library_is_an_error_before_the_run() -> None:
    context = ToolContext(lambda: None, None, None)  # type: ignore[arg-type, return-value]
    with pytest.raises(UnavailableError, match=r"pip install 'pytest-agentbench\[web\]'"):
        Toolbox([BUILTIN_TOOLS["web_fetch"]], context)
