"""Models: where each is asked, the chat client with its retries and limits, prices, and scripted models offline.

Others use: cassette_file, cassettes, client, completions_http, connections, conversation, failures, limits, pricing,
prompts, replies, routes, script_files, scripted_app, scripts, tape
"""
