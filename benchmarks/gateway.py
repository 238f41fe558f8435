"""What a run's gateway adds to a request of its agent: `python benchmarks/gateway.py [--quick] [--only NAME]`.

An agent, an endpoint and the session's listener are a process each, on loopback. The agent asks the endpoint directly
and through the gateway by turns, with the same client, and reads a stream of 30 events to its end. What is added is the
difference of the medians, and of the 95th percentiles. `check.py` keeps what is measured here.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median, quantiles
from typing import Any

from processes import Bench, Scenarios, compare, parser_of
from record import Line

REQUESTS = 200
EVENTS = 30
Targets = Mapping[int, tuple[float | None, float | None]]
"""By the kilobytes of a request what may be added to its median and its 95th percentile, in milliseconds."""

PASSED: Targets = {40: (2.0, 5.0), 400: (5.0, None)}
# Each of 500 messages is read, and written anew
TRANSLATED: Targets = {40: (2.0, 5.0), 400: (None, None)}
FIRST_BYTE = 2.0

UPSTREAM = """
import asyncio, json, sys

EVENTS = int(sys.argv[1])
usage = {"prompt_tokens": 11, "completion_tokens": 3}
chunks = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": "word "}}]}] * EVENTS
chunks += [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, {"choices": [], "usage": usage}]
stream = [b"data: " + json.dumps({"id": "c", "model": "m", **chunk}).encode() + b"\\n\\n" for chunk in chunks]
stream.append(b"data: [DONE]\\n\\n")
message = {"role": "assistant", "content": "word " * EVENTS}
choice = {"message": message, "finish_reason": "stop"}
whole = json.dumps({"id": "c", "model": "m", "choices": [choice], "usage": usage})

async def answer(reader, writer):
    while True:
        try:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
        except asyncio.IncompleteReadError:  # the client has closed its connection
            return writer.close()
        length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length"))
        body = await reader.readexactly(int(length.partition(b":")[2]))
        streamed = b'"stream": true' in body or b'"stream":true' in body
        kind, pieces = ("text/event-stream", stream) if streamed else ("application/json", [whole.encode()])
        head = f"HTTP/1.1 200 OK\\r\\ncontent-type: {kind}\\r\\ncontent-length: {sum(map(len, pieces))}\\r\\n\\r\\n"
        writer.write(head.encode())
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=2**20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""

