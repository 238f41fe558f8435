"""A minimal ACP agent: asks its model in Chat Completions and runs the requested commands. Words of the message, or of
its argument, make it break the protocol; see `main` and `FAULTS`.

Usage: stub_acp_agent.py [FAULT]
"""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
MODES = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "free", "name": "Free"}]}
OPTIONS = [
    {"optionId": "1", "name": "Yes", "kind": "allow_once"},
    {"optionId": "2", "name": "Always", "kind": "allow_always"},
    {"optionId": "3", "name": "No", "kind": "reject_once"},
]
TOOLS = [{"type": "function", "function": {"name": "sh", "parameters": {"type": "object"}}}]
messages, cancelled, asked = [], threading.Event(), {}
mode, lock = "ask", threading.Lock()


def send(**message):
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def update(update_kind, **fields):
    send(method="session/update", params={"sessionId": "s", "update": {"sessionUpdate": update_kind, **fields}})


def ask_client(method, **params):
    """Send a request and return the reply."""
    number, asked_ = f"a{len(asked)}", threading.Event()
    asked_.method = method
    asked[number] = asked_
    send(id=number, method=method, params={"sessionId": "s", **params})
    asked_.wait()
    return asked_.reply


def ask_model():
    body = json.dumps({"model": os.environ.get("STUB_MODEL", "demo"), "messages": messages, "tools": TOOLS}).encode()
    headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "content-type": "application/json"}
    request = urllib.request.Request(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]


def permit(call_id, command):
    """Return whether the client allows the command. The request is the first message about the call."""
    options = [option for option in OPTIONS if FAULT != "no once" or not option["kind"].endswith("once")]
    call = {"toolCallId": call_id, "title": f"sh: {command}", "kind": "execute", "rawInput": {"path": "/workspace/x"}}
    outcome = ask_client("session/request_permission", toolCall=call, options=options)["result"]["outcome"]
    return outcome.get("optionId") in ("1", "2")


def take_turn(text):
    """Return the stop reason."""
    messages.append({"role": "user", "content": text})
    while not cancelled.is_set():
        message = ask_model()
        messages.append(message)
        if not message.get("tool_calls"):
            update("agent_message_chunk", content={"type": "text", "text": "Warning: a word of its own. "})
            update("agent_message_chunk", content={"type": "text", "text": message["content"]})
            return "end_turn"
        for call in message["tool_calls"]:
            command = json.loads(call["function"]["arguments"])["command"]
            if mode == "ask" and not permit(call["id"], command):
                if FAULT == "ends on denial":
                    return "end_turn"
                result = "the user refused it"
            else:
                update("tool_call_update", toolCallId=call["id"], title=command, status="in_progress")
                done = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, text=True)
                while done.poll() is None and not cancelled.is_set():
                    time.sleep(0.01)
                if cancelled.is_set():
                    done.kill()
                    return "cancelled"
                result = done.stdout.read()
            update("tool_call", toolCallId=call["id"], title=command, kind="execute", status="completed")
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return "cancelled"


def use_files():
    workspace = os.getcwd()
    replies = [
        ask_client("fs/write_text_file", path=f"{workspace}/made.txt", content="one\ntwo\nthree\n"),
        ask_client("fs/read_text_file", path=f"{workspace}/made.txt", line=2, limit=1),
        ask_client("fs/read_text_file", path="/etc/passwd"),
        ask_client("fs/read_text_file", path=f"{workspace}/../../etc/passwd"),
        ask_client("terminal/create", command="echo", args=["from a terminal"]),
    ]
    if "result" in replies[-1]:
        terminal = replies[-1]["result"]["terminalId"]
        replies.append(ask_client("terminal/wait_for_exit", terminalId=terminal))
        replies.append(ask_client("terminal/output", terminalId=terminal))
        ask_client("terminal/kill", terminalId=terminal)
        ask_client("terminal/release", terminalId=terminal)
    return replies


def run_unusable_commands():
    """Start commands that no system can start, and return how each ended."""
    requests = [
        {"command": "echo", "args": ["a\0b"]},
        {"command": "echo \ud800"},
        {"command": "echo " + "x" * 200_000},
        {"command": "env", "env": [{"name": "A=B", "value": "x"}]},
        {"command": "pwd", "cwd": f"{os.getcwd()}/missing"},
        {"command": "pwd", "cwd": f"{os.getcwd()}/a\0b"},
        {"command": "no-such-program", "args": ["x"]},
    ]
    terminals = [ask_client("terminal/create", **each)["result"]["terminalId"] for each in requests]
    return [ask_client("terminal/wait_for_exit", terminalId=each)["result"]["exitCode"] for each in terminals]


