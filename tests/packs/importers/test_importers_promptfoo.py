"""promptfooconfig.yaml becomes cases; nothing of it is run."""

from __future__ import annotations

import csv
import io
import json
import time

import pytest
import yaml
from importing import Imported, Importing, importing

__all__ = ["importing"]


def config(importing: Importing, **fields: object) -> Imported:
    given = {"prompts": ["{{q}}"], "tests": [{"description": "it", "vars": {"q": "Say yes."}}], **fields}
    return importing.call("promptfoo", importing.write("promptfooconfig.yaml", yaml.safe_dump(given)))


def asserting(importing: Importing, *assertions: object) -> Imported:
    return config(importing, tests=[{"description": "it", "vars": {"q": "Say yes."}, "assert": list(assertions)}])


CHECKS = [
    ({"type": "contains", "value": "a.c"}, "x a.c y", "abc"),
    ({"type": "icontains", "value": "YES"}, "Oh yes.", "no"),
    ({"type": "contains-any", "value": ["one", "two"]}, "two", "three"),
    ({"type": "contains-all", "value": ["one", "two"]}, "two one", "two"),
    ({"type": "not-contains", "value": "no"}, "yes\nyes", "yes\nno"),
    ({"type": "not-contains-all", "value": ["one", "two"]}, "two", "one\ntwo"),
    ({"type": "not-icontains-any", "value": ["one", "two"]}, "three", "TWO"),
    ({"type": "starts-with", "value": "Yes"}, "Yes, sir", "Oh Yes"),
    ({"type": "not-starts-with", "value": "Sorry"}, "Yes. Sorry", "Sorry, no"),
    ({"type": "regex", "value": "^\\d{2}$"}, "42", "142"),
    ({"type": "not-regex", "value": "\\d{3}"}, "42", "a\n142"),
    ({"type": "equals", "value": "yes"}, "yes", "yes!"),
    ({"type": "not-equals", "value": "yes"}, "yes!", "yes"),
    ({"type": "equals", "value": {"a": [1]}}, '{"a": [1]}', '{"a": [2]}'),
    ({"type": "is-json"}, "[1]", "[1"),
    ({"type": "is-json", "value": {"required": ["a"]}}, '{"a": 1}', '{"b": 1}'),
    ({"type": "is-json", "value": "required: [a]"}, '{"a": 1}', '{"b": 1}'),
    ("icontains: yes", "Yes!", "no"),
    ('contains-any: one, "two, three"', "two, three", "two"),
    ("yes", "yes", "no"),
    ({"type": "equals", "value": True}, "true", "True"),
    ({"type": "equals", "value": "yes"}, "yes", "yes\n"),
    ({"type": "equals", "value": 1.0}, "1", "1.0"),
    ({"type": "equals", "value": [1]}, "[1.0]", "1"),
    ({"type": "equals", "value": {"a": "{{q}}"}}, '{"a": "{{q}}"}', '{"a": "Say yes."}'),
    ({"type": "is-json"}, "\n[1]", "```json\n[1]\n```"),
    ({"type": "is-json", "value": {"items": [{"type": "string"}]}}, '["a"]', "[1]"),
    ({"type": "is-json", "value": {"dependencies": {"a": ["b"]}}}, '{"b": 1}', '{"a": 1}'),
    ({"type": "regex", "value": "^(yes|no)$"}, "no", "no\n"),
    ({"type": "regex", "value": "^\\d+\\s€$"}, "30\u00a0€", "٣٠ €"),
    ({"type": "not-regex", "value": "\\bno\\b"}, "nobody", "éno"),
    ({"type": "regex", "value": "a{e}[[]"}, "a{e}[", "["),
    ({"type": "contains-all", "value": ["one", "file://two.txt"]}, "two one", "one"),
    ({"type": "contains-any", "value": '"say ""hi""", " no "'}, 'I say "hi"', "no"),
]


