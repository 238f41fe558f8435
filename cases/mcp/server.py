"""Small MCP servers in the standard library alone: `python server.py timetable|exchange|library`. Copy it for your own.

They speak JSON-RPC over stdin and stdout, one message a line (https://modelcontextprotocol.io/specification).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
METHOD_NOT_FOUND, INVALID_PARAMS = -32601, -32602
TOOLS: dict[str, dict[str, tuple[Callable[..., Any], Json]]] = {"timetable": {}, "exchange": {}, "library": {}}

STATIONS = {"BSL": "Basel SBB", "BRN": "Bern", "ZRH": "Zürich HB", "GVA": "Genève"}
TRAINS: dict[str, Json] = {
    "IC 61": {"from": "BSL", "to": "BRN", "departs": "08:28", "arrives": "09:24", "chf": 42.0},
    "IC 81": {"from": "BRN", "to": "ZRH", "departs": "10:02", "arrives": "10:58", "chf": 51.0},
    "IR 27": {"from": "BSL", "to": "ZRH", "departs": "08:07", "arrives": "09:12", "chf": 35.0},
    "IC 3": {"from": "BSL", "to": "ZRH", "departs": "08:33", "arrives": "09:26", "chf": 38.0},
    "IC 5": {"from": "ZRH", "to": "GVA", "departs": "09:32", "arrives": "12:15", "chf": 92.0},
}
CHF_RATES = {"CHF": 1.0, "EUR": 1.05, "USD": 1.25, "JPY": 180.0}
TEXT: Json = {"type": "string"}
STATION: Json = {"type": "string", "pattern": "^[A-Z]{3}$", "description": "a station's code, from find_station"}
CURRENCY: Json = {"type": "string", "enum": sorted(CHF_RATES)}


def tool(server: str, *, optional: tuple[str, ...] = (), **properties: Json) -> Callable[[Callable[..., Any]], None]:
    """Makes a function a tool: its name and docstring are the tool's, `properties` describe its arguments."""

    def register(function: Callable[..., Any]) -> None:
        required = [name for name in properties if name not in optional]
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        TOOLS[server][function.__name__] = (function, schema)

    return register


@tool("timetable", name=TEXT)
def find_station(name: str) -> list[Json]:
    """Find stations by a part of their name."""
    return [{"code": code, "name": each} for code, each in STATIONS.items() if name.lower() in each.lower()]


@tool("timetable", optional=("after",), station=STATION, to=STATION, after={**TEXT, "description": "HH:MM"})
def departures(station: str, to: str, after: str = "00:00") -> list[Json]:
    """List the trains between two stations, by their codes."""
    for code in (station, to):
        if code not in STATIONS:
            raise ValueError(f"there is no station {code!r}; find_station gives codes")
    found = [
        {"train": name, **train} for name, train in TRAINS.items() if (train["from"], train["to"]) == (station, to)
    ]
    return [
        {key: train[key] for key in ("train", "departs", "arrives")} for train in found if train["departs"] >= after
    ]


@tool(
    "timetable", train={**TEXT, "description": "as departures names it"}, passengers={"type": "integer", "minimum": 1}
)
def ticket_price(train: str, passengers: int) -> Json:
    """Say what tickets for a train cost, in CHF."""
    if train not in TRAINS:
        raise ValueError(f"there is no train {train!r}; departures lists them")
    return {"amount": TRAINS[train]["chf"] * passengers, "currency": "CHF"}


@tool("exchange", amount={"type": "number", "exclusiveMinimum": 0}, source=CURRENCY, target=CURRENCY)
def convert(amount: float, source: str, target: str) -> Json:
    """Convert an amount of money between currencies."""
    return {"amount": round(amount / CHF_RATES[source] * CHF_RATES[target], 2), "currency": target}


@tool("library", title=TEXT)
def find_book(title: str) -> list[Json]:
    """Find books of the city library by their title."""
    return [{"title": "Trains of the Alps", "shelf": "E 4"}] if title.lower() in "trains of the alps" else []


def answer(server: str, method: str, params: Json) -> Json:
    """The result of a request, or its error."""
    if method == "initialize":
        version = params.get("protocolVersion")
        about = {"serverInfo": {"name": server, "version": "1.0"}, "capabilities": {"tools": {}}}
        return {"result": {"protocolVersion": version if version in VERSIONS else VERSIONS[0], **about}}
    if method == "ping":
        return {"result": {}}
    if method == "tools/list":
        return {"result": {"tools": list(descriptions(server))}}
    if method != "tools/call":
        return {"error": {"code": METHOD_NOT_FOUND, "message": f"there is no method {method!r}"}}
    if params.get("name") not in TOOLS[server]:
        return {"error": {"code": INVALID_PARAMS, "message": f"there is no tool {params.get('name')!r}"}}
    return {"result": call(server, params["name"], params.get("arguments") or {})}


def descriptions(server: str) -> Iterator[Json]:
    """The tools, as clients are told of them."""
    for name, (function, schema) in TOOLS[server].items():
        yield {"name": name, "description": function.__doc__, "inputSchema": schema}


def call(server: str, name: str, arguments: Json) -> Json:
    """What a tool returns. A failure is a result too, with `isError`, for the model to read."""
    function, _ = TOOLS[server][name]
    try:
        text, failed = json.dumps(function(**arguments), ensure_ascii=False), False
    except (TypeError, ValueError, KeyError) as error:
        text, failed = f"{type(error).__name__}: {error}", True
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def main(server: str) -> None:
    """Answers requests until stdin ends. A message without an id is a notification, which gets no answer."""
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message and "method" in message:
            reply = answer(server, message["method"], message.get("params") or {})
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
