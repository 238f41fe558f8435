"""Grants of keys and programs: hosts that may get the values of variables, and programs that files may name."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field

from pytest_agentbench.config.base import ConfigFile
from pytest_agentbench.records.base import VariableName
from pytest_agentbench.records.case import McpServer

_ENGINE_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT"),
    *("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "DBUS_SESSION_BUS_ADDRESS"),
    *("DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"),
    *("CONTAINER_HOST", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "REGISTRY_AUTH_FILE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""Variables by which a container engine finds its daemon, its images and the network."""


def find_program_problem(command: str, folder: str, root: str | None) -> str | None:
    """Return why a file may not name this program, with a remedy, or None if it may.

    A name without a slash is looked up on this process's PATH when it is started. A path, relative to `folder`, must
    lead to a program on PATH, next to the running Python, or below `root`.
    """
    if os.sep not in command:
        return None
    path = os.path.join(folder, command)
    # The folder is resolved and the file is not: a link in the user's root may lead to a program anywhere.
    place = os.path.realpath(os.path.dirname(path))
    # Relative entries of PATH do not count: in a guest's folder they would lead to the guest's programs.
    installed = [entry for entry in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(entry)]
    if place in {os.path.realpath(each) for each in (*installed, os.path.dirname(sys.executable))}:
        return None
    if root is not None and f"{place}{os.sep}".startswith(f"{os.path.realpath(root).rstrip(os.sep)}{os.sep}"):
        return None
    expected, remedy = "the name of an installed program", "Put its folder on PATH"
    if root is not None:
        expected += f", or the path of one below {root}"
        remedy += ", or the program into that folder"
    return f"found {command!r}, expected {expected}: nothing is started. {remedy}"


def engine_environment() -> dict[str, str]:
    """Return the environment, without keys, of a container engine that a file names."""
    return {name: os.environ[name] for name in _ENGINE_VARIABLES if name in os.environ}


# Hosts that may get the value of a variable: keys belong to hosts. A model's key goes to the hosts of its
# provider (`PROVIDERS`), to the host in the user's own variable (`URL_VARIABLES`), and to the host in the
# same entry of the session's root. Other hosts need a `keys.yaml`: in the session's root, or in the user's
# own configuration folder, which covers guests too.


KEYS_FILE = "keys.yaml"

