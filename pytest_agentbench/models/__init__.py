"""Models: where each is asked, the chat client with its retries and limits, prices, and scripted models offline.

Others use: batches.collector, batches.jobs, batches.services, cassette_file, cassettes, client, clock, completions,
completions_http, connections, dialects.base, dialects.choice, dialects.passing, dialects.signatures,
dialects.translation, ends, failures, learning, ledger, limits, messages, metering, probes, prompts,
protocols.anthropic, replies, routes, script_files, script_trees, scripts, spelling, tape, thoughts, wires
"""