GATEWAY = """
import asyncio, sys
from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.records.case import Model
from pytest_agentbench.runners.base import Recorder
from pytest_agentbench.runners.chat import Requests
from pytest_agentbench.runners.gateway.gateway import Gateway
from pytest_agentbench.runners.gateway.listener import Listener

async def main():
    model = Model(model_id="m", requested_model="m", base_url=f"http://127.0.0.1:{sys.argv[1]}/v1", api_key_env=None)
    listener, trace = Listener(asyncio.get_running_loop()), Recorder()
    requests = Requests("a_case", Endpoints().client(model), RunnerSettings(), trace)
    gateway = Gateway(requests, model, trace, {})
    with gateway.turn("Go."):
        print(listener.url.rpartition(":")[2], listener.add(gateway), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""

SCENARIOS = Scenarios()


@contextmanager
def started(code: str, *arguments: str) -> Iterator[list[str]]:
    """Run a server in a process of its own, and yield what it says of where it is."""
    process = subprocess.Popen((sys.executable, "-c", code, *arguments), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()
    finally:
        process.kill()
        process.wait()


def conversation(kilobytes: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return messages and functions of so many kilobytes: a fifth instructions, a fifth tools, the rest calls."""
    text = "What an agent reads of a file, by the line. "
    text = (text * (1000 // len(text) + 1))[:1000]
    messages: list[dict[str, Any]] = [{"role": "system", "content": text * (kilobytes // 5)}]
    messages.append({"role": "user", "content": "Go."})
    for number in range(3 * kilobytes // 5):
        function = {"name": "read", "arguments": json.dumps({"path": f"{number}.txt"})}
        call = {"id": f"c{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": text[:800]})
    properties = {"path": {"type": "string", "description": text[:700]}}
    parameters = {"type": "object", "properties": properties, "required": ["path"]}
    tools = [{"name": f"tool_{n}", "description": text[:100], "parameters": parameters} for n in range(kilobytes // 5)]
    return messages, tools


def in_chat(kilobytes: int) -> bytes:
    """Return a request of Chat Completions for a stream."""
    messages, functions = conversation(kilobytes)
    tools = [{"type": "function", "function": function} for function in functions]
    fields = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
    return json.dumps({**fields, "messages": messages, "tools": tools}).encode()


def in_responses(kilobytes: int) -> bytes:
    """Return the same as a request for a streamed response."""
    messages, functions = conversation(kilobytes)
    items: list[Mapping[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            said = {"call_id": message["tool_call_id"], "output": message["content"]}
            items.append({"type": "function_call_output", **said})
        elif message.get("tool_calls"):
            [call] = message["tool_calls"]
            items.append({"type": "function_call", "call_id": call["id"], **call["function"]})
        else:
            items.append(message)
    tools = [{"type": "function", **function} for function in functions]
    return json.dumps({"model": "m", "stream": True, "store": False, "input": items, "tools": tools}).encode()


def ask(port: int, path: str, body: bytes) -> tuple[float, float]:
    """Return after how many milliseconds a stream began, and ended, on a connection of its own."""
    begun = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        came = connection.recv(2**16)
        first = time.perf_counter()
        while b"data: [DONE]" not in came[-20:] and b"event: response.completed" not in came:
            piece = connection.recv(2**16)
            if not piece:
                sys.exit(f"a stream broke off: {came[-500:]!r}")
            came += piece
    ended = time.perf_counter()
    return 1000 * (first - begun), 1000 * (ended - begun)


def measure(bench: Bench, path: str, body: bytes, direct: bytes) -> Mapping[str, float]:
    """Return what the gateway adds, in milliseconds: to the median, to the 95th percentile, to the first byte's
    median.
    """
    count = REQUESTS // bench.scale
    with started(UPSTREAM, str(EVENTS)) as [upstream], started(GATEWAY, upstream) as [port, token]:
        times: dict[str, list[tuple[float, float]]] = {"direct": [], "ours": []}
        for number in range(count + 5):
            each = {
                "direct": ask(int(upstream), "/v1/chat/completions", direct),
                "ours": ask(int(port), f"/r/{token}{path}", body),
            }
            if number >= 5:  # the first ones import, and open connections
                for side, taken in each.items():
                    times[side].append(taken)
    first, last = ({side: [each[at] for each in taken] for side, taken in times.items()} for at in (0, 1))
    return {
        "p50": median(last["ours"]) - median(last["direct"]),
        "p95": quantiles(last["ours"], n=20)[-1] - quantiles(last["direct"], n=20)[-1],
        "first": median(first["ours"]) - median(first["direct"]),
    }


def compare_sizes(bench: Bench, how: str, path: str, make: Callable[[int], bytes], targets: Targets) -> Iterator[Line]:
    """Yield the lines of a way through the gateway, each the median over the rounds."""
    for kilobytes, (p50, p95) in targets.items():
        rounds = [measure(bench, path, make(kilobytes), in_chat(kilobytes)) for _ in range(bench.rounds)]
        added = {name: median(each[name] for each in rounds) for name in rounds[0]}
        name = f"a request of {kilobytes} kB, {how}"
        yield Line(f"{name}: added to the median", added["p50"], "ms", target=p50)
        yield Line(f"{name}: added to the 95th percentile", added["p95"], "ms", target=p95)
        if make is in_chat and kilobytes == min(targets):
            yield Line(f"{name}: added to the first byte's median", added["first"], "ms", target=FIRST_BYTE)


@SCENARIOS.add()
def passed(bench: Bench) -> Iterator[Line]:
    """Requests that go as they are to an endpoint of their dialect."""
    return compare_sizes(bench, "passed on", "/v1/chat/completions", in_chat, PASSED)


@SCENARIOS.add()
def translated(bench: Bench) -> Iterator[Line]:
    """Requests in another dialect than the endpoint's."""
    return compare_sizes(bench, "translated", "/v1/responses", in_responses, TRANSLATED)


if __name__ == "__main__":
    sys.exit(compare(parser_of(__doc__, SCENARIOS), SCENARIOS, ("pytest", "openai")))
