"""Packs: the systems that benchmarks come from, each a folder that plugs into the core like anybody's plugin.

Others use: nothing
"""
