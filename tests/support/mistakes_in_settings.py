"""Mistakes in the other files of a project: scripts, servers, suites, profiles, models."""

from __future__ import annotations

from support.mistakes import CALL, CASE, ENTRY, MODELS, PROFILE, SUITE, Mistake

_JUDGES = """\
schema_version: 1
evaluation_profile_id: strict
title: Strict
judges:
- {judge_id: main, type: llm_probe, model: demo}
judge_runs:
- {judge_run_id: once, judge_id: main}
"""


def _in_profile(name: str, says: str, more: str) -> Mistake:
    path = "cases/run_profiles/fast.yaml"
    return Mistake(name, f"{path}:{says}", {path: PROFILE + more}, (*CALL, "--agentbench-run-profile", "fast"))


def _in_judges(name: str, says: str, right: str, wrong: str, model: str = "demo") -> Mistake:
    path = "cases/evaluation_profiles/strict.yaml"
    files = {path: _JUDGES.replace(right, wrong), "cases/models.yaml": MODELS}
    args = ("cases", "--model", model, "--agentbench-evaluation-profile", "strict")
    return Mistake(name, f"{path}:{says}", files, args)


def _in_suite(name: str, says: str, selection: str) -> Mistake:
    path = "cases/suites/small.yaml"
    return Mistake(name, f"{path}:{says}", {path: SUITE + selection}, ("cases", "--agentbench-suite", "small"))


def _in_models(name: str, says: str, right: str, wrong: str) -> Mistake:
    path = "cases/models.yaml"
    return Mistake(name, f"{path}:{says}", {path: MODELS.replace(right, wrong)}, ("cases", "--model", "gpt4o"))


OTHER_FILES = (
    Mistake(
        "an empty file",
        "cases/hello/test.yaml:1:1: found nothing, expected a top-level mapping that begins with schema_version: 1",
        {"cases/hello/test.yaml": ""},
        ("cases/hello/test.yaml", "--model", "demo"),
    ),
    Mistake(
        "a list",
        "cases/hello/test.yaml:1:1: found a list, expected a top-level mapping that begins with schema_version: 1",
        {"cases/hello/test.yaml": "- a\n- b\n"},
        ("cases/hello/test.yaml", "--model", "demo"),
    ),
    Mistake(
        "a case id twice",
        "cases/hello/test.yaml:2:10: case_id: Duplicate case_id 'hello'; cases/bye/test.yaml has it too",
        {"cases/bye/test.yaml": CASE},
    ),
    Mistake(
        "a misspelt script",
        "cases/hello/demo.yaml:2:1: replys: unknown field; did you mean 'replies'?",
        {"cases/hello/demo.yaml": "schema_version: 1\nreplys:\n- content: hello\n"},
    ),
    Mistake(
        "a server of nothing",
        "cases/servers.yaml:2:18: servers.clock: found neither 'command' nor 'url', expected one of them, or both",
        {
            "cases/servers.yaml": "schema_version: 1\nservers: {clock: {args: [a]}}\n",
            "cases/hello/test.yaml": CASE.replace("input:", "mcp_servers: [clock]\ninput:"),
        },
    ),
    _in_suite(
        "a suite of missing cases",
        "6:22: case_selection.include_case_ids[0]: 3 ids that no case has: 'helo', 'later', 'never'; did you mean "
        "'hello'?",
        "  include_case_ids: [helo, later, never]\n",
    ),
    _in_suite(
        "a suite of a missing case",
        "6:22: case_selection.include_case_ids[0]: no case has the id 'helo'; did you mean 'hello'?",
        "  include_case_ids: [helo]\n",
    ),
    _in_suite(
        "a suite of no tag",
        "6:18: case_selection.include_tags[0]: no case has the tag 'smokey'; there are none",
        "  include_tags: [smokey]\n  include_case_ids: [hello]\n",
    ),
    _in_suite(
        "a misspelt selection",
        "6:3: case_selection.include_ids: unknown field; did you mean 'include_case_ids'?",
        "  include_ids: [hello]\n",
    ),
    _in_profile(
        "a misspelt policy",
        "4:20: execution_policy.max_concurency: unknown field; did you mean 'max_concurrency'?",
        "execution_policy: {max_concurency: 4}\n",
    ),
    _in_profile(
        "a number in words",
        "4:37: execution_policy.max_concurrency: found 'four', expected a whole number",
        "execution_policy: {max_concurrency: four}\n",
    ),
    _in_profile(
        "an unknown sandbox",
        "4:10: sandbox: found 'dokcer', expected 'auto', 'docker', 'bubblewrap' or 'local'",
        "sandbox: dokcer\n",
    ),
    _in_profile(
        "an image that may change",
        "4:32: sandbox.image: found 'python', expected a pinned image (name:tag, not latest, or name@sha256:...); pin "
        "it, or set allow_floating_image: true in the run profile",
        "sandbox: {type: docker, image: python}\n",
    ),
    _in_judges(
        "a judge that nobody runs",
        "5:1: judges: found no judge_runs, so no judge is asked; add judge_runs that name them",
        "judge_runs:\n- {judge_run_id: once, judge_id: main}\n",
        "",
    ),
    _in_judges(
        "a run of no judge",
        "7:34: judge_runs[0].judge_id: unknown judge_id 'mian'; did you mean 'main'?",
        "once, judge_id: main",
        "once, judge_id: mian",
    ),
    _in_judges(
        "an unknown kind of judge",
        "5:26: judges[0].type: unknown judge type 'llm'; there is llm_probe",
        "type: llm_probe",
        "type: llm",
    ),
    _in_judges(
        "a judge without a model",
        "5:3: judges[0].model: found no model; name one of models.yaml, such as `model: gpt4o`",
        ", model: demo",
        "",
        "gpt4o",
    ),
    _in_judges(
        "retries among request options",
        "5:77: judges[0].request_options.retries: found below request_options, which are sent to the endpoint; "
        "write it next to request_options",
        "model: demo",
        "model: demo, request_options: {retries: 3}",
    ),
    _in_models(
        "a model twice", "4:14: models[1].model_id: Duplicate model_id 'gpt4o'; each must be unique", ENTRY, ENTRY * 2
    ),
    _in_models(
        "a key in a file",
        "3:69: models[0].api_key_env: expected the name of an environment variable, never a key itself",
        "api_key_env: none",
        "api_key_env: sk-abcdefghijklmnop0123",
    ),
    _in_models(
        "an address without a scheme",
        "3:31: models[0].base_url: found '127.0.0.1:9/v1', expected an address with its scheme, such as "
        "http://localhost:8000/v1",
        "http://127.0.0.1:9/v1",
        "127.0.0.1:9/v1",
    ),
    _in_models(
        "a misspelt model field",
        "3:21: models[0].base_ulr: unknown field; did you mean 'base_url'?",
        "base_url",
        "base_ulr",
    ),
    _in_models(
        "a request field beside a model's own",
        "3:21: models[0].temperature: unknown field; request fields belong below `parameters`",
        "base_url",
        "temperature: 1, base_url",
    ),
)
