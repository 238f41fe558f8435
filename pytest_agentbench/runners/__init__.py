"""Ways to run a case: the built-in runners, a user's own callable, and predictions made elsewhere.

Others use: acp.registry, agents.adapter, agents.doctor, agents.image, agents.places, agents.registries, agents.runs,
agents.timing,
agents.turns, base, chat, conversation, gateway.address, gateway.bounds, gateway.gateway, gateway.listener,
gateway.opening, gateway.policy, kinds, own_conversations, roles, subjects
"""
