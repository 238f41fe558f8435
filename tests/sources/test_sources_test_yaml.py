from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from pytest_agentbench.config.base import Guest, Known
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.session_roots import find_root
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.sources.discovery import find_cases, index_cases
from pytest_agentbench.sources.test_yaml import load_case

SHARED = Path(__file__).parents[3] / "shared" / "data"

HEAD = "schema_version: 1\ncase_id: sum\ntitle: A sum\nrunner: {type: llm_probe, temperature: 0}\n"


@pytest.fixture
def write(tmp_path):
    """Writes a case's file and returns its path."""
    folder = tmp_path / "cases" / "sum"
    folder.mkdir(parents=True)

    def case(text="input: {}\n"):
        (folder / "test.yaml").write_text(HEAD + text)
        return folder / "test.yaml"

    return case


@pytest.fixture
def root(tmp_path):
    return ConfigRoot(tmp_path)


def source(root, write, name, content, outer="role: user"):
    path = write(f"input:\n  messages: [{{{outer}, source: {{path: {name}}}}}]\n")
    (path.parent / name).write_text(content)
    return [(message.role, message.content, message.name) for message in load_case(path, root).messages]


def test_a_case_has_the_fields_of_its_file(root, write):
    case = load_case(
        write(
            "input:\n  messages: [{role: user, content: 2 + 2?, name: ann}]\n"
            "  context: {llm_probe: {tools: [read_file, exec_shell, read_file]}, locale: de}\n"
            "tags: [smoke, ' easy ', smoke]\nmust_pass: true\nreference: '4'\n"
            "metrics: [{name: exact_match, threshold: 1}]\nmetadata: {owner: qa}\nthresholds: {pass_rate: 0.5}\n"
        ),
        root,
    )
    assert (case.case_id, case.title, case.tags, case.line) == ("sum", "A sum", ("easy", "smoke"), 1)
    assert case.runner.overrides == {"temperature": 0}
    assert [(m.role, m.content, m.name) for m in case.messages] == [("user", "2 + 2?", "ann")]
    assert case.tools == ("read_file", "exec_shell")
    assert case.context["locale"] == "de"
    assert case.must_pass
    assert (case.reference, case.metrics[0].threshold) == ("4", 1)
    assert case.thresholds is not None
    assert case.metadata == {"owner": "qa"}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the conformance data are not here")
def test_the_conformance_cases_load():
    files = list(find_cases(SHARED / "config"))
    cases = {case.case_id: case for case in (load_case(path, find_root(path, SHARED, None)) for path in files)}
    assert cases.keys() == {"example_case", "openclaw_smoke", "h1_tool_chain", "h4_email_constraints"}
    example = cases["example_case"]
    assert [message.role for message in example.messages] == ["system", "system", "user"]
    assert example.messages[2].content == "Summarize the attached context."
    assert [(a.name, a.size) for a in example.attachments] == [("prompt.txt", 41)]
    assert cases["openclaw_smoke"].context == {"openclaw": {"expected_artifact": "report.md"}}


def test_a_list_of_messages_replaces_the_outer_one(root, write):
    content = "- {role: system, content: Be brief.}\n- {role: user, content: Hi, name: bob}\n"
    expected = [("system", "Be brief.", None), ("user", "Hi", "bob")]
    assert source(root, write, "m.yaml", content, "role: assistant, name: x") == expected
    assert source(root, write, "m.yml", content) == expected


def test_one_message_has_its_own_role_or_the_outer_one(root, write):
    assert source(root, write, "m.yaml", "role: system\ncontent: Hi\n") == [("system", "Hi", None)]
    assert source(root, write, "m.json", '{"content": "Hi \\ud83d\\ude00"}', "role: user, name: a") == [
        ("user", "Hi \U0001f600", "a")
    ]


def test_other_text_is_the_content(root, write):
    assert source(root, write, "m.md", "- Grüße\n") == [("user", "- Grüße\n", None)]
    assert source(root, write, "m.txt", "\ufeffHi") == [("user", "Hi", None)]


def test_a_format_wins_over_the_extension(root, write):
    path = write("input:\n  messages: [{role: user, source: {path: m.yaml, format: text}}]\n")
    (path.parent / "m.yaml").write_text("role: system\n")
    assert load_case(path, root).messages[0].content == "role: system\n"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("m.yaml", "- role: user\n  content: a\n- role: boss\n  content: b\n", "m.yaml:3:9: [1].role: found 'boss'"),
        ("m.yaml", "- {role: user, source: {path: x}}\n", "m.yaml:1:16: [0].source: unknown field"),
        ("m.yaml", "just text\n", "m.yaml:1:1: found no message"),
        ("m.yaml", "", "m.yaml:1:1: found no message"),
        ("m.json", '[\n  {"role": "user", "content": 5}]', "m.json:2:31: [0].content: found 5"),
        ("m.json", "[1 2]", "m.json:1:4: not valid JSON"),
    ],
)
def test_a_wrong_source_is_named_with_its_place(root, write, name, content, expected):
    with pytest.raises(ConfigError) as error:
        source(root, write, name, content)
    assert expected in str(error.value)