@pytest.mark.slow
def test_assertions_decide_as_they_did(importing: Importing):
    tests = [
        {"description": f"{what}-{number}", "vars": {"q": "Say yes."}, "assert": [assertion]}
        for number, (assertion, *_) in enumerate(CHECKS)
        for what in ("right", "wrong")
    ]
    importing.write("two.txt", "two\n")
    found = config(importing, tests=tests)
    assert (found.code, found.err) == (0, "")
    for number, (_, *answers) in enumerate(CHECKS):
        for what, answer in zip(("right", "wrong"), answers, strict=True):
            script = json.dumps({"schema_version": 1, "replies": [{"content": answer}]})
            importing.write(f"cases/it/{what}-{number}/demo.yaml", script)
    importing.run("--model", "demo")
    report = json.loads((importing.project / "outputs" / "report.json").read_text())
    outcomes = {run["case_id"].removeprefix("promptfooconfig-"): run["outcome"] for run in report["runs"]}
    assert outcomes == {
        f"{what}-{number}": outcome
        for number in range(len(CHECKS))
        for what, outcome in (("right", "passed"), ("wrong", "failed"))
    }


def test_assertions_of_cost_time_tools_and_judges_become_theirs(importing: Importing):
    found = asserting(
        importing,
        {"type": "cost", "threshold": 0.01},
        {"type": "latency", "threshold": 2500},
        {"type": "trajectory:tool-used", "value": [{"name": "search", "min": 2}, "read"]},
        "not-trajectory:tool-used: delete",
        {"type": "skill-used", "value": ["pdf", {"pattern": "doc-*", "max": 2}]},
        {"type": "not-skill-used", "value": "xlsx"},
        {"type": "llm-rubric", "value": "Is polite", "weight": 2, "threshold": 0.8},
        {"type": "not-llm-rubric", "value": "Blames {{q}}"},
        {"type": "factuality", "value": "Paris is in France."},
        {"type": "contains", "value": "x", "metric": "Named"},
    )
    case = found.case("it")
    checks = [check["declarative"] for check in case["deterministic_checks"]]
    assert checks == [
        {"kind": "max_cost_usd", "usd": 0.01},
        {"kind": "max_seconds", "seconds": 2.5},
        {"kind": "tool_called", "name": "search", "min_count": 2},
        {"kind": "tool_called", "name": "read"},
        {"kind": "tool_not_called", "name": "delete"},
        {"kind": "skill_used", "name": "pdf"},
        {"kind": "skill_used", "pattern": r"\A(?s:doc\-.*)\Z", "max": 2},
        {"kind": "skill_used", "name": "xlsx", "min": 0, "max": 0},
        {"kind": "contains", "text": "x"},
    ]
    assert case["deterministic_checks"][-1]["description"] == "Named"
    assert case["expectations"]["hard_expectations"] == [
        {"text": "Is polite", "weight": 2.0},
        {"text": "It must not be so that: Blames Say yes."},
    ]
    assert (case["reference"], case["metrics"]) == (
        "Paris is in France.",
        [{"name": "llm_judgement", "threshold": 1.0}],
    )
    assert [line.partition(": ")[2] for line in found.err.splitlines()] == [
        "tests[0].assert[6]: threshold of llm-rubric is left out: an expectation is met or not"
    ]


def test_a_scenario_adds_to_its_tests(importing: Importing):
    data = {"vars": {"q": "One?"}, "metadata": {"a": 1}, "assert": [{"type": "contains", "value": "first"}]}
    test = {"description": "both", "metadata": {"b": 2}, "assert": [{"type": "contains", "value": "second"}]}
    alone = {"config": [{**data, "description": "alone"}]}
    found = config(importing, tests=[], scenarios=[{"config": [data], "tests": [test]}, alone])
    assert (found.code, found.err) == (0, "")
    texts = {
        name: [check["declarative"]["text"] for check in found.case(name)["deterministic_checks"]]
        for name in ("both", "alone")
    }
    assert texts == {"both": ["second", "first"], "alone": ["first"]}
    assert found.case("both")["metadata"].items() >= {"a": 1, "b": 2}.items()


