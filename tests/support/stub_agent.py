"""A command-line agent as small as one can be: asks its model in Chat Completions, runs what it is told, prints JSON.

Usage: stub_agent.py [--resume] MESSAGE; its session is a file in HOME. Words in a message make it fail; see FAULTS.
"""

import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request

HISTORY = pathlib.Path(os.environ["HOME"], "session.json")
TOOLS = [{"type": "function", "function": {"name": "sh", "parameters": {"type": "object"}}}]
FAULTS = {
    "exit 7": lambda: sys.exit("it is broken"),
    "say nothing": lambda: sys.exit(0),
    "sleep for long": lambda: (subprocess.Popen(["sleep", "611"]), time.sleep(611)),
}


def ask(messages, model):
    body = json.dumps({"model": model, "messages": messages, "tools": TOOLS}).encode()
    headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "content-type": "application/json"}
    request = urllib.request.Request(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]


def main():
    text = sys.argv[-1]
    messages = json.loads(HISTORY.read_text()) if "--resume" in sys.argv else []
    messages.append({"role": "user", "content": text})
    for words, fault in FAULTS.items():
        if words in text:
            fault()
    while True:
        try:
            message = ask(messages, os.environ.get("STUB_MODEL", "demo"))
        except urllib.error.HTTPError as error:
            # As some agents do: an outage becomes an answer
            message = {"role": "assistant", "content": f"[API Error: {error.code}]"}
        messages.append(message)
        if not message.get("tool_calls"):
            break
        for call in message["tool_calls"]:
            command = json.loads(call["function"]["arguments"])["command"]
            done = subprocess.run(command, shell=True, capture_output=True, text=True)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": done.stdout})
    HISTORY.write_text(json.dumps(messages))
    print("a line of a log", file=sys.stderr)
    print(json.dumps({"result": {"text": message["content"]}, "session": "s-1", "counted": {"in": 11, "out": 3}}))


main()
