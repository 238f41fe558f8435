"""Protocols that models are asked in: Chat Completions, which all else here speaks, and what is made of that.

Others use: nothing
"""
