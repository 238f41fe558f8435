"""Reads pages that may be hostile. A script: `python -I -B page_reader.py FOLDER...`.

FOLDER... contain the libraries. A request on stdin is two lengths (big-endian, 4 bytes each), a head in JSON and a
body. The reply on stdout is one length and JSON. An empty reply comes first, when the program is ready. The head has
`kind` (html, text, pdf or robots), `site`, `seconds`, `limit` (maximum characters of text) and fields of the kind, see
the functions below.

This process never parses a body. For each site it forks a child that does. The child ends after the site's last page,
after 50 pages, after any failure, and after `seconds`. So no page can reach data of another site in memory. The child
has neither this process's stdin nor its stdout, nor access to its memory. It starts no processes and writes no files.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import resource
import signal
import struct
import sys
from typing import Any, NoReturn

_PAGES = 50
_MEMORY = 2**30
_LONGEST_REPLY = 8 * 2**20
_PR_SET_DUMPABLE = 4
_LENGTHS = struct.Struct(">II")
_LENGTH = struct.Struct(">I")
_LIBRARIES = {
    "html": ("resiliparse.extract.html2text", "resiliparse.parse.encoding", "resiliparse.parse.html"),
    "text": ("resiliparse.parse.encoding",),
    "pdf": ("pypdf",),
    "robots": ("protego",),
}


def main(folders: list[str]) -> None:
    """Answer requests until stdin ends."""
    # `-I` leaves out site-packages. They come last, so that no library can replace a module of Python's own.
    sys.path.extend(folders)
    _forbid_tracing()
    signal.signal(signal.SIGALRM, lambda *_: _Child.end_late())
    _load("html")  # before the first page, which most likely is HTML
    loaded, child = {"html"}, None
    _write_reply(b"{}")
    while (request := _read_request(0)) is not None:
        head, body = request
        kind, site = head["kind"], head["site"]
        if child is not None and (kind not in loaded or child.site != site or child.remaining == 0):
            child.end()
            child = None
        if kind not in loaded:
            _load(kind)
            loaded.add(kind)
        child = child or _Child(site)
        reply = child.ask(head, body)
        if child.late or b'"problem"' in reply[:16]:
            child.end()
            child = None
        _write_reply(reply)


def _write_reply(reply: bytes) -> None:
    _write(1, _LENGTH.pack(len(reply)) + reply)


def _forbid_tracing() -> None:
    """Keep children from reading this process's memory and open files (on Linux)."""
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError("prctl(PR_SET_DUMPABLE) failed")


def _load(kind: str) -> None:
    for library in _LIBRARIES[kind]:
        importlib.import_module(library)
    # A child's garbage collector skips frozen objects. Otherwise it would copy every page of memory that it touches
    gc.freeze()


class _Child:
    """The process that reads the pages of one site. `remaining` is the number of pages that it may still read."""

    running: _Child | None = None

    def __init__(self, site: str) -> None:
        self.site, self.remaining, self.late = site, _PAGES, False
        requests, self._requests = os.pipe()
        self._replies, replies = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._requests)
            os.close(self._replies)
            _serve(requests, replies)
        os.close(requests)
        os.close(replies)

    def ask(self, head: dict[str, Any], body: bytes) -> bytes:
        """Return the child's reply, or a reply with a `problem` if the child failed."""
        self.remaining -= 1
        _Child.running = self
        signal.setitimer(signal.ITIMER_REAL, head["seconds"])
        try:
            packed = json.dumps(head).encode()
            _write(self._requests, b"".join((_LENGTHS.pack(len(packed), len(body)), packed, body)))
            (length,) = _LENGTH.unpack(_read(self._replies, _LENGTH.size))
            if length > _LONGEST_REPLY:
                return _encode_problem("its reader returned too much")
            return _read(self._replies, length)
        except (BrokenPipeError, EOFError):
            return _encode_problem("time" if self.late else "its reader crashed")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            _Child.running = None

    def end(self) -> None:
        """Kill the child and wait for its end."""
        os.close(self._requests)
        os.close(self._replies)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    @staticmethod
    def end_late() -> None:
        """Kill the working child after its time limit."""
        if (late := _Child.running) is not None:
            late.late = True
            # A parser in C never returns to Python's signal handlers, so the parent measures the time
            os.kill(late.pid, signal.SIGKILL)


def _serve(requests: int, replies: int) -> NoReturn:
    """Read pages in the forked process."""
    try:
        _give_up_rights()
        while (request := _read_request(requests)) is not None:
            reply = _answer(*request)
            _write(replies, _LENGTH.pack(len(reply)) + reply)
    finally:
        os._exit(1)


