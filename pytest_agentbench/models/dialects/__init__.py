"""Dialects that agents ask in: their requests as Chat Completions has them, and replies as each dialect writes them.

Others use: base, choice, translation
"""
