"""Ways to run a case: the built-in runners, a user's own callable, and predictions made elsewhere.

Others use: agents.adapter, base, chat, gateway.bounds, gateway.gateway, gateway.policy, kinds, subjects
"""