def test_a_source_that_is_no_utf_8_is_named(root, write):
    path = write("input:\n  messages: [{role: user, source: {path: m.txt}}]\n")
    (path.parent / "m.txt").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"m\.txt:1:1: not UTF-8"):
        load_case(path, root)


def test_an_attachment_is_addressed_by_its_content(root, write):
    path = write("input:\n  attachments: [data/a.bin]\n")
    (path.parent / "data").mkdir()
    (path.parent / "data" / "a.bin").write_bytes(b"\0" * 70_000)
    (attachment,) = load_case(path, root).attachments
    assert (attachment.name, attachment.size) == ("a.bin", 70_000)
    assert attachment.sha256 == hashlib.sha256(b"\0" * 70_000).hexdigest()


@pytest.mark.parametrize(
    "text",
    [
        "input: {attachments: [PATH]}\n",
        "input: {messages: [{role: user, source: {path: PATH}}]}\n",
        "input: {}\ndeterministic_checks: [{check_id: a, python_hook: {path: PATH, callable_name: f}}]\n",
        "input: {}\ndeterministic_checks: [{check_id: a, declarative: {kind: file_exists, path: PATH}}]\n",
    ],
)
def test_a_case_reads_nothing_outside_its_folder_and_the_roots_cases(tmp_path, write, text):
    for place in (".env", "secret.txt", "cases/.env", "cases/shared.txt"):
        (tmp_path / place).write_text("KEY=x")
    (tmp_path / "cases" / "sum" / "link.txt").symlink_to(tmp_path / ".env")
    (tmp_path / "cases" / "link").symlink_to(tmp_path)
    load_case(write(text.replace("PATH", "../shared.txt")), ConfigRoot(tmp_path))
    in_workspace = "file_exists" in text  # whose plain names are no paths of this machine
    for place in (
        "../../.env",
        "../../secret.txt",
        "../link/secret.txt",
        "../.env",
        *["link.txt"] * (not in_workspace),
    ):
        path = write(text.replace("PATH", place))
        for root in (ConfigRoot(tmp_path), ConfigRoot(tmp_path / "cases")):
            with pytest.raises(ConfigError, match=r"which leaves|which is hidden"):
                load_case(path, root)
    path = write(text.replace("PATH", "../../secret.txt"))
    load_case(path, ConfigRoot(tmp_path), allow_outside=True)
    with pytest.raises(ConfigError, match="agentbench trust"):  # what the user allows is for the user's cases
        load_case(path, ConfigRoot(tmp_path / "cases", guest=Guest(tmp_path / "cases")), allow_outside=True)


def test_a_root_below_a_link_is_no_way_out(tmp_path, write):
    path = write("input: {attachments: [a.txt]}\n")
    (path.parent / "a.txt").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "cases")
    case = load_case(tmp_path / "link" / "sum" / "test.yaml", ConfigRoot(tmp_path / "link"))
    assert case.attachments[0].size == 1


def test_a_home_folder_expands(tmp_path, write, root, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "cases"))
    (tmp_path / "cases" / "notes.txt").write_text("x")
    assert load_case(write("input: {attachments: [~/notes.txt]}\n"), root).attachments[0].name == "notes.txt"


def test_turns_are_read_in_order_from_case_and_files(root, write):
    path = write("input: {turns: [{role: user, content: one}, {role: user, source: {path: two.txt}}]}\n")
    (path.parent / "two.txt").write_text("two")
    assert [turn.content for turn in load_case(path, root).turns] == ["one", "two"]


def test_names_are_verified(root, write):
    path = write("input: {context: {llm_probe: {tools: [exec_shel]}}}\n")
    with pytest.raises(ConfigError, match="unknown tool 'exec_shel'; did you mean 'exec_shell'"):
        load_case(path, root, Known(tools=frozenset({"exec_shell"})))


