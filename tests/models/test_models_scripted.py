"""Scripted models: what stands beside the cases is what a model says, through the whole client."""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.cpu_seconds import at_most
from support.script_server import served

from pytest_agentbench.config.profiles import ModelsFile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.session_roots import find_root
from pytest_agentbench.errors import ConfigError, ProviderError
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.completions import ScriptedConnection
from pytest_agentbench.models.completions_http import scripted_app
from pytest_agentbench.models.failures import Backoff
from pytest_agentbench.models.prompts import JUDGE_SCHEMA
from pytest_agentbench.models.routes import resolve_model
from pytest_agentbench.models.script_files import script_schemas
from pytest_agentbench.models.script_trees import ScriptTree
from pytest_agentbench.models.scripts import NoScript, Scripts
from pytest_agentbench.records.base import DIMENSIONS
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.evaluation import JudgeVerdict
from pytest_agentbench.sources.dataset import Dataset, Row, open_dataset
from pytest_agentbench.sources.rows import read_rows, row_case
from pytest_agentbench.sources.test_yaml import load_case

DEMO = resolve_model("demo", models=ModelsFile(schema_version=1), environ={})
JUDGES = {"response_format": {"type": "json_schema", "json_schema": {"name": JUDGE_SCHEMA, "schema": {}}}}
TOOLS = [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}]
CASE = """
schema_version: 1
case_id: {case_id}
title: A case
runner: {{type: llm_probe}}
input:
  messages:
    - {{role: user, content: {question}}}
"""
TWO_STEPS = """
schema_version: 1
replies:
  - steps:
      - tool_calls:
          - {name: read_file, arguments: {path: a.txt}}
          - {name: read_file, arguments: '{"path": '}
        usage: {input_tokens: 7, output_tokens: 2, reasoning_tokens: 1, cached_tokens: 3}
      - content: Both say 42.
  - {when: And in French?, content: Quarante-deux.}
  - {matches: "^Add \\\\d+", content: Added.}
judge: {overall: 8, dimensions: {task: {score: 9, evidence: [it read both]}}}
"""


def write_case(folder: Path, script: str | None, question: str = "What do they say?") -> Case:
    (folder / "run_profiles").parent.mkdir(parents=True, exist_ok=True)
    path = folder / "test.yaml"
    path.write_text(CASE.format(case_id=folder.name, question=json.dumps(question)))
    if script is not None:
        (folder / "demo.yaml").write_text(script)
    return load_case(path, find_root(path, folder.parent, None))


def write_dataset(folder: Path, script: str | None, rows: int = 3) -> list[Case]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "sums.jsonl"
    lines = [json.dumps({"id": f"q{n}", "question": f"{n} + {n}?", "answer": str(2 * n)}) for n in range(rows)]
    path.write_text("\n".join(lines))
    if script is not None:
        (folder / "sums.demo.yaml").write_text(script)
    dataset = Dataset(path, "math/sums")
    return [row_case(dataset, row) for row in read_rows(dataset) if isinstance(row, Row)]


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def ask(scripts: Scripts, *messages: dict, case: Case | None = None, **options):
    async def main():
        endpoints = Endpoints(scripts=scripts, backoff=Backoff(first=0.001))
        client = endpoints.client(DEMO)
        try:
            return await client.complete(messages, case_id=case and case.case_id, **options)
        finally:
            await endpoints.close()

    return asyncio.run(main())


def beside(*cases: Case) -> Scripts:
    scripts = Scripts()
    for case in cases:
        scripts.load_beside(case)
    return scripts


def test_a_tool_loop_goes_step_by_step(tmp_path):
    case = write_case(tmp_path / "two_files", TWO_STEPS)
    scripts, conversation = beside(case), [user("What do they say?")]
    first = ask(scripts, *conversation, case=case, tools=TOOLS)
    assert [(call.name, call.arguments) for call in first.tool_calls] == [
        ("read_file", {"path": "a.txt"}),
        ("read_file", None),
    ]
    assert len({call.id for call in first.tool_calls}) == 2
    assert first.finish_reason == "tool_calls"
    usage = first.usage
    assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens, usage.cached_tokens) == (7, 2, 1, 3)
    assert usage.cost_usd == 0
    conversation += [
        first.message,
        *({"role": "tool", "tool_call_id": c.id, "content": "42"} for c in first.tool_calls),
    ]
    second = ask(scripts, *conversation, case=case, tools=TOOLS)
    assert (second.content, second.finish_reason, second.tool_calls) == ("Both say 42.", "stop", ())
    conversation += [second.message, user("And in French?")]
    assert ask(scripts, *conversation, case=case, tools=TOOLS).content == "Quarante-deux."
    assert ask(scripts, user("Add 17"), case=case, tools=TOOLS).content == "Added."