def test_tests_name_their_prompts_as_promptfoo_does(importing: Importing):
    importing.write("two.txt", "One: {{q}}\r\n--- \r\nTwo: {{q}}\r\n")
    prompts = [{"id": "file://two.txt", "label": "pair"}, {"raw": "{{q}}", "label": "plain"}]
    tests = [
        {"description": "default", "vars": {"q": "a"}},
        {"description": "own", "vars": {"q": "a"}, "prompts": ["pla*"]},
    ]
    found = config(importing, prompts=prompts, defaultTest={"prompts": ["pair"], "assert": ["yes"]}, tests=tests)
    assert (found.code, found.err) == (0, "")
    assert found.case("default")["variants"] == {
        f"pair-{number}": {"prompt_file": f"../prompts/pair-{number}.txt"} for number in (1, 2)
    }
    assert "variants" not in found.case("own")
    assert found.case("own")["input"]["messages"][0]["content"] == "a"
    assert "2 case files" in found.out


TWO_PROMPTS = ["Say hi to {{name}} {{ n }} times.\n", {"raw": "Greet {{name}}.", "label": "short one"}]
GREETS = {
    "description": "greets",
    "vars": {"name": "Ann", "n": 2},
    "options": {"prefix": "To {{name}}: "},
    "assert": [{"type": "contains", "value": "{{name}}"}],
}


def test_prompts_are_variants_of_one_case(importing: Importing):
    tests = [GREETS, {"description": "lacks", "vars": {"name": "Cy"}}]
    found = config(importing, prompts=TWO_PROMPTS, tests=tests)
    case = found.case("greets")
    assert case["input"]["messages"] == [{"role": "user", "content": "To Ann: {{ prompt }}"}]
    assert [*case["variants"]] == ["prompt-1", "short-one"]
    assert "lacks-prompt-1: found {{ n }}, but no variable of that name" in found.err


@pytest.mark.slow
def test_a_session_asks_each_prompt(importing: Importing):
    config(importing, prompts=TWO_PROMPTS, tests=[GREETS])
    importing.write("cases/it/greets/demo.yaml", json.dumps({"schema_version": 1, "replies": [{"content": "Hi Ann"}]}))
    importing.run("--model", "demo", "-k", "greets")
    report = json.loads((importing.project / "outputs" / "report.json").read_text())
    assert {run["variant"]: run["question"] for run in report["runs"]} == {
        "prompt-1": "To Ann: Say hi to Ann 2 times.\n",
        "short-one": "To Ann: Greet Ann.",
    }
    assert {run["outcome"] for run in report["runs"]} == {"passed"}


def test_prompts_tests_and_values_multiply(importing: Importing):
    importing.write(
        "chat.json", '[{"role": "system", "content": "Be {{tone}}."}, {"role": "user", "content": "{{q}}"}]'
    )
    importing.write("two.txt", "One: {{q}}\n---\nTwo: {{q}}\n")
    found = config(
        importing,
        prompts=["{{q}}", "file://chat.json", "two.txt"],
        defaultTest={"vars": {"tone": "brief"}, "assert": [{"type": "contains", "value": "x"}]},
        tests=[{"description": "both", "vars": {"q": ["Say {{tone}}.", "Say no."]}}, {"vars": {"q": "Third"}}],
    )
    assert found.code == 0
    assert "12 case files" in found.out
    case = found.case("both-1-prompt-2")
    assert [message["content"] for message in case["input"]["messages"]] == ["Be brief.", "Say brief."]
    assert found.case("test-2-prompt-4")["input"]["messages"][0]["content"] == "Two: Third"