PROVIDERS: Mapping[str, tuple[str, ...]] = {
    "ANTHROPIC_API_KEY": ("api.anthropic.com",),
    "ARK_API_KEY": ("ark.*.volces.com", "ark.*.bytepluses.com"),
    "AWS_BEARER_TOKEN_BEDROCK": ("bedrock-runtime.*.amazonaws.com",),
    "AZURE_OPENAI_API_KEY": ("*.openai.azure.com", "*.services.ai.azure.com", "*.cognitiveservices.azure.com"),
    "CEREBRAS_API_KEY": ("api.cerebras.ai",),
    "COHERE_API_KEY": ("api.cohere.com", "api.cohere.ai"),
    "CO_API_KEY": ("api.cohere.com", "api.cohere.ai"),
    "DASHSCOPE_API_KEY": ("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "dashscope-us.aliyuncs.com"),
    "DEEPINFRA_API_KEY": ("api.deepinfra.com",),
    "DEEPSEEK_API_KEY": ("api.deepseek.com",),
    "FIREWORKS_API_KEY": ("api.fireworks.ai",),
    "GEMINI_API_KEY": ("generativelanguage.googleapis.com",),
    "GH_TOKEN": ("models.github.ai",),
    "GITHUB_TOKEN": ("models.github.ai",),
    "GOOGLE_API_KEY": ("generativelanguage.googleapis.com", "aiplatform.googleapis.com"),
    "GROQ_API_KEY": ("api.groq.com",),
    "HF_TOKEN": ("router.huggingface.co",),
    "MINIMAX_API_KEY": ("api.minimax.io", "api.minimaxi.com"),
    "MISTRAL_API_KEY": ("api.mistral.ai", "codestral.mistral.ai"),
    "MOONSHOT_API_KEY": ("api.moonshot.ai", "api.moonshot.cn"),
    "NVIDIA_API_KEY": ("integrate.api.nvidia.com",),
    "OPENAI_API_KEY": ("api.openai.com", "*.api.openai.com"),
    "OPENROUTER_API_KEY": ("openrouter.ai",),
    "PERPLEXITY_API_KEY": ("api.perplexity.ai",),
    "SAMBANOVA_API_KEY": ("api.sambanova.ai",),
    "SILICONFLOW_API_KEY": ("api.siliconflow.cn", "api.siliconflow.com"),
    "TOGETHER_API_KEY": ("api.together.xyz", "api.together.ai"),
    "XAI_API_KEY": ("api.x.ai", "*.api.x.ai"),
    "ZAI_API_KEY": ("api.z.ai", "open.bigmodel.cn"),
    "ZHIPUAI_API_KEY": ("open.bigmodel.cn",),
}
"""The hosts of each provider's key. `*` is one part of a name, with which only the provider itself begins one."""

URL_VARIABLES: Mapping[str, str] = {
    "ANTHROPIC_API_KEY": "ANTHROPIC_BASE_URL",
    "AZURE_OPENAI_API_KEY": "AZURE_OPENAI_ENDPOINT",
    "OPENAI_API_KEY": "OPENAI_BASE_URL",
}
"""Variables of the user's environment that name the host of a key."""

_OTHER_VARIABLES = re.compile(
    "HOME|PATH|USER|USERNAME|LOGNAME|SHELL|PWD|OLDPWD|HOSTNAME|MAIL|TERM|TMPDIR|LANG|EDITOR|DISPLAY|"
    "(LD|DYLD|LC|XDG|PYTHON|PYTEST|AGENTBENCH|AWS|AZURE_CLIENT|AZURE_STORAGE|GOOGLE_APPLICATION|GCP|GCLOUD|KUBE|SSH|GPG|"
    "GIT|GITHUB|GH|GITLAB|CI|ACTIONS|BITBUCKET|JENKINS|BUILDKITE|CIRCLE|TRAVIS|NPM|NODE|YARN|PYPI|PIP|UV|TWINE|POETRY|"
    "CARGO|DOCKER|REGISTRY|VAULT|CONSUL|TF|TERRAFORM|DATABASE|DB|PG|POSTGRES|POSTGRESQL|MYSQL|MARIADB|REDIS|MONGO|"
    "MONGODB|SQL|SMTP|LDAP|SLACK|STRIPE|TWILIO|SENDGRID|SENTRY|DATADOG|DD|CLOUDFLARE|DIGITALOCEAN|HEROKU)"
    "(_.*|[A-Z]*(HOST|PASSWORD|CONFIG|USER|PATH|HOME))?"
)
_PART = re.compile(r"[a-z0-9_-]+|\*")


def _check_host(text: str) -> str:
    name = text.lower().rstrip(".")
    if not all(_PART.fullmatch(part) for part in name.split(".")) and not _is_address(name):
        raise ValueError(f"found {text!r}, expected a host such as api.example.org or *.example.org, no URL")
    return name


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def _check_command_line(text: str) -> str:
    try:
        if shlex.split(text):
            return text
    except ValueError:
        pass
    raise ValueError(f"found {text!r}, expected how the command of a server begins, as a shell reads it")


class KeysFile(ConfigFile):
    """Grants: variables of the environment and the hosts they may go to, beyond single entries of models.yaml.

    In the session's root, or in the user's own configuration folder. A guest's file is ignored.
    """

    hosts: dict[Annotated[str, AfterValidator(_check_host)], tuple[VariableName, ...]] = Field(default_factory=dict)
    """Variables whose values a host may get, as a model's key or in `headers` of an MCP server; `*` is one part."""
    programs: dict[Annotated[str, AfterValidator(_check_command_line)], tuple[VariableName, ...]] = Field(
        default_factory=dict
    )
    """Variables that a program may get by `env_from`. It is named by the words that its command begins with."""


@dataclass(frozen=True, slots=True)
class KeyGrants:
    """The grants of all valid keys.yaml files together. `place` is the file to which a user would add more."""

    files: tuple[KeysFile, ...] = ()
    place: str = KEYS_FILE

    def host(self, variable: str, host: str) -> bool:
        """Return whether the host may get the variable's value."""
        named = (pattern for file in self.files for pattern, names in file.hosts.items() if variable in names)
        return _matches(host, named)

    def program(self, variable: str, command: Sequence[str]) -> bool:
        """Return whether a program that is started by these words may get the variable."""
        for file in self.files:
            for text, names in file.programs.items():
                words = shlex.split(text)
                if variable in names and list(command[: len(words)]) == words:
                    return True
        return False


def find_key_problem(
    variable: str, url: str, grants: KeyGrants, *, written: bool, environ: Mapping[str, str] = os.environ
) -> str | None:
    """Return why a model's key may not go to a URL, with a remedy, or None if it may.

    `written`: the session's root has both in one entry.
    """
    address = urlsplit(url)
    host = (address.hostname or "").rstrip(".")
    # First, because neither a provider's host nor a grant permits a key in plain text.
    if problem := find_plaintext_problem(url):
        return f"{problem} `api_key_env: none` is for an endpoint without keys."
    own = PROVIDERS.get(variable, ())
    if _matches(host, own) or _is_named_by(address, environ.get(URL_VARIABLES.get(variable, ""), "")):
        return None
    if grants.host(variable, host):
        return None
    grant = f"`hosts: {{{host}: [{variable}]}}` in {grants.place}"
    if not own and _OTHER_VARIABLES.fullmatch(variable):
        return (
            f"found {variable}, which is no model's key, expected the variable of one; if {host} needs it "
            f"anyway, allow it by {grant}"
        )
    if written:
        return None
    belongs = f"belongs to {', '.join(own)}" if own else "belongs to no known host"
    return (
        f"the key in {variable} would go to {host}, and it {belongs}: nothing is sent. Write both `base_url` and "
        f"`api_key_env` into this entry of the session's root (`api_key_env: none` for an endpoint without keys), or "
        f"allow it by {grant}"
    )


def find_server_problem(server: McpServer, grants: KeyGrants, *, written: bool) -> str | None:
    """Return why an MCP server may not have the variables of its declaration, with a remedy, or None if it may.

    `written`: the session's root declares the server, so the user did. A case or dataset may come from another author
    and needs a grant in keys.yaml for each variable.
    """
    host = urlsplit(server.url or "").hostname or ""
    for variable in server.header_variables:
        if problem := find_plaintext_problem(server.url or ""):
            return f"headers: {variable}: {problem}"
        if not written and not grants.host(variable, host):
            what = f"headers: the value of {variable} would go to {host}"
            return _describe_ungranted(what, f"hosts: {{{host}: [{variable}]}}", grants)
    command = [server.command or "", *server.args]
    for variable in server.env_from:
        if not written and (server.env or server.cwd is not None):  # any program can be made to run code by these
            return f"env_from: found {variable} together with `env` or `cwd`, which files of cases may not combine"
        if not written and not grants.program(variable, command):
            what = f"env_from: the program {command[0]} would get {variable}"
            return _describe_ungranted(what, f"programs: {{{json.dumps(shlex.join(command))}: [{variable}]}}", grants)
    return None


def _describe_ungranted(what: str, grant: str, grants: KeyGrants) -> str:
    return (
        f"{what}, but files of cases may not pass variables on: nothing is sent or started. Declare the server in the "
        "servers.yaml of the session's root or in the run profile, and name it in the case; or write "
        f"`{grant}` into {grants.place}"
    )


def find_plaintext_problem(url: str) -> str | None:
    """Return why no key is sent to a URL: it would travel as plain text to another machine. None if it would not."""
    address = urlsplit(url)
    if address.scheme.lower() == "https" or is_loopback(address.hostname or ""):
        return None
    return (
        f"found {address.scheme}://{address.hostname}, where everyone on the network path could read the key: "
        "expected https:// (plain http only to this machine itself)."
    )


def is_loopback(host: str) -> bool:
    """Return whether the name or address is this machine's own."""
    if host.lower().rstrip(".") == "localhost":
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback


def _is_named_by(address: SplitResult, url: str) -> bool:
    """Return whether the user's own variable names this host and port."""
    try:
        named = urlsplit(url.strip())
        # The port too: on a shared machine another port may be another user's server.
        same = (named.scheme.lower(), named.hostname, named.port) == (
            address.scheme.lower(),
            address.hostname,
            address.port,
        )
    except ValueError:
        return False
    return same and named.hostname is not None


def _matches(host: str, patterns: Iterable[str]) -> bool:
    parts = host.lower().split(".")
    return any(
        # Part by part: a plain glob `*.example.org` would also take hosts of any depth below it.
        len(wanted := pattern.split(".")) == len(parts)
        and all(want in ("*", part) for want, part in zip(wanted, parts, strict=True))
        for pattern in patterns
    )
