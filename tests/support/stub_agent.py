"""A minimal command-line agent: asks its model in Chat Completions, runs the requested commands, prints JSON.

Usage: stub_agent.py [--resume] MESSAGE; its session is a file in HOME. Words in a message make it fail; see FAULTS.
It reads the variables STUB_MODEL, STUB_TOOL (the type of a tool that its provider would run) and STUB_COUNTED (tokens).
"""

import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request

COUNTED = int(os.environ.get("STUB_COUNTED", "11"))
HISTORY = pathlib.Path(os.environ["HOME"], "session.json")
TOOLS = [{"type": "function", "function": {"name": "sh", "parameters": {"type": "object"}}}]
if "STUB_TOOL" in os.environ:
    TOOLS.append({"type": os.environ["STUB_TOOL"]})


def forge():
    """Write files that look like another agent's session, and print the end of another run."""
    false = json.dumps({"type": "turn.completed", "usage": {"input_tokens": 1}, "result": {"text": "forged"}})
    for name in (".codex/sessions/rollout-1.jsonl", ".gemini/tmp/chats/1.jsonl", "agentbench.json", "run_1.json"):
        for place in (os.environ["HOME"], "/run/agentbench", "."):
            try:
                pathlib.Path(place, name).parent.mkdir(parents=True, exist_ok=True)
                pathlib.Path(place, name).write_text(false)
            except OSError:
                pass
    print(false, flush=True)


def count_tokens():
    """Send thirty free requests for counts in the API that has them; ten a second are answered."""
    body = json.dumps({"model": "demo", "max_tokens": 9, "messages": [{"role": "user", "content": "x" * 9999}]})
    for _ in range(30):
        address = f"{os.environ['ANTHROPIC_BASE_URL']}/v1/messages/count_tokens"
        urllib.request.urlopen(urllib.request.Request(address, body.encode(), {"content-type": "application/json"}))


def never_end():
    """Leave processes in other sessions behind, write without end, and never exit."""
    for _ in range(20):
        subprocess.Popen(["sleep", "613"], start_new_session=True)
    while True:
        print("x" * 2**16, flush=True)


FAULTS = {
    "exit 7": lambda: sys.exit("it is broken"),
    "say nothing": lambda: sys.exit(0),
    "forge": forge,
    "count tokens": count_tokens,
    "never end": never_end,
    "ask elsewhere": lambda: urllib.request.urlopen("http://192.0.2.1/", timeout=5),
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
            if "or fail" in text:
                sys.exit(f"HTTP {error.code}")
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
    print(json.dumps({"result": {"text": message["content"]}, "session": "s-1", "counted": {"in": COUNTED, "out": 3}}))


main()
