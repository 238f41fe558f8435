"""A command-line agent with MCP servers, which it finds in ~/.stub/mcp.json; each entry has a url, or command and args.

Usage: mcp_agent.py MESSAGE. It offers its model the tools `sh` and those of the servers, named after STUB_NAMES. Words
in a message change it: "deny" (it makes no call of a server), "by itself" (it calls the first tool of the first server
without its model), "late cancel" (a cancellation after each call), "discover" (asks `server/discover` first), "give up"
(it waits half a second for a result), "ids" (it sends the model's call id in `_meta`), "print results" (its model reads
whole results, in JSON), "connect none" (it does not connect the servers), "hide" (it does not offer their tools).
"""

import json
import os
import pathlib
import subprocess
import sys
import urllib.error
import urllib.request

NAMES = os.environ.get("STUB_NAMES", "mcp__SERVER__TOOL")
TEXT = sys.argv[-1]
SERVERS = json.loads(pathlib.Path(os.environ["HOME"], ".stub/mcp.json").read_text())["mcpServers"]
NUMBERS = iter(range(1, 10_000))


class Url:
    def __init__(self, entry):
        self.url = entry["url"]

    def send(self, message):
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        request = urllib.request.Request(self.url, json.dumps(message).encode(), headers)
        seconds = 0.5 if "give up" in TEXT and message["method"] == "tools/call" else 120
        with urllib.request.urlopen(request, timeout=seconds) as response:
            if response.status == 202:
                return None
            if response.headers["content-type"].startswith("text/event-stream"):
                lines = [line[5:] for line in response if line.startswith(b"data:")]
                return json.loads(lines[-1])
            return json.load(response)


class Relay:
    def __init__(self, entry):
        self.process = subprocess.Popen(
            [entry["command"], *entry["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def send(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        if "id" not in message:
            return None
        while (answer := json.loads(self.process.stdout.readline())).get("id") != message["id"]:
            pass
        return answer


def ask(server, method, **params):
    reply = server.send({"jsonrpc": "2.0", "id": next(NUMBERS), "method": method, "params": params})
    if "error" in reply:
        raise LookupError(reply["error"]["message"])
    return reply["result"]


def connect(entry):
    server = Url(entry) if "url" in entry else Relay(entry)
    if "discover" in TEXT:
        try:
            ask(server, "server/discover")
        except LookupError as error:
            print(f"no discovery: {error}", file=sys.stderr)
    ask(
        server, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "stub", "version": "1"}
    )
    server.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    return server


def call(server, tool, arguments, call_id=None):
    if "deny" in TEXT:
        return "The user denied permission for this call."
    meta = {"_meta": {"stub/callId": call_id}} if "ids" in TEXT else {}
    try:
        result = ask(server, "tools/call", name=tool, arguments=arguments, **meta)
    except (TimeoutError, LookupError) as error:
        return f"MCP error: {error}"
    if "late cancel" in TEXT:
        server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}})
    return json.dumps(result) if "print results" in TEXT else result["content"][0]["text"]


def complete(messages, tools):
    functions = [{"type": "function", "function": each} for each in tools]
    body = json.dumps({"model": "demo", "messages": messages, "tools": functions}).encode()
    headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "content-type": "application/json"}
    request = urllib.request.Request(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]


def main():
    tools = [{"name": "sh", "parameters": {"type": "object"}}]
    places = {}
    for name, entry in ({} if "connect none" in TEXT else SERVERS).items():
        server = connect(entry)
        for tool in ask(server, "tools/list")["tools"]:
            shown = NAMES.replace("SERVER", name).replace("TOOL", tool["name"])
            places[shown] = server, tool["name"]
            tools.append({"name": shown, "description": tool["description"], "parameters": tool["inputSchema"]})
    if "by itself" in TEXT:
        call(*next(iter(places.values())), {"text": "of its own accord"})
    if "hide" in TEXT:
        del tools[1:]
    messages = [{"role": "user", "content": TEXT}]
    while calls := (message := complete(messages, tools)).get("tool_calls"):
        messages.append(message)
        for made in calls:
            name, arguments = made["function"]["name"], json.loads(made["function"]["arguments"])
            if name in places:
                result = call(*places[name], arguments, made["id"])
            elif name == "sh":
                result = subprocess.run(arguments["command"], shell=True, capture_output=True, text=True).stdout
            else:
                result = f"unknown tool {name}"
            messages.append({"role": "tool", "tool_call_id": made["id"], "content": result})
    print(json.dumps({"result": message["content"]}))


main()
