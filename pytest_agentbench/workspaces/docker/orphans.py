"""What sessions that were killed left at the daemon: containers, networks and volumes, removed by the next session."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pytest_agentbench.workspaces.containers.labels import HOST, SESSION
from pytest_agentbench.workspaces.sessions import host_mark, session_is_dead

if TYPE_CHECKING:
    from docker import DockerClient

_logger = logging.getLogger(__name__)


def remove_orphans(client: DockerClient) -> None:
    """Removes what dead sessions of this user on this machine left. Nothing of others: their sessions may live."""
    _remove_all(client, {HOST: host_mark()}, _of_dead)


def remove_labelled(client: DockerClient, labels: Mapping[str, str]) -> None:
    """Removes all containers, networks and volumes that have the labels. Never raises."""
    try:
        _remove_all(client, labels, list)
    except Exception as error:  # noqa: BLE001 - what stays is the next session's orphan
        _logger.warning("docker: could not remove what was made for a run: %s", error)


def _remove_all(client: DockerClient, labels: Mapping[str, str], chosen: Callable[[Any], list[dict[str, Any]]]) -> None:
    api = client.api
    filters = {"label": [f"{name}={value}" for name, value in labels.items()]}
    for found in chosen(api.containers(all=True, filters=filters)):
        _remove(api.remove_container, found["Id"], v=True, force=True)
    for found in chosen(api.networks(filters=filters)):
        _remove(api.remove_network, found["Id"])
    for found in chosen(api.volumes(filters=filters)["Volumes"] or ()):
        _remove(api.remove_volume, found["Name"])


def remove_container(client: DockerClient, name: str) -> None:
    """Removes a container, and what runs in it. Never raises: one that stays is the next session's orphan."""
    _remove(client.api.remove_container, name, v=True, force=True)


def _of_dead(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in found if (folder := each["Labels"].get(SESSION)) and session_is_dead(folder)]


def _remove(function: Any, name: str, **options: Any) -> None:
    from docker.errors import APIError, DockerException, NotFound
    from requests import RequestException

    try:
        function(name, **options)
    except NotFound:
        return
    except APIError as error:
        if error.status_code == 409:  # another session, or the daemon itself, is about to
            return
        _logger.warning("docker: could not remove %s: %s", name, error.explanation)
    except (DockerException, RequestException) as error:
        _logger.warning("docker: could not remove %s: %s", name, error)
