"""Folders and sandboxes of runs. Paths from agents are opened here, and nowhere else.

Others use: archive, changes, confined, containers.builder, containers.compose, containers.container,
containers.engines, containers.images, containers.packages, sandboxes.base, sandboxes.bubblewrap, sandboxes.choice,
sandboxes.copies, sandboxes.guarded, sandboxes.host, sandboxes.isolated, sandboxes.programs, sandboxes.shared,
sessions, template, transfer, workspace
"""
