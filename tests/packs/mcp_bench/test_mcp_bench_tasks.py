"""Task files of MCP-Bench: their detection, the cases of their tasks, and the problems of broken ones."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from support.cpu_seconds import at_most

from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.session_roots import find_root
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.mcp_bench.tasks import TASKS
from pytest_agentbench.records.case import MetricSpec
from pytest_agentbench.sources.case_source import BadRow, SourceCase, SourceRequest
from pytest_agentbench.sources.discovery import find_cases, find_source, index_cases, open_questions, open_source


def task(task_id: str, **fields: Any) -> dict[str, Any]:
    texts = {"task_description": f"Detailed {task_id}", "fuzzy_description": f"Fuzzy {task_id}"}
    return {"task_id": task_id, **texts, **fields}


def group(*tasks: Any, **fields: Any) -> dict[str, Any]:
    return {"server_name": "Math MCP", **fields, "tasks": [*tasks]}


@pytest.fixture
def write(tmp_path):
    def write(content, name="tasks.json", indent=2):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=indent), encoding="utf-8")
        return path

    return write


@pytest.fixture
def read(tmp_path):
    """Return the good rows' cases, and the messages of the bad rows without the file's name."""

    def read(path, profile=None, metrics=None):
        request = SourceRequest(ConfigRoot(tmp_path), metrics=metrics, run_profile=profile)
        rows = list(open_source(path, request).rows())
        bad = [line for row in rows if isinstance(row, BadRow) for line in row.message.splitlines()]
        cases = [row.make() for row in rows if isinstance(row, SourceCase)]
        assert [case.tags for case in cases] == [row.tags for row in rows if isinstance(row, SourceCase)]
        return cases, [line.removeprefix(f"{path}:") for line in bad]

    return read


ONE = {"servers": ["A"]}
SHAPES = {
    "groups": {
        "server_tasks": [
            {"server_name": "A", "tasks": [task("1"), task("2")]},
            {"servers": ["B"], "tasks": [task("3")]},
        ]
    },
    "groups of one task": {
        "server_tasks": [{"server_name": name, "task": task(key)} for name, key in ("A1", "A2", "B3")]
    },
    "tasks": {"tasks": [task("1", servers=["A"]), task("2", server_name="A"), task("3", servers=["B"])]},
    "tasks of one server": {
        "generation_info": {},
        "server_name": "A",
        "tasks": [task("1"), task("2"), task("3", servers=["B"])],
    },
    "combinations": {
        "combinations": [
            {"name": "One", "servers": ["A"], "generated_tasks": [task("1"), task("2")]},
            {"name": "Other", "servers": ["B"], "generated_tasks": [task("3")]},
        ]
    },
    "list of tasks": [task("1", servers=["A"]), task("2", servers=["A"]), task("3", server_name="B")],
    "list of groups": [{"servers": ["A"], "tasks": [task("1"), task("2")]}, {"server_name": "B", "task": task("3")}],
    "tasks in wrappers": {"tasks": [{"server_name": n, "task": task(k)} for n, k in ("A1", "A2", "B3")]},
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("indent", [2, None])
def test_every_shape_has_the_same_tasks(write, read, shape, indent):
    path = write(shape, indent=indent)
    assert find_source(path) is TASKS
    cases, bad = read(path)
    assert bad == []
    assert [(case.case_id, case.mcp_task.servers) for case in cases] == [("1", ("A",)), ("2", ("A",)), ("3", ("B",))]
    assert [case.messages[0].content for case in cases] == ["Fuzzy 1", "Fuzzy 2", "Fuzzy 3"]


def test_a_task_as_a_case(write, read):
    analysis = {"sequence": ["a", "b"]}
    path = write(
        {
            "server_tasks": [
                {
                    "server_name": "Google Maps+Weather Data",
                    "servers": ["Google Maps", "Weather Data"],
                    "combination_name": "Location Services",
                    "combination_type": "two_server_combinations",
                    "tasks": [
                        task(
                            "maps_000",
                            dependency_analysis=analysis,
                            dependencies={"Weather Data:now": ["Google Maps:geocode"]},
                            distraction_servers=["NixOS", "Reddit"],
                            difficulty="hard",
                        )
                    ],
                }
            ]
        }
    )
    ((case,), bad) = read(path)
    assert bad == []
    assert (case.case_id, case.dataset, case.path, case.line) == ("maps_000", "tasks", path, 12)
    assert case.title == "Fuzzy maps_000"
    assert case.runner.type == "mcp_planner"
    assert case.mcp_servers == {"Google Maps": None, "Weather Data": None}
    assert case.mcp_task.distraction_servers == ("NixOS", "Reddit")
    assert (case.mcp_task.fuzzy, case.mcp_task.detailed) == ("Fuzzy maps_000", "Detailed maps_000")
    assert json.loads(case.mcp_task.dependency_analysis) == analysis
    assert case.mcp_task.dependencies == {"Weather Data:now": ("Google Maps:geocode",)}
    assert (case.mcp_task.combination_name, case.mcp_task.combination_type) == (
        "Location Services",
        "two_server_combinations",
    )
    assert case.metadata == {"difficulty": "hard"}
    assert (case.metrics, case.reference) == ((), None)
    assert case.tags == ("google-maps", "multi_server", "two_server_combinations", "weather-data")


def test_fields_of_a_task_take_precedence_over_its_group(write, read):
    own = task("own", servers=["B", "C"], combination_type="mine")
    path = write(group(own, task("shared"), task("named", server_name="D"), servers=["A"], combination_type="all"))
    cases, _ = read(path)
    assert {case.case_id: (case.mcp_task.servers, case.mcp_task.combination_type) for case in cases} == {
        "own": (("B", "C"), "mine"),
        "shared": (("A",), "all"),
        "named": (("D",), "all"),
    }


@pytest.mark.parametrize(
    ("name", "servers"),
    [("A+B", ("A", "B")), ("A + B+C", ("A", "B", "C")), ("C++", ("C++",)), ("Math MCP", ("Math MCP",))],
)
def test_servers_that_are_joined_in_a_name(write, read, name, servers):
    ((case,), _) = read(write(group(task("t"), server_name=name)))
    assert case.mcp_task.servers == servers


def test_the_profile_selects_the_text_and_the_runner(write, read):
    only = [{"task_id": "d", "task_description": "Detailed d"}, {"task_id": "f", "fuzzy_description": "Fuzzy f"}]
    path = write(group(task("t"), *only, {**task("e"), "fuzzy_description": "  "}))

    def of(**fields):
        profile = RunProfile(schema_version=1, run_profile_id="p", title="p", **fields)
        return [(case.messages[0].content, case.runner.type) for case in read(path, profile)[0]]

    fuzzy = [(text, "mcp_planner") for text in ("Fuzzy t", "Detailed d", "Fuzzy f", "Detailed e")]
    assert of() == of(runner_defaults={"type": "mcp_planner"}) == fuzzy
    assert of(task_text="detailed", runner_defaults={"type": "llm_probe"}) == [
        (text, "llm_probe") for text in ("Detailed t", "Detailed d", "Fuzzy f", "Detailed e")
    ]


def test_categories_of_servers_files_are_tags(tmp_path, write, read):
    servers = {"Math MCP": {"command": "x", "category": "Pure Maths"}, "Manual": {"command": "x"}}
    write({"schema_version": 1, "servers": servers}, "servers.yaml")
    path = write(
        [
            group(task("t", tags=[" mine "])),
            group(task("m"), server_name="Manual"),
            group(task("g"), server_name="größe (北京)!"),
        ]
    )
    (t, m, g), _ = read(path)
    assert t.tags == ("math-mcp", "mine", "pure-maths", "single_server")
    assert m.tags == ("manual-server", "single_server")  # `manual` would keep it from running
    assert g.tags == ("größe-北京", "single_server")
    assert {case.case_id: case.tags for case in index_cases(find_root(path, tmp_path, None))}["t"] == t.tags


def test_metrics_of_the_command_line_decide_tasks(write, read):
    path, asked = write(group(task("t"))), (MetricSpec(name="valid_tool_name_rate", threshold=0.9),)
    assert [case.metrics for case in read(path, metrics=asked)[0]] == [asked]


TAKEN = {
    **SHAPES,
    "nothing in it": {"server_tasks": []},
    "a broken group": {"server_tasks": [5]},
    "a broken first task": {"tasks": [{"fuzzy_description": "x"}]},
}
OTHERS = {
    "to-do list": {"tasks": [{"task_id": "1", "title": "Buy milk"}]},
    "editor tasks": {"version": "2.0.0", "tasks": [{"label": "build", "command": "make"}]},
    "programming tasks": [{"task_id": "HumanEval/0", "prompt": "def f():"}],
    "predictions": {"maps_000": "an answer"},
    "prediction records": [{"task_id": "t", "prediction": "x"}],
    "combinations without tasks": {"combinations": [{"name": "Duo", "servers": ["A", "B"], "description": "x"}]},
    "combinations of MCP-Bench": {
        "mcp_server_combinations": {"two_server_combinations": [{"name": "Duo", "servers": ["A"]}]}
    },
    "commands": {"Math MCP": {"cmd": "node x.js", "env": [], "cwd": "../x"}},
    "quoted": {"note": 'a file with "tasks": [{"task_description": "x"}] in it', "tasks": []},
    "saved results": {"benchmark_info": {}, "evaluation_results": [{"item_id": "1"}], "summary": {}},
    "a text": "task_description",
    "numbers": [1, 2],
}


@pytest.mark.parametrize("content", TAKEN.values(), ids=TAKEN)
def test_a_folder_finds_task_files_of_any_name(tmp_path, write, content):
    path = write(content, "below/some.json")
    assert list(find_cases(tmp_path)) == [path]


@pytest.mark.parametrize("content", OTHERS.values(), ids=OTHERS)
def test_a_folder_ignores_files_without_tasks_and_attachments(tmp_path, write, content):
    write(content, "some.json")
    write({"server_tasks": [group(task("t"))]}, "case/attached.json")
    write("schema_version: 1\n", "case/test.yaml")
    write({"server_tasks": [group(task("t"))]}, "some.jsonl")
    assert [path.name for path in find_cases(tmp_path)] == ["test.yaml"]


def test_the_first_group_may_be_longer_than_what_is_looked_at(tmp_path, write, read):
    path = write([group(*(task(str(n), dependency_analysis="x" * 10_000) for n in range(20)))])
    assert list(find_cases(tmp_path)) == [path]
    assert len(read(path)[0]) == 20


def test_a_broken_task_is_an_error_of_its_own(write, read):
    good = json.dumps(task("good"))
    path = write(
        '{"server_tasks": [{"server_name": "A", "tasks": [\n'
        f"{good},\n"
        '{"task_description": "x"},\n'
        '{"task_id": "n", "fuzzy_description": " "},\n'
        '{"task_id": 5, "fuzzy_description": ["x"]},\n'
        '{"task_id": "d",\n "fuzzy_description": "x", "distraction_servers": ["A", 7]},\n'
        '{"task_id": "s", "fuzzy_description": "x", "servers": []},\n'
        '{"task_id": "c", "fuzzy_description": "x", "servers": ["A:b"]},\n'
        '{"task_id": "p", "fuzzy_description": "x", "dependencies": {"a": "b"}},\n'
        '{"task_id": "u", "fuzzy_description": "\\ud83d x \\u00e9"},\n'
        "7,\n"
        f"\t{good}\n"
        "]}, {\n"
        '"servers": "A", "tasks": [{"task_id": "g", "fuzzy_description": "x"}]},\n'
        '{"tasks": [{"task_id": "h", "fuzzy_description": "x"}]},\n'
        '{"server_name": "failed", "error": "no task"}, {"server_name": "none", "tasks": []},\n'
        '{"server_name": "B", "task": {"task_id": "last", "fuzzy_description": "x"}}]}'
    )
    cases, bad = read(path)
    assert [case.case_id for case in cases] == ["good", "last"]
    assert bad == [
        "3:1: task_id: missing; add it",
        "4:1: found neither task_description nor fuzzy_description, expected at least one of the texts",
        "5:13: task_id: found 5, expected a text; put it in quotes",
        "5:37: fuzzy_description: found ['x'], expected a text",
        "7:57: distraction_servers[1]: found 7, expected a text; put it in quotes",
        "8:55: servers: found none, expected at least one server",
        "9:56: servers[0]: found 'A:b', expected the name of a server: no blank text, without ':' (a tool's id is "
        "server:tool) and control characters",
        "10:66: dependencies.a: found 'b', expected a list; write [b]",
        "11:1: found half of a surrogate pair (\\ud800-\\udfff), which is not text",
        "12:1: found a number, expected a task (an object with a task_id) or a group of tasks",
        "13:14: task_id: found 'good' again, first on line 2; give each task its own id",
        "15:27: servers: found 'A', expected a list; write [A]",
        "16:12: servers: missing; add it",
        "17:1: found servers without tasks, expected a list of them: tasks: [...]",
    ]


def test_places_are_right_in_a_file_of_one_line_with_escapes(write, read):
    path = write(group({**task("ä😀"), "tags": 5}, task("b")), indent=None)
    cases, (line,) = read(path)
    column = path.read_text().index("5}") + 1
    assert line == f"1:{column}: tags: found 5, expected a list"
    assert "\\ud83d" in path.read_text()
    assert len(cases) == 1


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"server_tasks": [{"task_id": "a"},]}', "1:36: not valid JSON"),
        ('{"server_tasks": [\n{"a": NaN}]}', "2:7: not valid JSON: NaN is no JSON value"),
        ('{"server_tasks": []} {}', "1:22: not valid JSON: extra data"),
        ('{"server_tasks": [' + "[" * 100_000, "nested too deeply"),
        ('{"server_tasks": []}', "1:1: found no task, expected at least one with a task_id"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_error(write, read, content, expected):
    path = write(content)
    try:
        _, (line,) = read(path)
    except ConfigError as error:
        line = str(error)
    assert expected in line


def test_a_file_that_is_not_utf_8(write, read):
    path = write(group(task("t")))
    path.write_bytes(path.read_bytes().replace(b"Fuzzy", b"F\xffzzy"))
    with pytest.raises(ConfigError, match="not UTF-8: found byte 0xff"):
        read(path)


def test_an_invalid_servers_file_is_an_error(write, read):
    write("schema_version: 1\nservers: {A: {}}\n", "servers.yaml")
    with pytest.raises(ConfigError, match=r"servers\.yaml:2:14: servers\.A: found neither 'command' nor 'url'"):
        read(write(group(task("t"))))


def test_python_code_cannot_score_tasks_without_runs(tmp_path, write):
    with pytest.raises(ConfigError, match="found tasks for MCP servers, expected questions"):
        open_questions(write(group(task("t"))), ConfigRoot(tmp_path))


@pytest.mark.parametrize("task_id", ["a::b", "[x]", "x" * 300, "a\nb", "../../etc"])
def test_an_odd_id_still_makes_an_item(write, read, task_id):
    ((case,), _) = read(write(group(task(task_id))))
    assert re.search(r"::|[\[\]\n]", case.case_id) is None
    assert len(case.case_id) <= 210


@pytest.mark.slow
@pytest.mark.parametrize("indent", [2, None])
def test_ten_thousand_tasks_are_cheap(write, tmp_path, indent):
    names = [f"Server {n}" for n in range(30)]
    long = {"dependency_analysis": "é and then " * 150, "distraction_servers": names[:10]}
    groups = [group(*(task(f"{n}_{k}", **long) for k in range(100)), server_name=names[n % 30]) for n in range(100)]
    path = write({"server_tasks": groups}, indent=indent)
    with at_most(20):
        rows = list(open_source(path, SourceRequest(ConfigRoot(tmp_path))).rows())
    text = path.read_text()
    assert len(rows) == 10_000
    assert rows[-1].line == (1 if indent is None else text.count("\n", 0, text.rindex('"task_id"')))
    assert sum(len(row.make.raw) for row in rows) < path.stat().st_size


@pytest.mark.parametrize(("opening", "closing"), [('[{"tasks":', "}]"), ("[", "]")])
@pytest.mark.parametrize("levels", [40, 495, 900])
def test_groups_that_nest_without_end_are_an_error(write, read, levels, opening, closing):
    text = json.dumps([task("a", servers=["A"])])
    path = write(f'{{"server_tasks":{opening * levels}{text}{closing * levels}}}')
    try:
        cases, problems = read(path)
    except ConfigError as error:
        cases, problems = [], [str(error).removeprefix(f"{path}:")]
    assert cases == []
    assert re.match(
        r"1:\d+: (not readable: nested too deeply|servers: missing|found a list, expected a task)", problems[0]
    )


@pytest.mark.slow
def test_json_files_of_other_kinds_are_recognised_quickly(tmp_path, write):
    """Objects of so many keys that reading them all would take 40 ms."""
    paths = [write({f"k{key}": key for key in range(8000)}, f"{at}.json", None) for at in range(50)]
    with at_most(0.5):
        assert not any(find_source(path, tmp_path) for path in paths)