def test_tables_files_and_scenarios_of_tests(importing: Importing):
    table = (
        "q,__expected,__expected2,__config:__expected2:threshold,__metadata:topic,__prefix\n"
        "Is 7 prime?,icontains: yes,cost,0.5,math,Quick: \nSay hi,hi,,,,\n"
    )
    importing.write("tests/a.csv", table)
    importing.write("tests/b.yaml", "- {description: yaml, vars: {q: Why?}, assert: [{type: contains, value: x}]}\n")
    importing.write("tests/c.jsonl", '{"description": "jsonl", "vars": {"q": "Who?"}, "assert": ["yes"]}\n')
    scenario = {"config": [{"vars": {"q": "One?"}}, {"vars": {"q": "Two?"}}], "tests": [{"assert": ["yes"]}]}
    found = config(importing, tests=["file://tests/*.csv", "file://tests/[bc].*"], scenarios=[scenario])
    assert (found.code, found.err) == (0, "")
    assert "6 case files" in found.out
    first = found.case("test-1")
    assert first["input"]["messages"][0]["content"] == "Quick: Is 7 prime?"
    assert (first["metadata"]["topic"], first["metadata"]["imported_from"]) == ("math", "a.csv:2")
    assert first["deterministic_checks"][1]["declarative"] == {"kind": "max_cost_usd", "usd": 0.5}


def test_assertion_templates_and_files_of_values(importing: Importing):
    importing.write("schema.json", '{"required": ["a"]}')
    found = config(
        importing,
        assertionTemplates={"polite": {"type": "llm-rubric", "value": "Is polite"}},
        defaultTest={"assert": [{"$ref": "#/assertionTemplates/polite"}]},
        tests=[
            {"description": "it", "vars": {"q": "x"}, "assert": [{"type": "is-json", "value": "file://schema.json"}]}
        ],
    )
    assert found.err == ""
    case = found.case("it")
    assert case["expectations"]["hard_expectations"] == [{"text": "Is polite"}]
    assert case["deterministic_checks"][0]["declarative"]["schema"]["required"] == ["a"]


