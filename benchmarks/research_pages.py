"""What fetching cited pages costs: `python benchmarks/research_pages.py [--quick] [--only NAME]`.

A server on loopback, a process of its own, has 500 different pages of one size. The peer is a bare loop: one
`httpx2.AsyncClient()` as it comes, 500 times `(await client.get(url)).text`, 50 at once by a semaphore; it checks no
address, asks for no robots.txt, reads no HTML and keeps nothing. A second peer is the same loop that also has
resiliparse read each page in its own process, as one would without fear of the pages.

Ours is `research.pages.Pages` from its beginning to its end: robots.txt, addresses checked, title, description and text
of each page read in isolated processes, which are started and ended in that time, and each page kept on disk. All sides
are processes of their own that measure themselves, imports left out; they take turns over several rounds and the best
of each counts, for other programs only ever add to a cost. Files are removed at the end of all rounds: ext4 makes new
ones slowly for seconds after it removed some.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from tables import Measured, Section, print_table

PAGES, CONCURRENCY, TARGET = 500, 50, 1.3

SERVER = """
import asyncio, sys

PARAGRAPH = (
    "<div class=part><h2>Part {n}</h2><p>Owls of page {page} hunt at night, and their <a href='/prey/{n}'>prey</a> "
    "seldom hears them: their <b>feathers</b> are soft, and their wings are large for what they weigh.</p></div>"
)
paragraphs, seconds = int(sys.argv[1]), float(sys.argv[2])

def answer(path):
    if path == "/robots.txt":
        return b"HTTP/1.1 404 Not Found\\r\\ncontent-length: 0\\r\\n\\r\\n"
    page = path.rpartition("/")[2]
    parts = "".join(PARAGRAPH.format(n=n, page=page) for n in range(paragraphs))
    head = f"<title>Page {page}</title><meta name=description content='About owls'>"
    body = f"<!doctype html><html><head>{head}</head><body>{parts}</body></html>".encode()
    fields = f"content-type: text/html; charset=utf-8\\r\\ncontent-length: {len(body)}"
    return f"HTTP/1.1 200 OK\\r\\n{fields}\\r\\n\\r\\n".encode() + body

answers = {path: answer(path) for path in ("/robots.txt", *(f"/page/{n}" for n in range(int(sys.argv[3]))))}

class Connection(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.asked = transport, b""

    def data_received(self, data):
        self.asked += data
        while b"\\r\\n\\r\\n" in self.asked:
            request, _, self.asked = self.asked.partition(b"\\r\\n\\r\\n")
            found = answers[request.split(b" ", 2)[1].decode()]
            if seconds:
                asyncio.get_running_loop().call_later(seconds, self.transport.write, found)
            else:
                self.transport.write(found)

async def main():
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], len(answers["/page/0"]), flush=True)
    await server.serve_forever()

asyncio.run(main())
"""

BARE = """
import asyncio, sys, time
import httpx2

async def main(site, pages, concurrency):
    free = asyncio.Semaphore(concurrency)
    begun = time.perf_counter()
    async with httpx2.AsyncClient() as client:
        async def fetch(number):
            async with free:
                return (await client.get(f"{site}/page/{number}")).text
        texts = await asyncio.gather(*map(fetch, range(pages)))
    print(time.perf_counter() - begun)
    assert all("Owls of page" in text for text in texts)

asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:4])))
"""

READING = BARE.replace(
    "import httpx2", "import httpx2\nfrom resiliparse.extract.html2text import extract_plain_text"
).replace(
    '(await client.get(f"{site}/page/{number}")).text',
    'extract_plain_text((await client.get(f"{site}/page/{number}")).text)',
)
"""The same loop, which reads the HTML too."""

CLIENT = """
import asyncio, sys, time
import httpx2
from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.tools.web_client import WebClient
from pytest_agentbench.tools.network import checked_url, system_resolver

