"""Mistakes on the command line."""

from __future__ import annotations

from support.mistakes import CALL, MODELS, PROFILE, SUITE, Mistake

ON_THE_COMMAND_LINE = (
    Mistake(
        "a model that is nowhere",
        "--model gpt4: no entry of models.yaml has this id, so the default endpoint is asked for a model of that name; "
        "did you mean 'gpt4o'?",
        {"cases/models.yaml": MODELS},
        ("cases", "--model", "gpt4"),
    ),
    Mistake(
        "no model",
        "no model was named, so no case can run: name one of models.yaml (gpt4o) or of an endpoint with --model NAME",
        {"cases/models.yaml": MODELS},
        ("cases",),
    ),
    Mistake(
        "a misspelt suite",
        "cases/suites: there is no suite 'smal'; did you mean 'small'?",
        {"cases/suites/small.yaml": SUITE + "  include_case_ids: [hello]\n"},
        ("cases", "--agentbench-suite", "smal"),
    ),
    Mistake(
        "no such run profile",
        "cases/run_profiles: there is no run profile 'fats'; did you mean 'fast'?",
        {"cases/run_profiles/fast.yaml": PROFILE},
        (*CALL, "--agentbench-run-profile", "fats"),
    ),
    Mistake(
        "no such evaluation profile",
        "evaluation_profiles: there is no evaluation profile 'strict'; there are none",
        {},
        (*CALL, "--agentbench-evaluation-profile", "strict"),
    ),
    Mistake("no such folder", "file or directory not found: case", {}, ("case", "--model", "demo")),
    Mistake("no such case", "not found: ", {}, ("cases/hello/test.yaml::helo[demo]", "--model", "demo")),
    Mistake("a pattern of nothing", "1 deselected", {}, (*CALL, "-k", "goodbye")),
    Mistake(
        "a percentage to reach",
        "argument --agentbench-fail-under: found '80', expected a fraction from 0 to 1",
        {},
        (*CALL, "--agentbench-fail-under", "80"),
    ),
    Mistake(
        "no repetitions",
        "argument --agentbench-repetitions: found '0', expected a whole number of at least 1",
        {},
        (*CALL, "--agentbench-repetitions", "0"),
    ),
    Mistake(
        "many at once, in words",
        "argument --agentbench-concurrency: found 'many', expected a whole number of at least 1",
        {},
        (*CALL, "--agentbench-concurrency", "many"),
    ),
    Mistake(
        "no file of predictions",
        "--agentbench-predictions: found answers.jsonl, expected an existing file of predictions",
        {},
        ("cases", "--agentbench-predictions", "answers.jsonl"),
    ),
    Mistake(
        "two models in one",
        "--agentbench-model: found 'demo,gpt4o', expected one model; repeat the option for each",
        {},
        ("cases", "--model", "demo,gpt4o"),
    ),
    Mistake(
        "a file as the output folder",
        "--agentbench-output: found the file results, expected a folder",
        {"results": ""},
        (*CALL, "--agentbench-output", "results"),
    ),
    Mistake(
        "a metric for cases that name theirs",
        "warning: --agentbench-metric: found no row of a dataset, which alone it decides; name metrics of other cases "
        "in their files",
        {},
        (*CALL, "--agentbench-metric", "f1_score"),
    ),
    Mistake(
        "predictions and a model",
        "--agentbench-predictions: found answers.jsonl together with the model 'demo'; predictions are scored as they "
        "are and no model is asked: give one of the two",
        {},
        (*CALL, "--agentbench-predictions", "answers.jsonl"),
    ),
    Mistake(
        "no such metric",
        "--agentbench-metric: unknown metric 'exact_mach'; did you mean 'exact_match'?",
        {},
        (*CALL, "--agentbench-metric", "exact_mach"),
    ),
    Mistake(
        "a threshold in words",
        "argument --agentbench-metric: found 'high', expected a number",
        {},
        (*CALL, "--agentbench-metric", "exact_match>=high"),
    ),
    Mistake(
        "the third half",
        "argument --agentbench-shard: found '3/2', expected I/N with I from 1 to N, such as 2/8",
        {},
        (*CALL, "--agentbench-shard", "3/2"),
    ),
    Mistake(
        "an unknown mode",
        "argument --agentbench-cassettes: found 'play', expected one of off, record, replay, auto",
        {},
        (*CALL, "--agentbench-cassettes", "play"),
    ),
    Mistake(
        "no report to compare with",
        "--agentbench-compare: last.json: cannot be read: No such file or directory; run pytest first, or name the "
        "report.json; leave the option out until there is a report to compare with",
        {},
        (*CALL, "--agentbench-compare", "last.json"),
    ),
    Mistake("a misspelt option", "unrecognized arguments: --agentbench-profil", {}, (*CALL, "--agentbench-profil=x")),
    Mistake(
        "money in words",
        "argument --agentbench-max-cost: found 'five', expected a number",
        {},
        (*CALL, "--agentbench-max-cost", "five"),
    ),
)
