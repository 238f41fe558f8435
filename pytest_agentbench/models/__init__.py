"""Models: where each is asked, the chat client with its retries and limits, prices, and scripted models offline.

Others use: apis.base, apis.choice, apis.messages, apis.signatures, apis.translation, batches.collector, batches.jobs,
batches.services, cassette_file, cassettes, client, clock, completions, completions_http, connections, ends, failures,
json_values, learning, ledger, limits, messages, metering, passing, probes, prompts, replies, routes, script_files,
script_trees, scripts, spelling, tape, thoughts
"""