async def main(site, pages, concurrency):
    free, network = asyncio.Semaphore(concurrency), NetworkSettings(allow_private=("127.0.0.1",))
    begun = time.perf_counter()
    async with WebClient(network, system_resolver(asyncio.to_thread), {}, 30) as client:
        async def fetch(number):
            async with free:
                reply = await client.get(checked_url(f"{site}/page/{number}", network), lambda status, kind: 2**20)
                return reply.body.decode()
        texts = await asyncio.gather(*map(fetch, range(pages)))
    print(time.perf_counter() - begun)
    assert all("Owls of page" in text for text in texts)

asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:4])))
"""

OURS = """
import asyncio, pathlib, sys, time
import httpx2
from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.packs.research.fact.pages import Pages
from pytest_agentbench.packs.research.fact.direct_pages import PageSettings

async def main(site, pages, concurrency, output):
    settings = PageSettings(NetworkSettings(allow_private=("127.0.0.1",)), concurrency=concurrency)
    begun = time.perf_counter()
    async with Pages(pathlib.Path(output), settings) as fetched:
        texts = await asyncio.gather(*(fetched.content(f"{site}/page/{number}") for number in range(pages)))
    print(time.perf_counter() - begun)
    assert all(text.startswith(f"Page {number}\\n\\nAbout owls\\n\\nPart 0") for number, text in enumerate(texts))

asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:4]), sys.argv[4]))
"""


def main() -> None:
    """Measures, and prints the table of docs/performance.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: for a look, not for the page")
    parser.add_argument("--only", choices=["small", "large", "distant"])
    given = parser.parse_args()
    rounds = 2 if given.quick else 7
    sections = {
        "small": Section(lambda: scraping(20, 0, rounds)),
        "large": Section(lambda: scraping(160, 0, rounds, promised=False)),
        "distant": Section(lambda: scraping(160, 0.05, rounds)),
    }
    print_table(sections, given.only, more="times as long", peer="bare `httpx2` loop")


def scraping(paragraphs: int, seconds: float, rounds: int, *, promised: bool = True) -> Iterator[Measured]:
    """Pages of so many paragraphs, each answered after `seconds`."""
    bare, reading, client, ours, again = [], [], [], [], []
    with server(paragraphs, seconds) as (site, size), tempfile.TemporaryDirectory(prefix="pages-benchmark-") as folder:
        for number in range(rounds):
            bare.append(timed(BARE, site))
            reading.append(timed(READING, site))
            client.append(timed(CLIENT, site))
            ours.append(timed(OURS, site, f"{folder}/{number}"))
            again.append(timed(OURS, site, f"{folder}/{number}"))
    what = f"{PAGES} pages of {size / 1000:.0f} KB, {CONCURRENCY} at once"
    what += f", each answered after {1000 * seconds:.0f} ms" if seconds else ""
    target = f"<= {TARGET}" if promised else ""
    yield against(what, ours, bare, target)
    yield against(f"{what}: the loop reads the HTML too", ours, reading)
    yield against(f"{what}: ours fetches only", client, bare)
    yield against(f"{what}: kept by an earlier session", again, bare)


def against(what: str, ours: list[float], peer: list[float], target: str = "") -> Measured:
    """The best of each."""
    ratio = min(ours) / min(peer)
    met = not target or ratio <= TARGET
    return Measured(what, f"{min(ours):.2f} s", f"{min(peer):.2f} s", f"{ratio:.2f}", target, met)


def timed(program: str, site: str, *more: str) -> float:
    """The seconds that a program prints."""
    command = [sys.executable, "-c", program, site, str(PAGES), str(CONCURRENCY), *more]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


@contextmanager
def server(paragraphs: int, seconds: float) -> Iterator[tuple[str, int]]:
    """A site's URL, and the bytes of its first answer."""
    command = [sys.executable, "-c", SERVER, str(paragraphs), str(seconds), str(PAGES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port, size = map(int, process.stdout.readline().split())
            yield f"http://127.0.0.1:{port}", size
        finally:
            process.kill()


if __name__ == "__main__":
    main()
