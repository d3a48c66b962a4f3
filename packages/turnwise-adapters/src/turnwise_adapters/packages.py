"""Checks that an optional package is installed and new enough."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from turnwise.core.errors import ConfigError


def require_package(package: str, minimum: str, extra: str) -> str:
    """Return the installed version of a distribution. Raises ConfigError with the remedy if it is missing or too
    old."""
    remedy = f"install it with: pip install 'turnwise[{extra}]'"
    try:
        installed = version(package)
    except PackageNotFoundError:
        raise ConfigError(f"this environment needs the package {package} >= {minimum}; {remedy}") from None
    if _numbers(installed) < _numbers(minimum):
        raise ConfigError(f"{package} {installed} is too old; this environment needs {minimum} or newer; {remedy}")
    return installed


def _numbers(release: str) -> tuple[int, ...]:
    """Return the leading numbers of a release, `(1, 10)` for "1.10rc1", which suffice for a lower bound."""
    return tuple(map(int, re.findall(r"\d+", re.split(r"[a-z+]", release)[0])))
