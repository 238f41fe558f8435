"""Files that replace prompts of planner, judge and synthesis, and the settings of `compat: mcp_bench`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from judging.judging_samples import make_profile
from planner_support import asked, plan, run, says
from runners.runners_support import assistant, told
from synthesis.synthesis_samples import GIT, TIME
from tool_use_samples import make_run, make_task

from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.config.prompt_files import PromptTexts, read_prompts
from pytest_agentbench.config.session_roots import decide_roots
from pytest_agentbench.engine.servers import list_servers
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.mcp_bench.judge import TOOL_USE_REPETITIONS, make_assessment
from pytest_agentbench.packs.mcp_bench.planner import PlannerRunner
from pytest_agentbench.packs.mcp_bench.prompts import PROMPTS, SYNTHESIS_PROMPTS
from pytest_agentbench.packs.mcp_bench.records import (
    PUBLISHED_EXCLUSIONS,
    PUBLISHED_PLANNER,
    McpJudging,
    McpTask,
    PlannerSettings,
)
from pytest_agentbench.packs.mcp_bench.synthesis.drafts import Drafts, Place
from pytest_agentbench.packs.mcp_bench.synthesis.stages import make_fuzzing_request, make_gate_request
from pytest_agentbench.packs.mcp_bench.wording import read_synthesis_wording, replace_prompts
from pytest_agentbench.records.run import Usage
from pytest_agentbench.secrets.redaction import Redactor

PLAN = "PLAN {round}/{max_rounds}\n{task}\n{tools}\n{information}\nReply {{}}."
ANSWER = "ANSWER {calls} {servers}\n{task}\n{information}"
JUDGE = "JUDGE {rounds} {calls}\n{task}\n{concrete}\n{analysis}\n{solution}\n{execution}\n{tools}\n{rubric}\n{{}}"


def judge_messages(text: str, iteration: int = 1, case=None, made=None, **fields) -> list[dict[str, str]]:
    profile = make_profile(mcp_tasks={"prompts": PromptTexts(texts={"judge.en": text})}, **fields)
    return make_assessment(case or make_task(), made or make_run(), profile, lambda value: value).messages(iteration)


def test_planner_requests_by_prompts_of_files() -> None:
    prompts = PromptTexts(texts={"plan.en": PLAN, "answer.en": ANSWER})
    with told(plan(("S:a", {})), plan(go=False), assistant("Done.")) as (model, requests):
        context, end = run(model, says("S:a"), text="Find it.", prompts=prompts)
    assert (end.status, context.trace.output) == ("success", "Done.")
    first, second, answer = map(asked, requests)
    assert first.startswith("PLAN 1/20\n<<<DATA ")
    assert first.endswith("\nNone yet: no tool has been called.\nReply {}.")
    assert "Find it." in first
    assert "About S:a." in first
    assert second.startswith("PLAN 2/20\n")
    assert "## Round 1" in second
    assert answer.startswith("ANSWER 1 1\n")
    for request in requests:
        assert "strategic" not in request["messages"][0]["content"]
        assert "<<<DATA" in request["messages"][0]["content"]


def test_the_judge_reads_the_prompt_of_a_file() -> None:
    system, user = (message["content"] for message in judge_messages(JUDGE))
    assert system.startswith("How to read") or "<<<DATA" in system
    assert user.startswith("JUDGE ")
    assert user.endswith("\n{}")
    for label in ("user message to the agent", "concrete task", "dependency analysis", "final solution", "tools"):
        assert user.count(f" {label}>>>\n<<<") + user.count(f" {label}>>>\n") >= 1, label
    assert "## Task completion" in user
    assert "# The task as it was given" not in user
    assert "Be extremely strict" not in user


def test_the_rubric_is_shuffled_where_the_prompt_shows_it() -> None:
    shown = {judge_messages(JUDGE, number)[1]["content"] for number in range(1, 6)}
    assert len(shown) > 1
    fixed = {judge_messages(JUDGE.replace("{rubric}", ""), number)[1]["content"] for number in range(1, 6)}
    assert len(fixed) == 1


def test_a_prompt_without_the_anchors_of_the_profile_is_an_error() -> None:
    anchors = {"anchors": {"enabled": True, "references": [{"anchor_id": "a", "label": "Good", "text": "An example."}]}}
    with pytest.raises(ConfigError, match=r"found no \{anchors\}"):
        judge_messages(JUDGE, **anchors)
    assert "An example." in judge_messages(JUDGE + "{anchors}", **anchors)[1]["content"]


def test_prompts_change_the_fingerprint_of_a_profile_and_none_leave_it() -> None:
    for settings in (PlannerSettings, McpJudging):
        assert not {"prompts", "compat"} & settings(language="zh").model_dump().keys()
        first, second = (settings(prompts=PromptTexts(texts={"x.en": text})).model_dump() for text in "ab")
        assert first != second
    assert "prompts" not in PlannerSettings().of_a_run
    assert PlannerSettings(prompts=PromptTexts(texts={"plan.en": PLAN})).of_a_run["prompts"]["texts"] == {
        "plan.en": PLAN
    }


def test_synthesis_by_prompts_of_files(tmp_path: Path) -> None:
    (tmp_path / "fuzzing.en.txt").write_text("FUZZ {{}}\n{task}\n{count}\n{exactness}")
    (tmp_path / "plan.en.txt").write_text(PLAN)
    prompts = read_prompts(tmp_path, PROMPTS).only(SYNTHESIS_PROMPTS)
    wording = replace_prompts(read_synthesis_wording("en"), prompts, "en")
    system, user = make_fuzzing_request(wording, "A task", 4, exact=False, problems=[])
    assert user["content"].startswith("FUZZ {}\n<<<DATA ")
    assert "A task" in user["content"]
    assert "<<<DATA" in system["content"]
    plain = read_synthesis_wording("en")
    assert make_gate_request(wording, "A", "B", (TIME, GIT)) == make_gate_request(plain, "A", "B", (TIME, GIT))
    assert replace_prompts(plain, prompts, "zh").replaced == {}


def test_drafts_of_other_prompts_do_not_count(tmp_path: Path) -> None:
    path, place = tmp_path / "drafts.jsonl", Place("task_000", 1, "generation")
    for number, prompts in enumerate((None, "one", "two")):
        with Drafts.open(path, "m", "en", Redactor({}), prompts) as drafts:
            assert drafts.reply(place, 1) is None
            drafts.keep_reply(place, 1, f"reply {number}", Usage())
    for number, prompts in enumerate((None, "one", "two")):
        with Drafts.open(path, "m", "en", Redactor({}), prompts) as drafts:
            kept = drafts.reply(place, 1)
            assert kept is not None
            assert kept.content == f"reply {number}"
    assert json.loads(path.read_text().splitlines()[0]).keys() & {"prompts"} == set()


def test_compat_sets_what_the_published_runs_had_unless_it_is_given() -> None:
    published = PlannerSettings(compat="mcp_bench")
    assert published.resident_servers == ("Time MCP",)
    assert len(published.sequential_only_tools) == 7
    assert published.model_dump() == PlannerSettings.model_validate(PUBLISHED_PLANNER).model_dump()
    own = dict.fromkeys(PUBLISHED_PLANNER, ())
    assert PlannerSettings(compat="mcp_bench", **own).model_dump() == PlannerSettings().model_dump()
    assert McpJudging(compat="mcp_bench").model_dump() == McpJudging(shuffle="bands").model_dump()
    assert McpJudging(compat="mcp_bench", shuffle="axes").shuffle == "axes"
    with pytest.raises(ValueError, match="compat"):
        PlannerSettings.model_validate({"compat": "drb"})


CONFIG = Path(__file__).parents[4] / "shared" / "data" / "mcp" / "benchmark_config.yaml"


@pytest.mark.skipif(not CONFIG.exists(), reason=f"no conformance data: {CONFIG} is not there")
def test_the_published_settings_are_those_of_the_originals_configuration() -> None:
    config = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    settings, execution = PlannerSettings(compat="mcp_bench"), config["execution"]
    assert list(settings.resident_servers) == config["benchmark"]["resident_servers"]
    assert list(settings.sequential_only_tools) == execution["sequential_only_tools"]
    excluded = {f"{server}:{name}" for server, names in PUBLISHED_EXCLUSIONS.items() for name in names}
    assert excluded == set(execution["problematic_tools"])
    assert settings.distraction_servers == config["benchmark"]["distraction_servers_default"]
    assert settings.max_rounds == execution["max_execution_rounds"]
    assert settings.parallel_calls_per_server == execution["server_semaphore_limit"]
    assert settings.summarise_over_tokens == execution["content_summary_threshold"]
    assert settings.plan_tokens == config["llm"]["planning_tokens"]
    assert settings.summary_tokens == config["llm"]["summarization_max_tokens"]
    assert config["evaluation"]["judge_stability_runs"] == TOOL_USE_REPETITIONS
    assert PlannerRunner.run_seconds == execution["task_timeout"]


def test_compat_excludes_the_tools_that_the_published_runs_were_not_offered(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text("schema_version: 1\n")
    servers = {name: {"command": "python3"} for name in ("Paper Search", "Time MCP", "OSINT Intelligence")}
    (tmp_path / "servers.yaml").write_text(yaml.safe_dump({"schema_version": 1, "servers": servers}))
    [root] = {decide_roots([tmp_path], tmp_path).of(tmp_path / "test.yaml")}
    task = McpTask(servers=("Paper Search", "OSINT Intelligence"), fuzzy="Find it.")
    case = make_task().model_copy(update={"path": tmp_path / "test.yaml", "parts": {"mcp_task": task}})

    def excluded(**fields) -> dict[str, tuple[str, ...]]:
        profile = make_run_profile(**fields)
        return {name: server.exclude_tools for name, server in list_servers(root, profile, case).items()}

    assert set(excluded().values()) == {()}
    found = excluded(planner={"compat": "mcp_bench"})
    assert found == {
        "OSINT Intelligence": ("osint_overview",),
        "Paper Search": PUBLISHED_EXCLUSIONS["Paper Search"],
        "Time MCP": (),
    }
    found = excluded(planner={"compat": "mcp_bench"}, exclude_tools={"Paper Search": ["search"]})
    assert (found["Paper Search"], found["OSINT Intelligence"]) == (("search",), ("osint_overview",))


def make_run_profile(**fields) -> RunProfile:
    return RunProfile(schema_version=1, run_profile_id="p", title="P", **fields)
