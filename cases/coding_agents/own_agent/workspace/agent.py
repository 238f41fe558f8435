"""An agent of thirty lines: it asks the run's model in Chat Completions and runs what that calls for."""

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

HISTORY = Path(os.environ["HOME"], "history.json")
RUN = {"name": "run", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}


def ask(messages):
    body = {"model": os.environ["MODEL"], "messages": messages, "tools": [{"type": "function", "function": RUN}]}
    headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "content-type": "application/json"}
    request = Request(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", json.dumps(body).encode(), headers)
    return json.load(urlopen(request))["choices"][0]["message"]


messages = json.loads(HISTORY.read_text()) if "--resume" in sys.argv else []
messages.append({"role": "user", "content": sys.argv[-1]})
while True:
    messages.append(message := ask(messages))
    if not message.get("tool_calls"):
        break
    for call in message["tool_calls"]:
        command = json.loads(call["function"]["arguments"])["command"]
        done = subprocess.run(command, shell=True, capture_output=True, text=True)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": done.stdout + done.stderr})
HISTORY.write_text(json.dumps(messages))
print(json.dumps({"answer": message["content"]}))