@pytest.mark.parametrize(
    ("assertion", "reason"),
    [
        ({"type": "javascript", "value": "process.exit()"}, "javascript is code, which is not run"),
        ({"type": "python", "value": "file://x.py"}, "file://x.py is code"),
        ({"type": "not-python", "value": "1"}, "not-python is code"),
        ({"type": "contains", "value": "x", "transform": "output.trim()"}, "contains is code"),
        ({"type": "webhook", "value": "https://example.com"}, "webhook is code"),
        ({"type": "similar", "value": "x"}, "similar has no counterpart; the metric llm_judgement"),
        ({"type": "bleu", "value": "x"}, "bleu has no counterpart"),
        ({"type": "no-such", "value": "x"}, "no-such has no counterpart"),
        ({"type": "contains", "value": "{{ q | upper }}"}, "filters and statements are not run"),
        ({"type": "contains", "value": "{% for x in y %}"}, "filters and statements are not run"),
        ({"type": "contains", "value": "{{ other }}"}, "no variable of that name"),
        ({"type": "contains", "value": "file:///etc/passwd"}, "is outside of"),
        ({"type": "contains", "value": "file://none.txt"}, "names no file in or below"),
        ({"type": "contains", "value": "file://../secret.txt"}, "is outside of"),
        ({"type": "contains", "value": "file://link.txt"}, "is outside of"),
        ({"type": "contains", "weight": 0, "value": "x"}, "has weight 0"),
        ({"type": "contains", "value": ["x", "yes"]}, "expected a text"),
        ({"type": "not-contains-any", "value": ["x", ""]}, "expected texts"),
        ({"type": "contains-any", "value": 'x, "y'}, "a quote is not closed"),
        ({"type": "contains", "value": "package:mine:check"}, "package:mine:check is code"),
        ({"type": "not-trajectory:tool-used", "value": ["read", "delete_*"]}, "a pattern of names"),
        ({"type": "not-skill-used", "value": {"name": "pdf", "max": 3}}, "expected no bounds but max: 0"),
        ({"type": "skill-used", "value": {"min": 1}}, "expected exactly one of name and pattern"),
        ({"type": "regex", "value": "(?i)yes"}, "'(?i)yes' is not the same in Python"),
        ({"type": "regex", "value": "\\Ayes"}, "is not the same in Python"),
        ({"type": "is-json", "value": {"items": {"format": "email"}}}, "format of its schema is left out"),
        ({"type": "regex", "value": "("}, "cannot be converted"),
        ({"type": "cost"}, "found the threshold None"),
        ({"type": "is-json", "value": "[1"}, "not valid YAML"),
        ({"type": "equals", "value": {"a": 1}, "threshold": 1, "type2": 1}, "type2 of equals is left out"),
        ({"$ref": "#/assertionTemplates/none"}, "names nothing in this file"),
        (7, "expected an object with a type"),
        ("javascript: 1", "javascript is code"),
    ],
)
def test_an_assertion_without_counterpart_is_named(importing: Importing, assertion: object, reason: str):
    (importing.project.parent / "secret.txt").write_text("secret")
    (importing.project / "link.txt").symlink_to(importing.project.parent / "secret.txt")
    importing.write("x.py", "raise SystemExit")
    found = asserting(importing, assertion, {"type": "contains", "value": "yes"})
    assert found.code == 0
    [line] = found.err.splitlines()
    assert line.startswith("promptfooconfig.yaml:")
    assert ": tests[0].assert[0]: " in line
    assert reason in line
    case = found.case("it")
    assert "secret" not in json.dumps(case["deterministic_checks"])
    assert case["metadata"]["left_out"] == [line.partition(": ")[2]]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tests": ["file://gen.py"]}, "tests[0]: not imported: file://gen.py is code"),
        ({"tests": ["https://example.com/x.csv"]}, "is not on this machine"),
        ({"tests": [{"path": "gen.py:make", "config": {}}]}, "tests[0]: not imported: it is code"),
        ({"tests": [{"vars": {"q": "{{ 7 * 7 }}"}}]}, "found '{{ 7 * 7 }}'"),
        ({"tests": [{"vars": {"q": "a {{- x -}} b", "x": "y"}}]}, "found '{{- x -}}'"),
        ({"tests": [{"vars": {"q": "{{ x }}", "x": "{{ y }}", "y": "z"}}]}, "'x' is a template itself"),
        ({"tests": [{"vars": {"q": "file://../secret.txt"}}]}, "is outside of"),
        ({"tests": [{"vars": {"q": "file://image.png"}}]}, "is not text"),
        ({"tests": [{"vars": "file://vars.js"}]}, "file://vars.js is code"),
        ({"tests": [{"vars": {f"v{at}": ["a", "b", "c"] for at in range(40)}}]}, "more than 10,000 combinations"),
        ({"prompts": ["file://prompt.js"]}, "prompts[0]: not imported: file://prompt.js is code"),
        ({"prompts": ["prompt.py"]}, "prompts[0]: not imported: prompt.py is code"),
        ({"prompts": ["prompt.py:make"]}, "prompts[0]: not imported: prompt.py:make is code"),
        ({"prompts": ["langfuse://mine:3"]}, "prompts[0]: not imported: langfuse://mine:3 is not on this machine"),
        ({"prompts": ["prompts.csv"]}, "prompts.csv is a table"),
        (
            {"scenarios": [{"config": [{"vars": "x.yaml"}], "tests": [{"vars": {"q": "x"}}]}], "tests": []},
            "vars: found 'x",
        ),
        ({"prompts": ["prompts/*"]}, "prompts[0]: not imported: prompts/* names no file"),
        ({"tests": ["file://../**/*.csv"]}, "file://../**/*.csv is outside of"),
        ({"tests": ["file:///**/*.csv"]}, "file:///**/*.csv is outside of"),
        ({"tests": ["file://a\0.csv"]}, r"file://a\x00.csv names no file"),
        ({"prompts": [{"id": "x", "function": "f"}]}, "the prompt has settings (function)"),
        ({"prompts": ["{{q}} {{ env.HOME }}"]}, "found {{ env.HOME }}, but no variable"),
        ({"tests": [{"prompts": ["other"]}]}, "found no prompt for this test"),
    ],
)
def test_a_test_that_becomes_no_case_is_named(importing: Importing, fields: dict[str, object], reason: str):
    (importing.project.parent / "secret.txt").write_text("secret")
    importing.write("image.png", b"\x89PNG\xff")
    importing.write("prompts.csv", "prompt\n{{q}}\n")
    found = config(importing, **fields)
    assert found.code == 1
    assert reason in found.err
    assert not found.folder.exists()


