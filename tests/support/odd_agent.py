"""A command-line agent that asks in Chat Completions and whose oddities are switched on by variables.

ODD_BASE replaces the base URL, ODD_PATH the path, ODD_MODEL the name of the model, ODD_TOOLS the tools (JSON: names to
required arguments). ODD_PRINT is plain, banner or json. ODD_TITLE adds a request for a title, ODD_NONCE a random
number, ODD_TAG one in a field that tags requests. ODD_FINISH is the tool by whose call it ends. ODD_RESULTS is user:
results return as texts of the user. With ODD_STAY it asks nothing. ODD_MCP is yes, hidden (it keeps the tools of its
MCP servers from its model), late (its first request lacks them) or deaf (it lists none); its servers are in ~/odd.json.
"""

import json
import os
import subprocess
import sys
import urllib.request

SETTING = {name[4:].lower(): value for name, value in os.environ.items() if name.startswith("ODD_")}
TOOLS = json.loads(SETTING.get("tools", '{"sh": ["command"]}'))
SERVERS = {}
SYSTEM = "You are odd." + (f" Session {os.urandom(4).hex()}f." if "nonce" in SETTING else "")


def ask(messages, tools):
    functions = [
        {
            "type": "function",
            "function": {
                "name": name,
                "parameters": {
                    "type": "object",
                    "properties": {argument: {"type": "string"} for argument in required},
                    "required": required,
                },
            },
        }
        for name, required in tools.items()
    ]
    body = {"model": SETTING.get("model", os.environ.get("RUN_MODEL", "demo")), "messages": messages}
    if "tag" in SETTING:
        body["prompt_cache_key"] = os.urandom(16).hex()
    if functions:
        body["tools"] = functions
    if SETTING.get("path") == "/responses":
        body = {"model": body["model"], "input": messages[-1]["content"]}
    url = SETTING.get("base", os.environ["OPENAI_BASE_URL"]) + SETTING.get("path", "/chat/completions")
    headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request, timeout=10))["choices"][0]["message"]


def ask_server(url, method, **params):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    return json.load(urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=10))["result"]


def connect():
    with open(os.path.expanduser("~/odd.json")) as file:
        servers = json.load(file)["servers"]
    for name, entry in servers.items():
        ask_server(entry["url"], "initialize", protocolVersion="2025-06-18", capabilities={})
        for tool in [] if SETTING["mcp"] == "deaf" else ask_server(entry["url"], "tools/list")["tools"]:
            SERVERS[f"{name}_{tool['name']}"] = entry["url"], tool["name"]


def offer_servers():
    if SETTING.get("mcp") != "hidden":
        TOOLS.update({name: [] for name in SERVERS})


def call(name, arguments):
    if name in SERVERS:
        url, tool = SERVERS[name]
        return ask_server(url, "tools/call", name=tool, arguments=arguments)["content"][0]["text"]
    if name not in TOOLS:
        return f"no such tool: {name}"
    done = subprocess.run(arguments.get("command", ""), shell=True, capture_output=True, text=True)
    return done.stdout + done.stderr


def work(text):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
    if "title" in SETTING:
        ask([{"role": "system", "content": "Write a title (short)."}, messages[-1]], {})
    if SETTING.get("mcp") != "late":
        offer_servers()
    while True:
        message = ask(messages, TOOLS)
        offer_servers()
        messages.append(message)
        calls = message.get("tool_calls") or []
        if not calls and "finish" not in SETTING:
            return message["content"]
        for made in calls:
            arguments = json.loads(made["function"]["arguments"])
            if made["function"]["name"] == SETTING.get("finish"):
                return message.get("content") or arguments.get("text")
            result = call(made["function"]["name"], arguments)
            if SETTING.get("results") == "user":
                messages[-1] = {"role": "assistant", "content": f"I call {made['function']['name']}."}
                messages.append({"role": "user", "content": f"Observation: {result}"})
            else:
                messages.append({"role": "tool", "tool_call_id": made["id"], "content": result})
        if not calls:
            messages.append({"role": "user", "content": "Go on, or finish."})


if "stay" in SETTING:
    sys.exit("no key for api.example.com")
if "mcp" in SETTING:
    connect()
answer = work(sys.argv[-1])
if SETTING.get("print") == "banner":
    print(f"*** odd 1.0 ***\n{answer}\n*** bye ***")
elif SETTING.get("print") == "json":
    print(json.dumps({"type": "end", "result": {"text": answer}}))
else:
    print(answer)
