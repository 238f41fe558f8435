"""Test kits: of each seam what any implementation has to keep, for the tests of whoever writes one.

A kit is a function: it returns where the contract holds, and raises AssertionError with a sentence where it does not.
`from pytest_agentbench import check_tool` has it; no session imports this room.

Others use: cases, deciding, outputs, sandboxes
"""
