"""Which images the daemon has, without pulling any."""

from __future__ import annotations

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.docker.daemon import Daemon


def has_image(name: str) -> bool:
    """Whether an image of that name is on this machine. Raises SandboxError where the daemon does not say."""
    from docker.errors import DockerException, ImageNotFound
    from requests import RequestException

    daemon = Daemon()
    try:
        daemon.client.images.get(name)
    except ImageNotFound:
        return False
    except (DockerException, RequestException) as error:
        raise SandboxError(f"docker: {error}") from error
    finally:
        daemon.close()
    return True
