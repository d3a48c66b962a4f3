"""How to reach a server: a command to run, or a URL. Environment variables are allowed by name, never inherited."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from turnwise.config.section import Section
from turnwise.core.errors import ConfigError

INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")
"""Environment variables that every server process receives."""
_REFERENCE = re.compile(r"\$\{(\w+)\}")
_ODD_REFERENCE = re.compile(r"\$\{(?!\w+\})[^}]*\}?")
"""Forms that other programs use, such as `${NAME:-default}` and `${env:NAME}`."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"(?:[!-~](?:[ \t!-~]*[!-~])?)?")


class McpServer(Section):
    """One server: exactly one of `command` and `url` is set."""

    command: str = ""
    """Program of a stdio server; "python" is the interpreter that runs Turnwise."""
    args: list[str] = Field(default_factory=list)
    """Arguments of the program."""
    cwd: str = ""
    """Working directory of the program; empty: that of Turnwise."""
    env: Mapping[str, str] = Field(default_factory=dict)
    """Environment variables of the program. `${NAME}` in a value is replaced by this process's variable of that
    name."""
    inherit: list[str] = Field(default_factory=list)
    """Names of this process's environment variables that the program receives in addition to `INHERITED`."""
    url: str = ""
    """Endpoint of a streamable HTTP server, such as `http://127.0.0.1:8000/mcp`."""
    headers: Mapping[str, str] = Field(default_factory=dict)
    """HTTP headers of every request. `${NAME}` is filled in as in `env`, so that a recipe contains no secret."""

    @model_validator(mode="after")
    def _check_target(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ConfigError(
                f"an MCP server needs either command or url; got command={self.command!r} and url={self.url!r}"
            )
        if "${" in self.url:
            raise ConfigError(
                f"url={self.url!r} of an MCP server contains a reference to a variable, which is only expanded in env "
                "and headers; write the address out"
            )
        if self.url and (urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).hostname):
            raise ConfigError(f"url={self.url!r} of an MCP server is not an HTTP address; use http://HOST:PORT/mcp")
        return self

    def find_program(self) -> str:
        """Return the absolute path of the program, found by the `PATH` that it will see. Raises ConfigError if there is
        no such program, or the working directory is missing."""
        if self.cwd and not Path(self.cwd).is_dir():
            raise ConfigError(f"cwd={self.cwd!r} of an MCP server is not a folder; name an existing one")
        if self.command == "python":
            return sys.executable
        # A path with a folder in it is relative to the server's working directory, as the program will see it.
        command = str(Path(self.cwd or ".", self.command).absolute()) if os.sep in self.command else self.command
        program = shutil.which(command, path=self.build_env().get("PATH"))
        if program is None:
            remedy = "put its arguments into args" if " " in self.command.strip() else "install it"
            raise ConfigError(f"command={self.command!r} of an MCP server is not an executable program; {remedy}")
        return program

    def build_env(self) -> dict[str, str]:
        """Build the environment of the program. Raises ConfigError for a variable that is not set."""
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        named = {name: _read_variable(name, "inherit") for name in self.inherit}
        return {**inherited, **named, **_fill_in(self.env, "env")}

    def build_headers(self) -> dict[str, str]:
        """Build the HTTP headers. Raises ConfigError for a variable that is not set, and for a value that HTTP cannot
        transmit; the error does not show the value, which may be a secret."""
        headers = _fill_in(self.headers, "headers")
        for name, value in headers.items():
            if not _HEADER_NAME.fullmatch(name):
                raise ConfigError(
                    f"headers of an MCP server has {name!r}, which is not a valid header name; correct it"
                )
            if not _HEADER_VALUE.fullmatch(value):
                what = "begins or ends with white space" if value != value.strip() else "is not printable ASCII"
                raise ConfigError(
                    f"headers.{name} of an MCP server {what}; check that its variables are set, to one line of ASCII"
                )
        return headers


def _fill_in(values: Mapping[str, str], where: str) -> dict[str, str]:
    for key, value in values.items():
        if odd := _ODD_REFERENCE.search(value):
            raise ConfigError(
                f"{where}.{key} of an MCP server contains {odd[0]!r}, which is not a reference to a variable; write "
                "${NAME}"
            )
    return {
        key: _REFERENCE.sub(lambda match: _read_variable(match[1], f"{where}.{key}"), value)  # noqa: B023
        for key, value in values.items()
    }


def _read_variable(name: str, where: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ConfigError(
            f"{where} of an MCP server refers to the environment variable {name}, which is not set; set it"
        )
    return value
