"""A command-line agent with skills: it lists those of ~/.stub/skills, and has the tools `skill` and `sh`.

Usage: skill_agent.py MESSAGE. STUB_SKILLS=hidden: it lists no skills; toolless: it has no tool `skill`;
broken: that tool fails.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.request

FOLDER = pathlib.Path(os.environ["HOME"], ".stub", "skills")
MODE = os.environ.get("STUB_SKILLS")
TOOLS = [
    {"type": "function", "function": {"name": name, "description": name, "parameters": {"type": "object"}}}
    for name in (("skill", "sh") if MODE != "toolless" else ("sh",))
]


def list_skills():
    lines = []
    for path in sorted(FOLDER.glob("*/SKILL.md")):
        description = re.search("^description: (.*)$", path.read_text(), re.MULTILINE)[1]
        lines.append(f"{path.parent.name}: {description}")
    return "\n".join(["You have skills.", *lines]) if MODE != "hidden" else "You have none."


def ask(messages):
    body = json.dumps({"model": "demo", "messages": messages, "tools": TOOLS}).encode()
    headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "content-type": "application/json"}
    request = urllib.request.Request(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]


def use(name, arguments):
    if name == "sh":
        done = subprocess.run(arguments["command"], shell=True, capture_output=True, text=True)
        return done.stdout + done.stderr
    path = FOLDER / arguments["name"] / "SKILL.md"
    if MODE == "broken" or not path.is_file():
        return f"Skill {arguments['name']} not found"
    return path.read_text().partition("\n---\n")[2]


messages = [{"role": "system", "content": list_skills()}, {"role": "user", "content": sys.argv[-1]}]
while True:
    message = ask(messages)
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for call in message["tool_calls"]:
        result = use(call["function"]["name"], json.loads(call["function"]["arguments"]))
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
print(json.dumps({"result": message["content"]}))
