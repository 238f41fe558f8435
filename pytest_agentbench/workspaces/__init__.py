"""Folders and sandboxes of runs. Paths from agents are opened here, and nowhere else.

Others use: archive, changes, confined, packages, sandboxes.base, sandboxes.bwrap, sandboxes.choice, sandboxes.copies,
sandboxes.guarded, sandboxes.host, sandboxes.images, sandboxes.isolated, sandboxes.needs, sandboxes.programs,
sandboxes.shared, sandboxes.shown, sandboxes.watched_network, sessions, template, transfer, workspace
"""
