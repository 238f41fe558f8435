"""The engine: runs jobs ahead of pytest, within limits and budget, and splits them over xdist's workers.

Others use: agent_code, budget, cassettes, driver, execution, forecast, grading, grading_services, identities, job,
limits, lookahead, registry, servers, services, subject, user_code, verdict
"""
