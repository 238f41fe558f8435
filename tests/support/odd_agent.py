"""A command-line agent that asks in Chat Completions and whose oddities are switched on by variables.

ODD_BASE replaces the base URL, ODD_PATH the path, ODD_MODEL the name of the model, ODD_TOOLS the tools (JSON: names to
required arguments). ODD_PRINT is plain, banner or json. ODD_TITLE adds a request for a title, ODD_NONCE a random
number. ODD_FINISH is the tool by whose call it ends. ODD_RESULTS is user: results return as texts of the user.
With ODD_STAY it asks nothing.
"""

import json
import os
import subprocess
import sys
import urllib.request

SETTING = {name[4:].lower(): value for name, value in os.environ.items() if name.startswith("ODD_")}
TOOLS = json.loads(SETTING.get("tools", '{"sh": ["command"]}'))
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
    if functions:
        body["tools"] = functions
    if SETTING.get("path") == "/responses":
        body = {"model": body["model"], "input": messages[-1]["content"]}
    url = SETTING.get("base", os.environ["OPENAI_BASE_URL"]) + SETTING.get("path", "/chat/completions")
    headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request, timeout=10))["choices"][0]["message"]


def call(name, arguments):
    if name not in TOOLS:
        return f"no such tool: {name}"
    done = subprocess.run(arguments.get("command", ""), shell=True, capture_output=True, text=True)
    return done.stdout + done.stderr


def work(text):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
    if "title" in SETTING:
        ask([{"role": "system", "content": "Write a title (short)."}, messages[-1]], {})
    while True:
        message = ask(messages, TOOLS)
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
answer = work(sys.argv[-1])
if SETTING.get("print") == "banner":
    print(f"*** odd 1.0 ***\n{answer}\n*** bye ***")
elif SETTING.get("print") == "json":
    print(json.dumps({"type": "end", "result": {"text": answer}}))
else:
    print(answer)
