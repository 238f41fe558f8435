"""Test kits: the contract of each seam, for the tests of an implementation.

A kit is a function: it returns if the contract holds, and raises AssertionError with a sentence if it does not.
`from pytest_agentbench import check_tool` imports one; no session imports this room.

Others use: cases, conversations, deciding, outputs, packs, samples, sandboxes
"""