def break_protocol():
    """Do what FAULT names in the middle of a turn."""
    if FAULT == "exit":
        print("the last words", file=sys.stderr, flush=True)
        os._exit(3)
    if FAULT == "long line":
        with lock:
            sys.stdout.write("x" * 17 * 2**20)
            sys.stdout.flush()
    if FAULT == "many bad lines":
        for _ in range(1100):
            print("no message", flush=True)
    if FAULT == "noise":
        print("npm notice: a new version", flush=True)
        print('{"jsonrpc": "2.0", "id": 77, "result": {}}', flush=True)
        print("[" * 5000, flush=True)
        update("compaction_update")
        send(method="vendor/notice", params=[])
    if FAULT == "unknown request":
        text = json.dumps(ask_client("craft/drainMidTurnQueue")["error"]["code"])
        messages.append({"role": "user", "content": text})
    if FAULT == "files":
        with open("replies.json", "w") as file:
            file.write(json.dumps(use_files()))
    if FAULT == "unusable commands":
        with open("replies.json", "w") as file:
            file.write(json.dumps(run_unusable_commands()))
    if FAULT == "forge":
        update("usage_update", used=10**9, size=10**9)
        update("tool_call", toolCallId="t", title="sh", status="completed", rawOutput="forged")
        update("agent_message_chunk", content={"type": "text", "text": "forged"})
    if FAULT == "silent":
        threading.Event().wait()


REASONS = {"refusal", "max_tokens", "max_turn_requests", "cancelled", "bored"}


def prompt(number, text):
    try:
        break_protocol()
        if FAULT in REASONS:
            reason = FAULT
        elif FAULT.startswith("mcp"):
            done = subprocess.run([sys.executable, "mcp_agent.py", text], stdout=subprocess.DEVNULL)
            reason = "refusal" if done.returncode else "end_turn"
        else:
            reason = take_turn(text)
    except urllib.error.HTTPError as error:
        if FAULT != "hide":
            send(id=number, error={"code": -32603, "message": "Internal error", "data": {"details": f"{error.code}"}})
            return
        update("agent_message_chunk", content={"type": "text", "text": "[API Error]"})
        reason = "end_turn"
    send(id=number, result={"stopReason": reason, "usage": {"inputTokens": 10**9}, "future": {}})


def answer(method, params, number):
    global mode
    if method == "initialize":
        if FAULT == "never":
            return
        if FAULT == "not acp":
            print("Welcome to the agent!", flush=True)
            return
        if FAULT == "exit early":
            print("cannot find its settings", file=sys.stderr)
            sys.exit(1)
        capabilities = {"mcpCapabilities": {"http": FAULT == "mcp http"}}
        about = {
            "agentCapabilities": capabilities,
            "agentInfo": {"name": "stub", "version": "1", "icon": "x"},
            "authMethods": [],
        }
        send(id=number, result={"protocolVersion": 2 if FAULT == "version 2" else 1, **about})
    elif method == "session/new":
        assert os.path.samefile(params["cwd"], os.getcwd()), params
        # For mcp_agent.py, which takes the turns of an agent with MCP servers
        servers = {entry["name"]: entry for entry in params["mcpServers"]}
        os.makedirs(os.path.expanduser("~/.stub"), exist_ok=True)
        with open(os.path.expanduser("~/.stub/mcp.json"), "w") as file:
            json.dump({"mcpServers": servers}, file)
        if FAULT == "auth":
            send(id=number, error={"code": -32000, "message": "Authentication required"})
        elif FAULT == "no session":
            send(id=number, result={})
        else:
            send(id=number, result={"sessionId": "s", "modes": MODES})
    elif method in ("authenticate", "session/set_config_option"):
        send(id=number, result={})
    elif method == "session/set_mode":
        mode = params["modeId"]
        send(id=number, result={})
    elif method == "session/prompt":
        if FAULT == "error":
            send(id=number, error={"code": -32603, "message": "Internal error", "data": {"details": "it is broken"}})
        else:
            cancelled.clear()
            threading.Thread(target=prompt, args=(number, params["prompt"][0]["text"]), daemon=True).start()
    elif method == "session/cancel":
        cancelled.set()
    else:
        send(id=number, error={"code": -32601, "message": f"no {method}"})


def log(message):
    """Append what the client sends to the file STUB_LOG: its messages, and its replies with the method asked for."""
    method = message["method"] if "method" in message else asked[message["id"]].method
    with open(os.environ["STUB_LOG"], "a") as file:
        file.write(json.dumps({**message, "method": method}) + "\n")


for line in sys.stdin:
    message = json.loads(line)
    if "STUB_LOG" in os.environ:
        log(message)
    if "method" in message:
        answer(message["method"], message.get("params"), message.get("id"))
    elif message["id"] in asked:
        asked[message["id"]].reply = message
        asked[message["id"]].set()
if FAULT == "stays":
    subprocess.Popen(["sleep", "614"], start_new_session=True)
    time.sleep(614)
