"""The engine: runs jobs ahead of pytest, within limits and budget, and splits them over xdist's workers.

Others use: agent_code, agent_values, budget, case_rules, conversations, driver, evaluation, execution, forecast,
grading, identities, job, limits, lookahead, run_plan, servers, services, user_code, variants
"""
