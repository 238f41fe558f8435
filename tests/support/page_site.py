"""Serve a web site on loopback with pages for scraping: good, odd, broken and hostile ones."""

from __future__ import annotations

import gzip
import threading
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

GERMAN = "Über die Größe der Wälder in Österreich wurde während der Jahre häufig geschrieben: sie wächst."
CHINESE = "本报告分析了二零二六年全球半导体产业的发展趋势，市场规模持续增长，企业加大研发投入。" * 4
HTML = "text/html; charset=utf-8"
HUGE = 300_000
"""Bytes, more than the tests allow for a page."""


def html(body: str, title: str = "Owls", description: str = "All about owls") -> bytes:
    head = f'<title>{title}</title><meta name="Description" content="{description}"><script>x()</script>'
    return f"<html><head>{head}</head><body>{body}</body></html>".encode()


def pdf(text: str, title: str = "A paper") -> bytes:
    """Return a PDF of one page."""
    drawn = zlib.compress(f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode("latin-1"))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        b"/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(drawn), drawn),
        f"<< /Title ({title}) >>".encode("latin-1"),
    ]
    made, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, start=1):
        places.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    tail = b"trailer\n<< /Size %d /Root 1 0 R /Info 5 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(made))
    return made + head + table + tail


PAGES: dict[str, tuple[str | None, bytes]] = {
    "/owls": (HTML, html("<h1>Gray owls</h1><p>They hunt <a href='/mice'>mice</a>.</p>")),
    "/text": ("text/plain; charset=utf-8", "Übung".encode()),
    "/empty": (HTML, b""),
    "/claims-failure": ("text/plain", b"scrape failed: so it says"),
    "/blank": (HTML, html("")),
    "/scripts": (HTML, html("<div id='app'></div><noscript>Enable JavaScript</noscript><script src='/a.js'></script>")),
    "/gbk": ("text/html", f"<html><body><p>{CHINESE}</p></body></html>".encode("gbk")),
    "/gbk-meta": ("text/html", f'<html><meta charset="gb2312"><p>{CHINESE}</p></html>'.encode("gbk")),
    "/gbk-as-utf8": (HTML, f"<html><body><p>{CHINESE}</p></body></html>".encode("gbk")),
    "/latin-1": ("text/html", f"<html><body><p>{GERMAN}</p></body></html>".encode("latin-1")),
    "/latin-1-text": ("text/plain", GERMAN.encode("latin-1")),
    "/utf-16": ("text/html; charset=utf-16", html("<p>wide</p>").decode().encode("utf-16")),
    "/paper.pdf": ("application/pdf", pdf("Owls hunt at night.")),
    "/pdf-as-html": (HTML, pdf("Owls hunt at night.")),
    "/download": ("application/octet-stream", pdf("Owls hunt at night.")),
    "/html-as-pdf": ("application/pdf", html("<p>no paper here</p>")),
    "/untyped": (None, html("<p>no type</p>")),
    "/broken.pdf": ("application/pdf", b"%PDF-1.7\n1 0 obj\n<< /Type /Cat"),
    "/scanned.pdf": ("application/pdf", pdf("")),
    "/picture": ("image/png", b"\x89PNG\r\n"),
    "/picture-as-html": (HTML, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(64)),
    "/huge": (HTML, b"<p>" + b"x" * HUGE),
    "/attributes": (HTML, b"<a " + b" ".join(b"a%d" % number for number in range(400_000)) + b">"),
}
REDIRECTS = {
    "/moved": "/owls",
    "/circle": "/circle/2",
    "/circle/2": "/circle",
    "/metadata": "http://169.254.169.254/latest/meta-data/",
    "/inside": "http://10.0.0.1/",
    "/file": "file:///etc/passwd",
    "/other-port": "http://127.0.0.1:99999/",
}


class PageSite(ThreadingHTTPServer):
    """A server. `seen` counts requests by path; `most` is the highest number of open requests.

    `/slow` sets `slow_asked`, and is answered when `gate` is set.
    """

    daemon_threads = True

    def __init__(self, robots: bytes | int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.robots = robots
        self.seen: Counter[str] = Counter()
        self.headers: list[dict[str, str]] = []
        self.gate, self.slow_asked = threading.Event(), threading.Event()
        self.lock = threading.Lock()
        self.open = self.most = self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        super().process_request(request, client_address)


@contextmanager
def page_site(robots: bytes | int = 404) -> Iterator[PageSite]:
    """Yield a site. `robots` is the text of robots.txt, or the status of its answer."""
    with PageSite(robots) as site:
        thread = threading.Thread(target=site.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield site
        finally:
            site.gate.set()
            site.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: PageSite

    def do_GET(self) -> None:
        site = self.server
        with site.lock:
            site.seen[self.path] += 1
            site.headers.append(dict(self.headers))
            site.open += 1
            site.most = max(site.most, site.open)
        try:
            self._answer()
        except ConnectionError:  # it hung up, as it should where too much comes
            self.close_connection = True
        finally:
            with site.lock:
                site.open -= 1

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/robots.txt":
            robots = self.server.robots
            self._send(
                "text/plain", b"" if isinstance(robots, int) else robots, robots if isinstance(robots, int) else 200
            )
        elif path in REDIRECTS:
            self._send(HTML, b"", 302, Location=REDIRECTS[path])
        elif path.startswith("/hops/"):
            self._send(HTML, b"", 302, Location=f"/hops/{int(path.rpartition('/')[2]) + 1}")
        elif path.startswith("/status/"):
            status, _, wait = path.removeprefix("/status/").partition("/")
            again = {"Retry-After": wait} if wait and self.server.seen[self.path] < 2 else {}
            ended = wait == "0" and self.server.seen[self.path] > 1
            self._send(HTML, html("<p>back</p>"), 200 if ended else int(status), **again)
        elif path.startswith("/page/"):
            self._send(HTML, html(f"<p>page {path.rpartition('/')[2]}</p>"))
        elif path == "/bomb":
            self._send(HTML, gzip.compress(bytes(50 * 2**20)), **{"Content-Encoding": "gzip"})
        elif path == "/odd-packing":
            self._send(HTML, b"x", **{"Content-Encoding": "br"})
        elif path == "/breaks-off":
            self._send(HTML, b"<p>half", length=1000)
            self.close_connection = True
        elif path == "/hangs-up":
            self.close_connection = True
        elif path == "/endless":
            self._send(HTML, b"", length=10**9)
            while True:
                self.wfile.write(b"<p>more</p>" * 1000)
        elif path == "/slow":
            self.server.slow_asked.set()
            self.server.gate.wait(20)
            self._send(HTML, html("<p>slow</p>"))
        elif path == "/nonsense":
            self.wfile.write(b"this is no HTTP\r\n\r\n")
            self.close_connection = True
        elif path in PAGES:
            self._send(*PAGES[path])
        else:
            self._send(HTML, html("<p>no such page</p>"), 404)

    def _send(
        self, kind: str | None, body: bytes, status: int = 200, length: int | None = None, **headers: str
    ) -> None:
        self.send_response(status)
        for name, value in {**({"Content-Type": kind} if kind else {}), **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""