def _give_up_rights() -> None:
    # The parent talks to the plugin on stdin and stdout. A page that took over this process must not write there
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    for limit, value in (
        (resource.RLIMIT_NPROC, 0),
        # Hard limits too, which an ordinary process cannot raise
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_AS, _MEMORY),
    ):
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


def _answer(head: dict[str, Any], body: bytes) -> bytes:
    try:
        fields = _READERS[head["kind"]](head, body)
    except Exception as error:  # noqa: BLE001  any exception of a library is a problem of the page
        return _encode_problem(f"{type(error).__name__}: {error}"[:300])
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")


def _read_html(head: dict[str, Any], body: bytes) -> dict[str, Any]:
    """Return the text that a browser shows of HTML. `links`: with the links' targets and the fields of forms."""
    from resiliparse.extract import html2text
    from resiliparse.parse import html

    tree = html.HTMLTree.parse(_decode(body, head["charset"]))
    text = html2text.extract_plain_text(tree, links=head["links"], form_fields=head["links"])
    meta = tree.head and (
        tree.head.query_selector('meta[name="description" i]')
        or tree.head.query_selector('meta[property="og:description" i]')
    )
    description = meta.getattr("content") if meta else None
    return _cut_to_limit(head, text, tree.title or "", description or "")


def _read_text(head: dict[str, Any], body: bytes) -> dict[str, Any]:
    return _cut_to_limit(head, _decode(body, head["charset"]))


def _read_pdf(head: dict[str, Any], body: bytes) -> dict[str, Any]:
    """Return the text of a PDF's pages up to the limit."""
    import io

    import pypdf

    document = pypdf.PdfReader(io.BytesIO(body))
    if document.is_encrypted and not document.decrypt(""):
        raise ValueError("it needs a password")
    pages: list[str] = []
    for page in document.pages:
        pages.append(page.extract_text())
        if sum(map(len, pages)) > head["limit"]:
            break
    title, subject = (document.metadata.title, document.metadata.subject) if document.metadata else (None, None)
    return _cut_to_limit(head, "\n\n".join(pages), str(title or ""), str(subject or ""))


def _read_robots(head: dict[str, Any], body: bytes) -> dict[str, Any]:
    """Return whether a robots.txt allows `url` to `agent`, and its seconds between two requests."""
    import protego

    rules = protego.Protego.parse(body.decode("utf-8", "replace").removeprefix("\ufeff"))
    return {"allowed": rules.can_fetch(head["url"], head["agent"]), "delay": rules.crawl_delay(head["agent"])}


_READERS = {"html": _read_html, "text": _read_text, "pdf": _read_pdf, "robots": _read_robots}


def _decode(body: bytes, charset: str) -> str:
    """Return a body's text by the declared charset, else the page's own declaration, else the detected encoding.

    A declared charset is ignored if it produces mostly replacement characters.
    """
    from resiliparse.parse import encoding

    text = ""
    if charset:
        text = _decode_as(body, encoding.map_encoding_to_html5(charset) or "utf-8")
    if not charset or text.count("\ufffd") > max(10, len(text) // 100):
        detected = _decode_as(body, encoding.detect_encoding(body, from_html_meta=not charset) or "utf-8")
        if not charset or detected.count("\ufffd") < text.count("\ufffd"):
            text = detected
    return text


def _decode_as(body: bytes, charset: str) -> str:
    from resiliparse.parse import encoding

    try:
        return str(encoding.bytes_to_str(body, charset, errors="replace", fallback_encodings=()))
    except LookupError:  # an encoding that Python does not know
        return body.decode("utf-8", "replace")


def _cut_to_limit(head: dict[str, Any], text: str, title: str = "", description: str = "") -> dict[str, Any]:
    limit = head["limit"]
    return {"length": len(text), "text": text[:limit], "title": title[:limit], "description": description[:limit]}


def _encode_problem(text: str) -> bytes:
    return json.dumps({"problem": text}).encode()


def _read_request(descriptor: int) -> tuple[dict[str, Any], bytes] | None:
    """Return the next request, None at the end."""
    try:
        head, body = _LENGTHS.unpack(_read(descriptor, _LENGTHS.size))
    except EOFError:
        return None
    return json.loads(_read(descriptor, head)), _read(descriptor, body)


def _read(descriptor: int, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        part = os.read(descriptor, min(length - len(data), 2**20))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


if __name__ == "__main__":
    main(sys.argv[1:])
