"""Serve pages on loopback, and a judge that reads them, for tests of checks of citations.

    with Site({"/tea": "Tea is a drink."}) as site, FactJudge() as judge: ...

In articles for this judge a line `- <statement> [<marker>] <url>` is a statement with a citation; marker and url are
optional. A statement is supported if the page has it. Two statements are the same if they differ only in capitals.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from support.fault_endpoint import FaultEndpoint

_CITED = re.compile(r"^- (?P<fact>.*?)(?: \[(?P<ref_idx>\d+)\])?(?: (?P<url>https?://\S+))?$", re.MULTILINE)


class Site:
    """A site. `pages` are the texts by path; other paths are 404. `asked` counts requests by path, without robots.txt.

    It also answers like the Jina reader: `read` has the requested addresses, each with the key.
    """

    def __init__(self, pages: Mapping[str, str]) -> None:
        self.pages, self.asked = dict(pages), Counter[str]()
        self.read: list[tuple[str, str]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path != "/robots.txt":
                    site.asked[path] += 1
                text = site.pages.get(path)
                page = f"<html><title>{path}</title><body><p>{text}</p></body></html>"
                self._answer(404 if text is None else 200, "text/html; charset=utf-8", page)

            def do_POST(self) -> None:
                wanted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["url"]
                site.read.append((wanted, self.headers["Authorization"]))
                text = site.pages[urlsplit(wanted).path]
                self._answer(200, "application/json", json.dumps({"data": {"title": "Read", "content": text}}))

            def _answer(self, status: int, media_type: str, text: str) -> None:
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", media_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Site:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class FactJudge(FaultEndpoint):
    """A judge. `says` replaces its reply at a stage: a function of its own reply and its input to a text or message."""

    def __init__(self, **says: Callable[[dict[str, Any], str], Any]) -> None:
        super().__init__(answer=self._answer)
        self.says = says
        self.asked: Counter[str] = Counter()
        self.shown: list[tuple[str, str]] = []

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        stage = body["response_format"]["json_schema"]["name"].removeprefix("research_")
        shown = body["messages"][1]["content"]
        self.asked[stage] += 1
        self.shown.append((stage, "\n".join(message["content"] for message in body["messages"])))
        reply = getattr(self, f"_{stage}")(shown)
        said = self.says[stage](reply, shown) if stage in self.says else reply
        if isinstance(said, dict) and "content" in said:
            return {"role": "assistant", **said}
        return {"role": "assistant", "content": said if isinstance(said, str) else json.dumps(said)}

    def _extract(self, shown: str) -> dict[str, Any]:
        return {"citations": [each.groupdict("") for each in _CITED.finditer(shown.partition("\n<<<END")[0])]}

    def _deduplicate(self, shown: str) -> dict[str, Any]:
        first = {fact.casefold(): number for number, fact in reversed(list(enumerate(_facts(shown))))}
        return {"kept": sorted(first.values())}

    def _validate(self, shown: str) -> dict[str, Any]:
        page = shown.partition("\n<<<END")[0]
        labels = ["supported" if fact in page else "unsupported" for fact in _facts(shown)]
        return {"results": [{"idx": n, "reason": "Read.", "result": label} for n, label in enumerate(labels)]}


def _facts(shown: str) -> list[str]:
    return [json.loads(line)["fact"] for line in shown.splitlines() if line.startswith('{"idx": ')]
