"""Models: where each is asked, the chat client with its retries and limits, prices, and scripted models offline.

Others use: batches.collector, cassette_file, cassettes, client, completions, completions_http, connections, failures,
ledger, limits, prompts, replies, routes, script_files, script_trees, scripts, tape
"""