def test_each_case_that_does_not_come_about_is_counted(importing: Importing):
    given = {"prompts": ["{{ q }}", "{{ q | upper }}"], "tests": [{"description": "it", "vars": {"q": ["a", "b"]}}]}
    found = config(importing, **given)
    assert "2 case files, 0 dataset rows; 2 rows not imported" in found.out
    assert [line.split(": ")[3] for line in found.err.splitlines()[:2]] == ["it-1-prompt-2", "it-2-prompt-2"]


def test_scalars_are_those_of_yaml_1_2(importing: Importing):
    importing.write("more.yaml", "- {description: b, vars: {q: on, at: 07:15}, assert: [off]}\n")
    text = "prompts: ['{{ q }} at {{ at }}']\ntests:\n"
    text += "- {description: a, vars: {q: yes, at: 12:30}, assert: [no]}\n- file://more.yaml\n"
    found = importing.call("promptfoo", importing.write("promptfooconfig.yaml", text))
    assert (found.code, found.err) == (0, "")
    asked = [found.case(name)["input"]["messages"][0]["content"] for name in "ab"]
    assert asked == ["yes at 12:30", "on at 07:15"]
    checks = [found.case(name)["deterministic_checks"][0]["declarative"] for name in "ab"]
    assert checks == [{"kind": "equals", "text": "no"}, {"kind": "equals", "text": "off"}]


def test_a_default_test_that_is_no_object_is_named(importing: Importing):
    importing.write("default.yaml", "- 1\n")
    found = config(importing, defaultTest="file://default.yaml")
    assert "default.yaml:1:1: left out: found [1], expected an object" in found.err
    assert found.case("it")["input"]["messages"][0]["content"] == "Say yes."


def test_a_pattern_follows_no_links_around_in_circles(importing: Importing):
    importing.write("tests/deep/a.yaml", "- {vars: {q: Why?}, assert: [x]}\n")
    for name in "ab":
        (importing.project / "tests" / name).symlink_to(importing.project)
    found = config(importing, tests=["file://tests/**/*.yaml"])
    assert "1 case file," in found.out


def test_unsupported_keys_of_a_config_are_reported(importing: Importing):
    test = {"description": "it", "vars": {"q": "x"}, "threshold": 0.5, "provider": "x", "options": {"transform": "y"}}
    found = config(
        importing,
        providers=["openai:gpt-4o"],
        scenarios=[],
        nunjucksFilters={"x": "y.js"},
        tests=[{**test, "assert": [{"type": "assert-set", "threshold": 0.5, "assert": ["yes"]}]}],
    )
    assert [line.partition(": ")[2].partition(": ")[0] for line in found.err.splitlines()] == [
        "nunjucksFilters",
        "providers",
        "tests[0].provider",
        "tests[0].options.transform",
        "tests[0].threshold",
        "tests[0].assert[0].threshold",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "a: &a [x, x]\nb: &b [*a, *a]\n" + "".join(f"k{n}: &k{n} [{', '.join(['*b'] * 999)}]\n" for n in range(99)),
            "aliases",
        ),
        ("tests: !!python/object/apply:os.system ['touch pwned']\n", "tag"),
        ("prompts: !!js/function 'x'\n", "tag"),
        ("tests: []\ntests: []\n", "duplicate key"),
        ("[" * 5000, "nesting"),
        ("- 1\n", "expected a mapping"),
        ("", "expected a mapping"),
        ("\x00", "not valid YAML"),
    ],
)
def test_a_config_that_attacks_its_reader_is_an_error(importing: Importing, text: str, reason: str):
    began = time.monotonic()
    found = importing.call("promptfoo", importing.write("promptfooconfig.yaml", text))
    assert found.code == 1
    assert reason in found.err
    assert time.monotonic() - began < 10
    assert not (importing.project / "pwned").exists()


