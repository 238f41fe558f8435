"""The run's own folder, and the sandbox its commands run in. What an agent names is opened here, and only here.

Others use: archive, building.base, building.choice, by_command.client, changes, confined, containers.images,
docker.compose, docker.daemon, docker.images, docker.local_images, sandboxes.base, sandboxes.bubblewrap,
sandboxes.bwrap, sandboxes.choice, sandboxes.isolated, sandboxes.programs, sessions, template, workspace
"""
