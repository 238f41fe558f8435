"""Problems of a `dataset.yaml` have their place."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cpu_seconds import at_most

from pytest_agentbench.config.base import Known, Scope, load_in
from pytest_agentbench.config.dataset_file import DatasetDescriptor, parse_template
from pytest_agentbench.config.kinds import kind_of
from pytest_agentbench.errors import ConfigError


@pytest.fixture
def errors(tmp_path):
    """The lines of the error that a descriptor gives, without the file's name."""
    root = tmp_path / "root"
    (root / "data").mkdir(parents=True)
    (root / "data" / "one.jsonl").write_text('{"question": "q"}\n')
    (root / "data" / "table.csv").write_text("question\nq\n")
    (tmp_path / "outside.jsonl").write_text('{"question": "q"}\n')

    def collect(text: str, known: Known | None = None) -> list[str]:
        path = root / "data" / "dataset.yaml"
        path.write_text("schema_version: 1\n" + textwrap.dedent(text))
        try:
            load_in(path, DatasetDescriptor, Scope(str(path.parent), str(root), known or Known()))
        except ConfigError as error:
            return [line.removeprefix(f"{path}:") for line in str(error).splitlines()]
        return []

    return collect


FILES = "files: [one.jsonl]\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "source: hf:openai/gsm8k\nconfig: main\nsplit: test\nrevision: abc\n",
        "source: hf:squad\n",
        "source: hf:./table.csv\n",
        "source: hf:.\n",
        "fields: {question: problem, answer: answers.text.0}\nprompt: '{{ problem }} {{choices}}'\n",
        "few_shot: {examples: [{question: 1+1?, answer: 2, unit: cm}]}\n",
        "benchmark: pkg.module:Class\nfields: {split: fold}\n",
        "metrics: [{name: f1_score, threshold: 0.5, compat: v1, args: {choices: '{{ choices }}'}}]\nmetrics_note: x\n",
    ],
)
def test_valid_descriptors_are_read(errors, text):
    given_files = text if "source" in text else FILES + text
    assert [line for line in errors(given_files) if "metrics_note" not in line] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FILES + "filse: []\n", "3:1: filse: unknown field; did you mean 'files'?"),
        (
            FILES + "fields: {qestion: x}\n",
            "3:10: fields.qestion: unknown field; did you mean 'question'?",
        ),
        ("name: x\n", "1:1: found neither files nor source, expected exactly one of them"),
        (FILES + "source: hf:squad\n", "1:1: found both files and source, expected exactly one of them"),
        ("files: []\n", "2:8: files: found none, expected at least one path or pattern"),
        ("files: [gone.jsonl]\n", "2:9: files[0]: found 'gone.jsonl', which matches no .json or .jsonl file below"),
        ("files: [one.jsonl, '*.json']\n", "2:20: files[1]: found '*.json', which matches no .json or .jsonl file"),
        ("files: [../../outside.jsonl]\n", "2:9: files[0]: found '../../outside.jsonl', which leaves"),
        ("files: ['../../*.jsonl']\n", "which leaves"),
        ("files: [table.csv]\n", "expected a .json or .jsonl file; `source: hf:./table.csv` in place of files reads"),
        ("files: one.jsonl\n", "2:8: files: found 'one.jsonl', expected a list"),
        (FILES + "fields: [a]\n", "3:9: fields: found ['a'], expected a mapping"),
        (FILES + "config: main\n", "3:9: config: only a source has a config; remove it"),
        ("source: squad\n", "2:9: source: found 'squad', expected hf:<dataset id>, or hf:./<folder or file>"),
        ("source: hf:./gone\n", "2:9: source: found 'hf:./gone', expected a folder or file that exists; there is no"),
        ("source: hf:../..\n", "2:9: source: found '../..', which leaves"),
        (FILES + "prompt: Answer it\n", "3:9: prompt: found no field in it, so that all rows would ask the same"),
        (FILES + "prompt: '{{ a | upper }}'\n", "prompt: found {{ a | upper }}, expected the name of a field"),
        (FILES + "prompt: '{{ f() }}'\n", "there are no expressions"),
        (FILES + "prompt: '{{ question'\n", "prompt: found {{ without }}"),
        (FILES + "prompt: '{{ question }} {{ answer }}'\n", "which would hand the answer to the agent; remove it"),
        (
            FILES + "fields: {answer: gold.text}\nprompt: '{{ gold }}'\n",
            "found {{ gold }}, which would hand the answer",
        ),
        (FILES + "fields: {answer: gold.a}\nprompt: '{{ metadata.gold.a.b }}'\n", "which would hand the answer"),
        (
            FILES + "fields: {answer: gold.a, metadata: gold}\nprompt: '{{ metadata.a }}'\n",
            "which would hand the answer",
        ),
        (FILES + "fields: {answer: gold.a}\nprompt: '{{ metadata }}'\n", "which would hand the answer"),
        (FILES + "fields: {answer: a..b}\n", "3:18: fields.answer: found 'a..b', expected the name of a field"),
        (FILES + "fields: {answer: {any_of: a..b}}\n", "fields.answer.any_of: found 'a..b', expected the name of a"),
        (FILES + "fields: {answer: {one_of: a}}\n", "fields.answer.one_of: unknown field; did you mean 'any_of'?"),
        (FILES + "fields: {answer: {}}\n", "fields.answer: found none, expected exactly one of any_of and all_of"),
        (FILES + "fields: {answer: {any_of: a, all_of: b}}\n", "fields.answer: found any_of and all_of, expected"),
        (
            FILES + "fields: {answer: {any_of: gold.a}}\nprompt: '{{ gold }}'\n",
            "found {{ gold }}, which would hand the answer",
        ),
        (FILES + "answer_is: number\n", "3:12: answer_is: found 'number', expected 'index', 'index1', 'letter' or"),
        (FILES + "limit: 0\n", "3:8: limit: found 0, expected at least 1"),
        (FILES + "shuffle_seed: x\n", "3:15: shuffle_seed: found 'x', expected a whole number"),
        (FILES + "few_shot: {count: 3}\n", "few_shot: found none, expected exactly one of examples, file and split"),
        (FILES + "few_shot: {file: one.jsonl, split: a}\n", "found file and split, expected exactly one of"),
        (FILES + "few_shot: {examples: []}\n", "few_shot.examples: found none, expected at least one"),
        (FILES + "few_shot: {file: gone.jsonl}\n", "3:18: few_shot.file: found 'gone.jsonl', which matches no"),
        (FILES + "few_shot: {examples: [{question: q}]}\n", "few_shot.examples[0].answer: missing; add it"),
        (FILES + "benchmark: module.Class\n", "3:12: benchmark: found 'module.Class', expected module:Class"),
        (FILES + "benchmark: m:C\nfields: {question: x}\n", "4:20: fields.question: the class of `benchmark` defines"),
        (FILES + "compat: v3\n", "3:9: compat: found 'v3', expected 'v1' or 'v2'"),
        (
            FILES + "runner: {type: llm_probe, temperature: 3}\n",
            "runner.temperature: found 3, expected at most 2",
        ),
        (FILES + "context: {llm_probe: {tools: x}}\n", "context.llm_probe.tools: found 'x', expected a list"),
        (FILES + "metrics: [{name: a}, {name: a}]\n", "metrics[1].name: Duplicate name 'a'"),
    ],
)
def test_problems_are_reported_with_their_places(errors, text, message):
    found = errors(text)
    assert any(message in line for line in found), found
    assert all(line.split(":")[0].isdigit() for line in found)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["{{" * 1_000_000, "{{ a }}" * 500_000 + "{{", "{{ " + "a " * 1_000_000 + "!}}"])