def test_the_same_conversation_gets_the_same_answer(tmp_path):
    case = write_case(tmp_path / "same", TWO_STEPS)
    replies = [ask(beside(case), user("x"), case=case, tools=TOOLS) for _ in range(2)]
    assert replies[0].response_id == replies[1].response_id
    assert replies[0].usage == replies[1].usage


def test_without_tools_on_offer_none_is_called(tmp_path):
    case = write_case(tmp_path / "forced", TWO_STEPS)
    scripts = beside(case)
    asked = [user("What do they say?"), {"role": "assistant", "content": None}, user("No more tools. Answer now.")]
    assert ask(scripts, *asked, case=case).content == "Both say 42."
    assert ask(scripts, *asked, case=case, tools=TOOLS, parameters={"tool_choice": "none"}).content == "Both say 42."


def test_the_error_of_a_missing_reply_names_the_place_to_add_it(tmp_path):
    bare = write_case(tmp_path / "bare", None)
    with pytest.raises(ProviderError, match=r"no script answers case 'bare'; add a reply to .*bare/demo.y") as caught:
        ask(beside(bare), user("x"), case=bare)
    assert (caught.value.code, caught.value.retryable) == ("no_script", False)
    case = write_case(tmp_path / "short", "schema_version: 1\nreplies: [{content: Done.}]")
    with pytest.raises(ProviderError, match="the reply has 1 steps and this is request 2; add a step to"):
        ask(beside(case), user("x"), {"role": "assistant", "content": "Done."}, case=case, tools=TOOLS)
    with pytest.raises(ProviderError, match="no scripted verdict for case 'short'; add a `judge:` section to"):
        ask(beside(case), user("x"), case=case, parameters=JUDGES)
    only = write_case(tmp_path / "only", "schema_version: 1\nreplies: [{when: Hello, content: Hi.}]")
    with pytest.raises(ProviderError, match="no reply is for the message 'Bye'; add one with `when`"):
        ask(beside(only), user("Bye"), case=only)


def test_errors_latency_and_recovery_are_scripted(tmp_path):
    script = """
schema_version: 1
replies:
  - steps:
      - {error: {status: 429, retry_after: 0.01, times: 2}, content: At last., latency_seconds: 0.05}
  - {when: Never, steps: [{error: {status: 401, message: no entry, code: bad_key}}]}
"""
    case = write_case(tmp_path / "flaky", script)
    began = time.monotonic()
    reply = ask(beside(case), user("x"), case=case)
    assert (reply.content, reply.attempts) == ("At last.", 3)
    assert time.monotonic() - began >= 0.17
    with pytest.raises(ProviderError, match="HTTP 401: no entry") as caught:
        ask(beside(case), user("Never"), case=case)
    assert caught.value.code == "bad_key"


def test_scripted_latency_ends_at_the_timeout(tmp_path):
    case = write_case(tmp_path / "slow", "schema_version: 1\nreplies: [{steps: [{content: x, latency_seconds: 60}]}]")
    with pytest.raises(ProviderError, match=r"no complete reply within 0\.05 s"):
        ask(beside(case), user("x"), case=case, timeout=0.05, retries=0)


def test_a_judge_gets_the_verdict_of_the_case(tmp_path):
    case = write_case(tmp_path / "judged", TWO_STEPS)
    reply = ask(beside(case), user("a long prompt"), case=case, parameters=JUDGES)
    verdict = JudgeVerdict.model_validate_json(reply.content)
    assert (verdict.overall.score, verdict.dimensions["task"].score, verdict.dimensions["spark"].score) == (8, 9, 8)
    assert verdict.dimensions["task"].evidence == ("it read both",)
    assert set(verdict.dimensions) == set(DIMENSIONS)


def test_a_judge_can_break_its_contract_on_purpose(tmp_path):
    case = write_case(tmp_path / "broken", "schema_version: 1\njudge: {content: not JSON}")
    assert ask(beside(case), user("prompt"), case=case, parameters=JUDGES).content == "not JSON"