def test_a_config_that_is_code_is_refused(importing: Importing):
    found = importing.call("promptfoo", importing.write("promptfooconfig.js", "module.exports = {}"))
    assert found.code == 1
    assert "a config that is code is not run" in found.err


@pytest.mark.parametrize(
    ("options", "default", "asked"),
    [
        ({}, {}, ["Cook: corn", "Cook: beef"]),
        ({"disableVarExpansion": True}, {}, ["Cook: corn,beef"]),
        ({}, {"disableVarExpansion": True}, ["Cook: corn,beef"]),
        ({"disableVarExpansion": False}, {"disableVarExpansion": True}, ["Cook: corn", "Cook: beef"]),
    ],
)
def test_a_list_is_one_value_if_expansion_is_disabled(
    importing: Importing, options: dict[str, object], default: dict[str, object], asked: list[str]
):
    test = {"description": "it", "vars": {"items": ["corn", "beef"]}, "options": options, "assert": ["x"]}
    found = config(importing, prompts=["Cook: {{items}}"], tests=[test], defaultTest={"options": default})
    assert (found.code, found.err) == (0, "")
    files = [name for name in found.files if name.endswith("test.yaml")]
    cases = [found.case(name.removesuffix("/test.yaml")) for name in files]
    assert [case["input"]["messages"][0]["content"] for case in cases] == asked


def test_a_file_is_read_once_if_expansion_is_disabled(importing: Importing):
    importing.write("q.txt", "Say yes.")
    test = {"description": "it", "vars": {"q": "file://q.txt"}, "options": {"disableVarExpansion": True}}
    found = config(importing, tests=[test])
    assert found.case("it")["input"]["messages"][0]["content"] == "Say yes."


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ style.tone }}", "formal"),
        ("{{ style['tone'] }} {{style[\"tone\"]}}", "formal formal"),
        ("{{style.sizes[1]}} {{ style.deep.er }}", "2 true"),
        ("{{style.sizes}}", "1,2"),
        ("{{style.deep}}", '{"er": true}'),
        ("{{sizes[0]}}", "3"),
        ("{{style}}", '{"tone": "formal", "sizes": [1, 2], "deep": {"er": true}}'),
        ("{{broken}}", "{x"),
    ],
)
def test_paths_lead_into_json_of_a_cell(importing: Importing, template: str, text: str):
    style = '{"tone": "formal", "sizes": [1, 2], "deep": {"er": true}}'
    table = io.StringIO()
    csv.writer(table).writerows([["style", "sizes", "broken", "__description"], [style, "[3]", "{x", "it"]])
    importing.write("tests.csv", table.getvalue())
    found = config(importing, prompts=[f"Say: {template}"], tests="file://tests.csv")
    assert found.case("it")["input"]["messages"][0]["content"] == f"Say: {text}"


@pytest.mark.parametrize("template", ["{{ style.other }}", "{{ style.tone.x }}", "{{ broken.x }}", "{{ style[7] }}"])
def test_a_path_that_leads_nowhere_is_named(importing: Importing, template: str):
    importing.write("tests.csv", 'style,broken\n"{""tone"": ""formal""}","{x"\n')
    found = config(importing, prompts=[f"Say: {template}"], tests="file://tests.csv")
    assert found.code == 1
    assert "but no variable of that name" in found.err