def test_cases_of_a_root_are_indexed_by_id_though_some_are_wrong(tmp_path, root, write):
    write("input: {wrong: 1}\ntags: [smoke]\n")
    (tmp_path / "cases" / "bad").mkdir()
    (tmp_path / "cases" / "bad" / "test.yaml").write_text("[")
    rows = [{"id": "q1", "question": "2 + 2?", "answer": "4", "tags": ["easy"]}, {"question": "x", "answer": "y"}]
    (tmp_path / "cases" / "math.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "cases" / "sum" / "fixture.jsonl").write_text(json.dumps(rows[0]))
    index = {case.case_id: (case.tags, case.line) for case in index_cases(root)}
    assert index == {"sum": (("smoke",), 1), "math.q1": (("easy",), 1), "math.item_2": ((), 2)}


CALL = "{role: assistant, tool_calls: [{id: c1, name: look, arguments: {at: x}}]}"
RESULT = "{role: tool, tool_call_id: c1, content: '4'}"


def test_a_conversation_may_hold_calls_and_their_results(root, write):
    asked, result = load_case(write(f"input:\n  messages:\n  - {CALL}\n  - {RESULT}\n"), root).messages
    assert (asked.content, asked.calls) == (
        "",
        {"tool_calls": [{"id": "c1", "name": "look", "arguments": {"at": "x"}}]},
    )
    assert (result.content, result.calls) == ("4", {"tool_call_id": "c1"})


@pytest.mark.parametrize(
    ("messages", "problems"),
    [
        (["{role: tool, content: '4'}"], ["7:5: input.messages[0]: a message of role 'tool' needs a 'tool_call_id'"]),
        ([CALL], ["7:41: input.messages[0].tool_calls[0].id: found no result of the call 'c1'"]),
        ([CALL, RESULT, RESULT], ["9:32: input.messages[2].tool_call_id: Duplicate result of the call 'c1'"]),
        ([CALL, RESULT, CALL], ["9:41: input.messages[2].tool_calls[0].id: Duplicate id 'c1'; each must be unique"]),
        (
            [CALL, RESULT.replace("c1", "c2")],
            [
                "7:41: input.messages[0].tool_calls[0].id: found no result of the call 'c1'",
                "8:32: input.messages[1].tool_call_id: no message before calls a tool with the id 'c2'",
            ],
        ),
        (
            ["{role: user, content: x, tool_call_id: c1}"],
            ["7:44: input.messages[0].tool_call_id: found in a message of role 'user', expected role 'tool'"],
        ),
    ],
)
def test_unpaired_calls_and_results_are_errors_with_their_place(root, write, messages, problems):
    text = "".join(f"  - {message}\n" for message in messages)
    path = write(f"input:\n  messages:\n{text}")
    with pytest.raises(ConfigError) as error:
        load_case(path, root)
    told = [line.removeprefix(f"{path}:") for line in str(error.value).splitlines()]
    assert [line[: len(start)] for line, start in zip(told, problems, strict=True)] == problems


def test_calls_in_files_are_looked_at_with_all_other_messages(root, write):
    path = write(f"input:\n  messages:\n  - {{role: user, source: {{path: begin.yaml}}}}\n  - {RESULT}\n")
    (path.parent / "begin.yaml").write_text(
        f"- {CALL.replace('assistant,', 'assistant, content: null,')}\n".replace("null", "''")
    )
    assert len(load_case(path, root).messages) == 2
    path.write_text(path.read_text().replace("c1", "c9"))
    with pytest.raises(ConfigError, match="no message before calls a tool with the id 'c9'"):
        load_case(path, root)


def test_short_forms_are_the_same_case_as_long_ones(root, write):
    path = write()
    head = HEAD.replace("{type: llm_probe, temperature: 0}", "{RUNNER}")
    long = (
        "input: {messages: [{role: user, content: 2 + 2?}]}\nrubric: {scoring_instructions: Be strict.}\n"
        "expectations: {hard_expectations: [{text: It is 4.}, {text: It is short., weight: 2.0}]}\n"
    )
    short = "input: 2 + 2?\nrubric: Be strict.\nexpectations:\n- It is 4.\n- {text: It is short., weight: 2.0}\n"
    path.write_text(head.replace("{RUNNER}", "{type: llm_probe}") + long)
    whole = load_case(path, root)
    path.write_text(head.replace("{RUNNER}", "llm_probe") + short)
    assert load_case(path, root) == whole


@pytest.mark.parametrize(
    "field", ["rubric: ''", "input: ' '", "expectations: text", "expectations: [[a]]", "runner: ''"]
)
def test_a_short_form_without_a_text_is_refused_at_its_place(root, write, field):
    path = write()
    name = field.partition(":")[0]
    lines = {"runner": "runner: llm_probe", "input": "input: hello", name: field}
    path.write_text("schema_version: 1\ncase_id: sum\ntitle: A sum\n" + "\n".join(lines.values()))
    with pytest.raises(ConfigError, match=rf"test\.yaml:\d:\d+: {name}.*: found .*, expected a mapping"):
        load_case(path, root)