def test_the_web_is_scripted_too(tmp_path):
    script = "schema_version: 1\nweb_search: {cats: [{title: Cats, url: 'https://example.org'}]}"
    case = write_case(tmp_path / "searching", script)
    scripts = beside(case)
    assert [result.title for result in scripts.search(case.case_id, "cats")] == ["Cats"]
    with pytest.raises(NoScript, match="no scripted search for 'dogs' in case 'searching'; add it to web_search in"):
        scripts.search(case.case_id, "dogs")


@pytest.mark.slow
def test_the_schemas_and_the_loader_accept_the_same_scripts():
    import jsonschema
    import yaml

    schema = script_schemas()["demo"]
    jsonschema.validate(yaml.load(TWO_STEPS, yaml.CSafeLoader), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema_version": 1, "reply": "x"}, schema)


def test_rows_are_answered_by_item_id(tmp_path):
    script = (
        "schema_version: 1\nanswers: {q0: '0', q1: {steps: [{content: two}]}}\ndefault: no idea\njudge: {overall: 3}"
    )
    rows = write_dataset(tmp_path, script)
    scripts = beside(*rows)
    assert [ask(scripts, user("?"), case=row).content for row in rows] == ["0", "two", "no idea"]
    assert json.loads(ask(scripts, user("?"), case=rows[2], parameters=JUDGES).content)["overall"]["score"] == 3


@pytest.mark.parametrize("first", [0, 1, 2])
def test_each_file_of_a_dataset_has_a_script_of_its_own_whichever_is_read_first(tmp_path, first):
    (tmp_path / "dataset.yaml").write_text("schema_version: 1\nname: sums\nfiles: ['*.jsonl']\n")
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_text(f'{{"id": "{name}::1", "question": "{name}?", "answer": "1"}}\n')
    (tmp_path / "a.demo.yaml").write_text("schema_version: 1\nanswers: {'a::1': an answer, 'c::1': of another file}\n")
    (tmp_path / "b.demo.yaml").write_text("schema_version: 1\ndefault: another default\n")
    dataset = open_dataset(tmp_path / "dataset.yaml", ConfigRoot(tmp_path))
    a, b, c = rows = [row_case(dataset, row) for row in read_rows(dataset) if isinstance(row, Row)]
    scripts = beside(*rows[first:], *rows)
    assert [ask(scripts, user("?"), case=row).content for row in (a, b)] == ["an answer", "another default"]
    with pytest.raises(ProviderError, match=r"no script answers case 'sums\.c_1-\w+'; add a reply to .*/c\.demo\.yaml"):
        ask(scripts, user("?"), case=c)


def test_ids_need_not_be_ascii(tmp_path):
    case = write_case(tmp_path / "plain", "schema_version: 1\nreplies: [{content: 好}]").model_copy(
        update={"case_id": "数学.第一题 [a]"}
    )
    assert ask(beside(case), user("?"), case=case).content == "好"


@pytest.mark.slow
def test_ten_thousand_rows_are_looked_up_at_once(tmp_path):
    answers = "".join(f"  q{n}: '{2 * n}'\n" for n in range(10_000))
    rows = write_dataset(tmp_path, f"schema_version: 1\nanswers:\n{answers}", rows=10_000)
    scripts = beside(*rows)
    with at_most(1):
        for row in rows:
            assert scripts.find(row.case_id, ()).step([user("?")], offers_tools=False).content == str(
                2 * int(row.case_id[11:])
            )


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("replies: []", "schema_version"),
        ("schema_version: 1\nreplies: [{content: a, steps: [{content: b}]}]", "needs either 'content' or 'steps'"),
        ("schema_version: 1\nreplies: [{when: a, matches: b, content: c}]", "Specify only one of 'when' and 'matches'"),
        ("schema_version: 1\nreplies: [{matches: '(', content: c}]", "not a regular expression"),
        ("schema_version: 1\nreplies: [{steps: [{}]}]", "needs 'content' or 'tool_calls'"),
        ("schema_version: 1\nreplies: [{contents: a}]", "contents"),
        ("schema_version: 1\njudge: {overall: 11}", "overall"),
        ("schema_version: 1\njudge: {summary: fine}", "needs 'overall', or 'content'"),
    ],
)
def test_a_wrong_script_is_refused_each_time_with_its_place(tmp_path, script, complaint):
    case, scripts = write_case(tmp_path / "wrong", script), Scripts()
    for _ in range(2):
        with pytest.raises(ConfigError) as caught:
            scripts.load_beside(case)
        assert str(caught.value).startswith(f"{tmp_path / 'wrong' / 'demo.yaml'}:")
        assert complaint in str(caught.value)


