"""Mistakes in files of cases."""

from __future__ import annotations

from support.mistakes import CASE, ROW, WrongFile

_MESSAGE = "{role: user, content: Say hello.}"
_CHECK = "{check_id: said, declarative: {kind: regex_match, pattern: ello}}"
_DECLARED = "kind: regex_match, pattern: ello"


def _in_case(name: str, says: str, right: str, wrong: str) -> WrongFile:
    assert CASE.count(right) == 1, (name, right)
    return WrongFile(name, says, CASE.replace(right, wrong))


def _in_rows(name: str, says: str, content: str | bytes) -> WrongFile:
    return WrongFile(name, says, content, "rows.jsonl")


def _misspelt(row: str) -> str:
    return row.replace("question", "questoin")


FILES_OF_CASES = (
    _in_case(
        "a tab",
        "6:1: not valid YAML: found a tab, expected blanks; YAML is indented with blanks only",
        "  messages:",
        "\tmessages:",
    ),
    _in_case(
        "indented too far",
        "3:7: not valid YAML: found a second ':' in the line, or a line with another indentation than its "
        "neighbours; "
        "put a text with ':' in quotes, or mend the indentation",
        "title: Say",
        " title: Say",
    ),
    _in_case(
        "a colon in a text",
        "3:12: not valid YAML: found a second ':' in the line, or a line with another indentation than its "
        "neighbours; put a text with ':' in quotes, or mend the indentation",
        "title: Say hello",
        "title: Task: say hello",
    ),
    _in_case(
        "no colon",
        "3:1: not valid YAML: found 'title Say hello', expected 'key: value' with a blank after the colon",
        "title: Say",
        "title Say",
    ),
    _in_case(
        "no blank behind a colon",
        "2:1: not valid YAML: found 'case_id:hello', expected 'key: value' with a blank after the colon",
        "case_id: hello",
        "case_id:hello",
    ),
    _in_case(
        "an open quote",
        "3:8: not valid YAML: the quote that begins here is never closed",
        "title: Say hello",
        "title: 'Say hello",
    ),
    _in_case(
        "a backslash in double quotes",
        "9:63: not valid YAML: found '\\d' in double quotes, which is not an escape sequence; put the text in single "
        "quotes",
        "pattern: ello",
        'pattern: "\\d+"',
    ),
    _in_case(
        "text behind a quote",
        "3:14: not valid YAML: found 'hello', which does not continue the lines before it; put the whole text in "
        "quotes, or indent the line as its neighbours are",
        "title: Say hello",
        'title: "Say" hello',
    ),
    _in_case(
        "indented too little",
        "7:2: not valid YAML: found '- {role: user, content: Say hello.}', which does not continue the lines "
        "before it; put the whole text in quotes, or indent the line as its neighbours are",
        f"  - {_MESSAGE}",
        f" - {_MESSAGE}",
    ),
    _in_case(
        "a list that is indented otherwise",
        "3:1: not valid YAML: found 'title: Say hello', expected a '-' as before it; indent the line as its "
        "neighbours are",
        "schema_version: 1\n",
        "- schema_version: 1\n  ",
    ),
    _in_case(
        "a tab behind a dash",
        "9:2: not valid YAML: found a tab, expected blanks; YAML is indented with blanks only",
        "- {check_id",
        "-\t{check_id",
    ),
    _in_case(
        "an open list at the end",
        "10:7: not valid YAML: '[' begins here and is not closed, or a comma is missing, before line 11",
        f"- {_CHECK}\n",
        f"- {_CHECK}\ntags: [\n",
    ),
    _in_case(
        "a star",
        "3:8: not valid YAML: found '*hello', which refers to a missing anchor; put the text in quotes",
        "title: Say hello",
        "title: *hello",
    ),
    _in_case(
        "an exclamation mark",
        "3:8: the tag !hello is not allowed, only plain YAML values are; put a text in quotes",
        "title: Say hello",
        "title: !hello",
    ),
    _in_case(
        "an open brace",
        "4:9: not valid YAML: '{' begins here and is not closed, or a comma is missing, before line 5",
        "{type: llm_probe}",
        "{type: llm_probe",
    ),
    _in_case(
        "a percent sign",
        "3:8: not valid YAML: found '%', which cannot begin a text; put the text in quotes",
        "title: Say hello",
        "title: %hello",
    ),
    _in_case(
        "two documents",
        "8:1: not valid YAML: found a second document after '---', expected one; move it to another file",
        "deterministic_checks",
        "---\ndeterministic_checks",
    ),
    _in_case(
        "a misspelt field",
        "8:1: deterministic_check: unknown field; did you mean 'deterministic_checks'?",
        "deterministic_checks",
        "deterministic_check",
    ),
    _in_case(
        "a misspelt field inside",
        "7:18: input.messages[0].contnt: unknown field; did you mean 'content'?",
        "content: Say",
        "contnt: Say",
    ),
    _in_case("a missing field", "1:1: title: missing; add it", "title: Say hello\n", ""),
    _in_case("no schema_version", "1:1: schema_version: missing; add it", "schema_version: 1\n", ""),
    _in_case(
        "another schema_version",
        "1:17: schema_version: found 2, expected the whole number 1",
        "schema_version: 1",
        "schema_version: 2",
    ),
    _in_case(
        "a number as an id", "2:10: case_id: found 5, expected a text; put it in quotes", "case_id: hello", "case_id: 5"
    ),
    _in_case(
        "an id with blanks",
        "2:10: case_id: found 'Hello World', expected a slug (lower-case letters, digits, '_' and '-', beginning "
        "with a "
        "letter or digit)",
        "case_id: hello",
        "case_id: Hello World",
    ),
    _in_case(
        "messages that are no list",
        "7:5: input.messages: found {'role': 'user', 'content': 'Say hello.'}, expected a list",
        f"- {_MESSAGE}",
        f"  {_MESSAGE}",
    ),
    _in_case(
        "no messages",
        "6:13: input.messages: found none, expected at least one; add a user message",
        f"  messages:\n  - {_MESSAGE}",
        "  messages: []",
    ),
    _in_case(
        "a title of nothing",
        "3:7: title: found nothing, expected a text",
        "title: Say hello",
        "title:",
    ),
    _in_case(
        "an unknown role",
        "7:12: input.messages[0].role: found 'human', expected 'system', 'user', 'assistant' or 'tool'",
        "role: user",
        "role: human",
    ),
    _in_case(
        "a number as text",
        "7:27: input.messages[0].content: found 42, expected a text; put it in quotes",
        "content: Say hello.",
        "content: 42",
    ),
    _in_case(
        "a result of no call",
        "7:5: input.messages[0]: a message of role 'tool' needs a 'tool_call_id': the id in 'tool_calls' of an "
        "assistant "
        "message before",
        _MESSAGE,
        "{role: tool, content: '4'}",
    ),
    _in_case(
        "a key twice",
        "4:1: duplicate key 'title'; remove one of them",
        "title: Say hello",
        "title: Say hello\ntitle: Say bye",
    ),
    _in_case(
        "a check id twice",
        "10:14: deterministic_checks[1].check_id: Duplicate check_id 'said'; each must be unique",
        f"- {_CHECK}",
        f"- {_CHECK}\n- {_CHECK}",
    ),
    _in_case(
        "an unknown kind of check",
        "9:40: deterministic_checks[0].declarative.kind: unknown check kind 'regex_mach'; did you mean 'regex_match'?",
        "kind: regex_match",
        "kind: regex_mach",
    ),
    _in_case(
        "a check without its field",
        "9:33: deterministic_checks[0].declarative.pattern: missing; add it",
        _DECLARED,
        "kind: regex_match",
    ),
    _in_case(
        "a broken pattern",
        "9:62: deterministic_checks[0].declarative.pattern: found '(ello', which is not a regular expression: "
        "missing ) "
        "at position 5",
        _DECLARED,
        "kind: regex_match, pattern: '(ello'",
    ),
    _in_case(
        "an unknown runner",
        "4:16: runner.type: unknown runner 'llm_prob'; did you mean 'llm_probe'?",
        "llm_probe",
        "llm_prob",
    ),
    _in_case(
        "an unknown tool",
        "6:33: input.context.llm_probe.tools[0]: unknown tool 'exec_shel'; did you mean 'exec_shell'?",
        "input:",
        "input:\n  context: {llm_probe: {tools: [exec_shel]}}",
    ),
    _in_case(
        "an unknown metric",
        "8:18: metrics[0].name: unknown metric 'exact_mach'; did you mean 'exact_match'?",
        "deterministic_checks",
        "metrics: [{name: exact_mach}]\nreference: x\ndeterministic_checks",
    ),
    _in_case(
        "a file that is not there",
        "6:17: input.attachments[0]: found 'notes.txt', expected an existing file; there is no file",
        "input:",
        "input:\n  attachments: [notes.txt]",
    ),
    _in_case(
        "a file of elsewhere",
        "6:17: input.attachments[0]: found '../../../../etc/passwd', which leaves",
        "input:",
        "input:\n  attachments: [../../../../etc/passwd]",
    ),
    _in_case(
        "a misspelt list of tools",
        "6:31: input.context.llm_probe.tool: unknown field; did you mean 'tools'?",
        "input:",
        "input:\n  context: {llm_probe: {tool: [exec_shell]}}",
    ),
    _in_case(
        "tools without a runner",
        "6:20: input.context.tools: found a list, expected the section of a runner; tools belong below "
        "`context: {llm_probe: {tools: [...]}}`",
        "input:",
        "input:\n  context: {tools: [exec_shell]}",
    ),
    _in_case(
        "tools of the runner",
        "4:34: runner.tools: is set by each run itself; tools belong below `context: {llm_probe: {tools: [...]}}` in "
        "the input of a case",
        "{type: llm_probe}",
        "{type: llm_probe, tools: [exec_shell]}",
    ),
    _in_case(
        "tools of the case",
        "5:1: tools: unknown field; tools belong below `context: {llm_probe: {tools: [...]}}` in the input",
        "input:",
        "tools: [exec_shell]\ninput:",
    ),
    _in_case(
        "a model as the runner",
        "4:9: runner: found 'gpt-4o', expected a mapping: write runner: {type: llm_probe}, and name the model with "
        "--model gpt-4o",
        "{type: llm_probe}",
        "gpt-4o",
    ),
    _in_case(
        "an expectation that is no text",
        "5:16: expectations[0]: found 3, expected a mapping",
        "input:",
        "expectations: [3]\ninput:",
    ),
    _in_case(
        "a misspelt runner's context",
        "6:23: input.context.llmprobe: unknown runner; did you mean 'llm_probe'?",
        "input:",
        "input:\n  context: {llmprobe: {tools: [exec_shell]}}",
    ),
    _in_case(
        "a temperature in words",
        "4:40: runner.temperature: found 'hot', expected a number",
        "{type: llm_probe}",
        "{type: llm_probe, temperature: hot}",
    ),
    _in_case(
        "no turns at all",
        "4:38: runner.max_turns: found 0, expected at least 1",
        "{type: llm_probe}",
        "{type: llm_probe, max_turns: 0}",
    ),
    _in_case(
        "yes in quotes", "5:12: must_pass: found 'yes', expected true or false", "input:", "must_pass: 'yes'\ninput:"
    ),
    _in_case(
        "a tag and no list",
        "5:7: tags: found 'smoke', expected a list; write [smoke]",
        "input:",
        "tags: smoke\ninput:",
    ),
    _in_case(
        "a percentage",
        "5:25: thresholds.pass_rate: found 80, expected at most 1",
        "input:",
        "thresholds: {pass_rate: 80}\ninput:",
    ),
    _in_case(
        "nothing that decides",
        "1:1: nothing decides this case; give it a check, a verifier, an answer, a metric with a threshold, "
        "expectations and an evaluation profile with a judge, or report_only: true",
        f"deterministic_checks:\n- {_CHECK}\n",
        "",
    ),
    WrongFile(
        "Latin-1",
        "7:33: not valid YAML: invalid trailing UTF-8 octet; save the file as UTF-8",
        CASE.replace("hello.", "héllo.").encode("latin-1"),
    ),
    WrongFile(
        "a huge file",
        "1:1: found 5,243,101 bytes, expected at most 4,194,304; move data out of the file",
        CASE + "#" * (5 * 2**20),
    ),
    WrongFile(
        "a null character",
        "7:34: not valid YAML: control characters are not allowed; remove them",
        CASE.replace("hello.", "hel\0lo."),
    ),
    _in_rows(
        "a broken row",
        "2:47: not valid JSON: expecting ',' delimiter",
        ROW + '{"id": "b", "question": "What?", "answer": "x"\n' + ROW.replace('"a"', '"c"'),
    ),
    _in_rows(
        "a misspelt first row",
        "1:1: found the field 'questoin' in the first row, expected 'question'; correct it, or no row of the file is "
        "asked",
        _misspelt(ROW) + ROW.replace('"a"', '"b"'),
    ),
    _in_rows(
        "a misspelt row",
        "2:1: question: found none, expected a text; it is the agent's task",
        ROW + _misspelt(ROW).replace('"a"', '"b"'),
    ),
    _in_rows("a row's id twice", "2:1: id: found 'a' again, first on line 1; give each item its own id", ROW + ROW),
    _in_rows(
        "a row without an answer",
        "2:1: there is nothing to score against: the row has neither an answer nor an evaluator that is a check or "
        "metric; give it one",
        ROW + '{"id": "b", "question": "What?"}\n',
    ),
    _in_rows(
        "a row with a key twice",
        "2:1: not valid JSON: duplicate key 'answer'; remove one of them",
        ROW + '{"id": "b", "question": "What?", "answer": "x", "answer": "y"}\n',
    ),
    _in_rows(
        "a comma too much",
        "1:48: the first row is not valid JSON: expecting property name enclosed in double quotes; correct it, or no "
        "row of the file is asked",
        '{"id": "a", "question": "What?", "answer": "x",}\n',
    ),
    _in_rows(
        "single quotes",
        "1:2: the first row is not valid JSON: expecting property name enclosed in double quotes; correct it, or no "
        "row of the file is asked",
        "{'id': 'a', 'question': 'What?', 'answer': 'x'}\n",
    ),
    _in_rows(
        "rows in UTF-16",
        "1:1: found UTF-16 or binary data, expected UTF-8 text; save the file as UTF-8",
        ROW.encode("utf-16"),
    ),
    WrongFile(
        "a descriptor of no file",
        "2:9: files[0]: found 'row.jsonl', which matches no .json or .jsonl file below",
        "schema_version: 1\nfiles: [row.jsonl]\n",
        "dataset.yaml",
    ),
)
"""Mistakes that do not affect other files."""
