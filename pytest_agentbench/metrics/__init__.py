"""Text -> score, trace -> rate: a metric is a function `(ground_truth, prediction, **kwargs) -> float in [0, 1]`, or
`(case, artifact, **kwargs)`, under a name.

Others use: gold_checks, llm_judgement, registry, scoring, tool_use
"""