def test_two_cases_of_one_id_are_ambiguous(tmp_path):
    script = "schema_version: 1\nreplies: [{content: x}]"
    cases = [write_case(tmp_path / where / "twin", script) for where in "ab"]
    with pytest.raises(
        ProviderError, match=r"several scripts answer case 'twin': .*a/twin/demo.yaml, .*b/twin/demo.ya"
    ):
        ask(beside(*cases), user("x"), case=cases[0])


# -- as an endpoint for other programs


@contextmanager
def openai_client(base_url: str):
    import openai

    with openai.OpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.slow
def test_other_programs_find_a_case_by_its_message(tmp_path):
    write_case(tmp_path / "two_files", TWO_STEPS)
    write_dataset(tmp_path / "math", "schema_version: 1\nanswers: {q2: '4'}")
    scripts = ScriptTree(tmp_path)
    assert scripts.problems == []
    with served(scripts) as base_url, openai_client(base_url) as client:
        assert [model.id for model in client.models.list()] == ["demo"]

        def said(*messages, **options) -> str:
            return client.chat.completions.create(model="any", messages=messages, **options).choices[0].message.content

        assert said(user("What do they say?")) == "Both say 42."
        assert said({"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}) == "4"
        assert said(user("And in French?")) == "Quarante-deux."
        assert said(user("2 + 2?"), {"role": "assistant", "content": "hm"}, user("Answer now.")) == "4"
        verdict = said(user('Judge this: "What do they say?" The answer was: x'), **JUDGES)
        assert json.loads(verdict)["overall"]["score"] == 8


@pytest.mark.slow
def test_unknown_messages_routes_and_bodies_are_openai_errors(tmp_path):
    import httpx2
    import openai

    scripts = Scripts()
    with served(scripts) as base_url, openai_client(base_url) as client:
        with pytest.raises(openai.NotFoundError, match="no script answers the user message 'What\\?'") as caught:
            client.chat.completions.create(model="demo", messages=[user("What?")])
        assert caught.value.code == "no_script"
        assert httpx2.get(f"{base_url}/embeddings").status_code == 404
        assert httpx2.post(f"{base_url}/chat/completions", content=b"{").json()["error"]["code"] == "invalid_json"
        assert httpx2.post(f"{base_url}/chat/completions", json={"messages": []}).status_code == 400


def test_cases_with_one_message_and_different_answers_are_ambiguous(tmp_path):
    for name in ("one", "other"):
        write_case(tmp_path / name, f"schema_version: 1\nreplies: [{{content: {name}}}]", "Same?")
    scripts = ScriptTree(tmp_path)
    with pytest.raises(ProviderError, match="belongs to several cases with different scripts: one, other") as caught:
        ask(scripts, user("Same?"))
    assert caught.value.code == "ambiguous_script"


def test_a_script_alone_in_a_folder_answers_by_message(tmp_path):
    (tmp_path / "demo.yaml").write_text(
        "schema_version: 1\n"
        "replies: [{when: Hi, content: Hello.}, {matches: weather, content: Rain.}, {content: What?}]\n"
        "judge: {overall: 5}"
    )
    scripts = ScriptTree(tmp_path)
    assert [ask(scripts, user(text)).content for text in ("Hi", "the weather", "?")] == ["Hello.", "Rain.", "What?"]
    assert json.loads(ask(scripts, user("Judge it"), parameters=JUDGES).content)["overall"]["score"] == 5


def test_scripts_alone_in_folders_judge_what_their_patterns_match(tmp_path):
    for name, score in (("cats", 7), ("dogs", 2)):
        (tmp_path / name).mkdir()
        script = f"schema_version: 1\nreplies: [{{matches: {name}, content: {name}!}}]\njudge: {{overall: {score}}}"
        (tmp_path / name / "demo.yaml").write_text(script)
    scripts = ScriptTree(tmp_path)
    assert ask(scripts, user("about dogs")).content == "dogs!"
    verdict = json.loads(ask(scripts, user("Judge: about cats"), parameters=JUDGES).content)
    assert verdict["overall"]["score"] == 7


def test_one_bad_script_takes_no_other_down(tmp_path):
    write_case(tmp_path / "good", "schema_version: 1\nreplies: [{content: fine}]", "Good?")
    write_case(tmp_path / "bad", "schema_version: 2")
    (tmp_path / "lost.demo.yaml").write_text("schema_version: 1")
    scripts = ScriptTree(tmp_path)
    assert ask(scripts, user("Good?")).content == "fine"
    assert len(scripts.problems) == 2
    assert "lost.demo.yaml:1:1: found no dataset for it" in scripts.problems[0]
    assert "bad/demo.yaml:1:" in scripts.problems[1]


@pytest.mark.slow
def test_streaming_gives_the_same_reply_in_pieces(tmp_path):
    case = write_case(tmp_path / "two_files", TWO_STEPS)
    headers = {"X-Agentbench-Case": case.case_id}
    with served(beside(case)) as base_url, openai_client(base_url) as client:

        def stream(*messages):
            return list(
                client.chat.completions.create(
                    model="demo", messages=messages, tools=TOOLS, stream=True, extra_headers=headers,
                    stream_options={"include_usage": True},
                )
            )  # fmt: skip

        chunks = stream(user("x"))
        calls: dict[int, list[str]] = {}
        for chunk in chunks[:-1]:
            for call in chunk.choices[0].delta.tool_calls or ():
                calls.setdefault(call.index, ["", ""])
                calls[call.index][0] += call.function.name or ""
                calls[call.index][1] += call.function.arguments or ""
        assert calls == {0: ["read_file", '{"path": "a.txt"}'], 1: ["read_file", '{"path": ']}
        assert chunks[-2].choices[0].finish_reason == "tool_calls"
        assert chunks[-1].usage.total_tokens == 9
        chunks = stream(user("And in French?"))
        text = [chunk.choices[0].delta.content for chunk in chunks[:-1] if chunk.choices[0].delta.content]
        assert "".join(text) == "Quarante-deux."


@pytest.mark.slow
def test_latency_of_the_server_is_waited(tmp_path):
    case = write_case(tmp_path / "plain", "schema_version: 1\nreplies: [{content: x}]", "Hi")
    scripts = ScriptTree(tmp_path)
    with served(scripts, latency_seconds=0.1) as base_url, openai_client(base_url) as client:
        began = time.monotonic()
        client.chat.completions.create(model="demo", messages=[user("Hi")])
        assert time.monotonic() - began >= 0.1
    assert case.case_id == "plain"


def post(app, content: bytes, headers: dict[str, str] | None = None):
    """The app's response to this request for a completion."""
    import httpx2

    async def send() -> httpx2.Response:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as client:
            return await client.post("http://scripted/v1/chat/completions", content=content, headers=headers)

    return asyncio.run(send())


def test_unencodable_characters_of_a_request_are_escaped_in_the_answer(tmp_path):
    """JSON may hold half a surrogate pair, and the answer names the model as the request does."""
    write_case(tmp_path / "plain", "schema_version: 1\nreplies: [{content: x}]", "Hi")
    app = scripted_app(ScriptTree(tmp_path))
    response = post(app, b'{"model": "\\ud800", "messages": [{"role": "user", "content": "Hi"}]}')
    assert response.status_code == 200
    assert b'"model": "\\ud800"' in response.content


def test_a_request_of_more_than_32_mb_is_refused():
    response = post(scripted_app(Scripts()), b" " * (32 * 2**20 + 1))
    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "script",
    ["{content: fine}", "{steps: [{content: x, error: {status: 503, retry_after: 2}}]}", "{when: other, content: x}"],
)
def test_direct_requests_are_answered_like_http_requests(tmp_path, script, stream):
    case = write_case(tmp_path / "plain", f"schema_version: 1\nreplies: [{script}]", "Hi")
    scripts, headers = beside(case), {"X-Agentbench-Case": case.case_id}
    body = json.dumps({"model": "demo", "messages": [user("Hi")], "stream": stream}).encode()
    direct = asyncio.run(ScriptedConnection(scripts).send(body, headers))
    served = post(scripted_app(scripts), body, headers)
    assert direct.status == served.status_code

    def without_time(text: bytes) -> bytes:
        return re.sub(rb'"created": \d+', b"", text)

    assert without_time(direct.content) == without_time(served.content)
    assert direct.headers == {k: v for k, v in served.headers.items() if k != "content-length"}


def test_a_request_of_more_than_32_mb_is_refused_in_the_same_process_too(tmp_path):
    case = write_case(tmp_path / "plain", "schema_version: 1\nreplies: [{content: x}]", "Hi")
    with pytest.raises(ProviderError, match="larger than 33,554,432 bytes"):
        ask(beside(case), user("x" * 32 * 2**20), case=case)