def evals_export(*tests: object, **fields: object) -> dict[str, object]:
    """Return a config in the expected shape of exports of OpenAI's Evals."""
    messages = [
        {"role": "developer", "content": "Name the kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "Ticket: {{ item.text }}"}]},
    ]
    return {"prompts": [messages], "providers": ["openai:chat:x"], "tests": list(tests), **fields}


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("listed", [True, False])
def test_an_export_of_openai_evals_is_read(importing: Importing, nested: bool, listed: bool):
    values = {"text": "No sound", "label": "Hardware"}
    kinds = ("equals", "contains", "icontains")
    asserts = [{"type": kind, "value": "{{ item.label }}"} for kind in kinds]
    asserts += [{"type": "llm-rubric", "value": "Says {{item.label}}"}, {"type": "python", "value": "True"}]
    test = {"description": "it", "vars": {"item": values} if nested else values, "assert": asserts}
    given = evals_export(test)
    if not listed:
        given["prompts"] = given["prompts"][0]  # type: ignore[index]
    found = config(importing, **given)
    case = found.case("it")
    assert [(each["role"], each["content"]) for each in case["input"]["messages"]] == [
        ("system", "Name the kind."),
        ("user", "Ticket: No sound"),
    ]
    checks = [check["declarative"] for check in case["deterministic_checks"]]
    assert checks == [{"kind": kind, "text": "Hardware"} for kind in kinds]
    assert case["expectations"]["hard_expectations"] == [{"text": "Says Hardware"}]
    assert "python is code, which is not run" in found.err
    assert "providers: left out; name the model with --model" in found.err


def test_a_variable_named_item_is_itself(importing: Importing):
    found = config(importing, prompts=["{{ item }} {{ item.a }}"], tests=[{"vars": {"item": '{"a": "b"}', "a": "c"}}])
    assert found.case("test-1")["input"]["messages"][0]["content"] == '{"a": "b"} b'


@pytest.mark.parametrize("content", [[{"type": "input_image", "image_url": "x"}], [], 5, None])
def test_a_message_without_a_text_is_refused(importing: Importing, content: object):
    found = config(importing, prompts=[[{"role": "user", "content": content}]])
    assert found.code == 1
    assert "expected messages with a text each of system, developer, user, assistant" in found.err


def result(number: int, output: object, provider: object = "openai:x", **fields: object) -> dict[str, object]:
    """Return a result of promptfoo, with the prompt's text filled in."""
    case = {"vars": {"q": "?"}, "assert": [{"type": "contains", "value": "{{q}} yes"}], **fields}
    return {
        "testIdx": number,
        "testCase": {"options": {"prefix": "In short: "}, **case},
        "vars": {"q": "Say"},
        "prompt": {"raw": f"In short: Say {number} {{{{x}}}}", "label": "{{q}}"},
        "provider": {"id": provider},
        "response": None if output is None else {"output": output},
        "success": True,
    }


def results(importing: Importing, *rows: object) -> Imported:
    document = {"evalId": "e", "results": {"version": 3, "results": list(rows)}, "config": {"tests": []}}
    return importing.call("promptfoo", importing.write("results.json", json.dumps(document)))


def test_results_become_cases_with_answers(importing: Importing):
    found = results(importing, result(0, "Say yes", description="first"), result(1, {"a": 1}))
    assert (found.code, found.err) == (0, "")
    case = found.case("first")
    assert case["input"]["messages"] == [{"role": "user", "content": "In short: Say 0 {{x}}"}]
    assert case["deterministic_checks"][0]["declarative"] == {"kind": "contains", "text": "Say yes"}
    predictions = [json.loads(line) for line in (found.folder / "predictions.jsonl").read_text().splitlines()]
    assert predictions == [
        {"id": "results-first", "prediction": "Say yes"},
        {"id": "results-test-1", "prediction": '{"a": 1}'},
    ]


def test_incomplete_results_are_reported(importing: Importing):
    rows = [result(0, None), result(1, "Say yes", provider="other"), 5, {**result(3, "x"), "prompt": {}}, {"vars": []}]
    found = results(importing, *rows, {**result(6, "x"), "vars": {"q": "{{ y | z }}"}})
    assert found.code == 1
    lines = [line.removeprefix("results.json:1:1: ") for line in found.err.splitlines()]
    assert lines == [
        "results.results[2]: not imported: found 5, expected an object",
        "results.results[3]: not imported: found no text of its prompt",
        "results.results[5]: not imported: found '{{ y | z }}'; only {{ name }} is filled in, filters and statements "
        "are not run",
        "results.results[0]: response: no output, so there is no answer to score",
        "left out; the provider 'other' has 1 of the results: import them from a separate file",
        "left out; the provider 'None' has 1 of the results: import them from a separate file",
    ]