def test_a_template_of_megabytes_is_read_at_once(text):
    with at_most(2), pytest.raises(ValueError, match="expected the name of a field"):
        parse_template(text)


def test_names_are_verified(errors):
    known = Known(frozenset({"llm_probe"}), frozenset({"web_search"}), frozenset(), frozenset({"exact_match"}))
    text = (
        FILES + "metrics: [{name: exact_mach}]\nrunner: {type: lm_probe}\ncontext: {llm_probe: {tools: [web_serch]}}\n"
    )
    assert [line.partition(": ")[2] for line in errors(text, known)] == [
        "metrics[0].name: unknown metric 'exact_mach'; did you mean 'exact_match'?",
        "runner.type: unknown runner 'lm_probe'; did you mean 'llm_probe'?",
        "context.llm_probe.tools[0]: unknown tool 'web_serch'; did you mean 'web_search'?",
    ]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("dataset.yaml", "schema_version: 1\n", DatasetDescriptor),
        ("hard.dataset.yml", "schema_version: 1\n", DatasetDescriptor),
        ("dataset.yaml", "[broken", DatasetDescriptor),
        ("dataset.yaml", "train: images/\n", None),  # another tool's
        ("my_dataset.yaml", "schema_version: 1\n", None),
    ],
)
def test_a_descriptor_is_known_by_its_name(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text)
    assert kind_of(tmp_path / name) is expected


@given(st.text(alphabet="{} ab.|()\n", max_size=40))
def test_a_template_is_literals_and_names_or_an_error(text):
    try:
        parts = parse_template(text)
    except ValueError:
        assert "{{" in text
        return
    assert len(parts) % 2
    assert all("{{" not in literal for literal in parts[::2])
    assert all(name and not set(name) & set("{}|()\n") for name in parts[1::2])
