"""The run's own folder, and the sandbox its commands run in. What an agent names is opened here, and only here.

Others use: archive, changes, confined, containers.builder, containers.compose, containers.container,
containers.daemon, containers.engines, containers.images, containers.packages, sandboxes.base, sandboxes.bubblewrap,
sandboxes.bwrap, sandboxes.choice, sandboxes.host, sandboxes.isolated, sandboxes.programs, sessions, template,
workspace
"""
