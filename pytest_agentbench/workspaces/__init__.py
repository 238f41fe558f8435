"""Folders and sandboxes of runs. Paths from agents are opened here, and nowhere else.

Others use: archive, changes, confined, containers.builder, containers.compose, containers.container,
containers.engines, containers.images, containers.packages, sandboxes.base, sandboxes.bubblewrap, sandboxes.bwrap,
sandboxes.choice, sandboxes.copies, sandboxes.guarded, sandboxes.host, sandboxes.isolated, sandboxes.programs,
sandboxes.shared, sandboxes.watched_network, sessions, template, transfer, workspace
"""
