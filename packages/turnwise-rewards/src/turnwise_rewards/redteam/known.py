"""Holes that are known and stay, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from turnwise_rewards.redteam.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownHole:
    """Attacks that get more from an environment's reward than their true success is worth, and why that stays."""

    environment: str
    attacks: tuple[str, ...]
    reason: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments with which it is there; empty for any."""
    roles: tuple[str, ...] = ("",)
    """Roles in which it is there; "" for every role."""


KNOWN: tuple[KnownHole, ...] = ()


def list_holes(target: Target) -> dict[tuple[str, str], str]:
    """Return the known holes of a target: the reason by attack and role."""
    return {
        (attack, role): known.reason
        for known in KNOWN
        if known.environment in target.environments
        if all(target.arguments.get(name) == value for name, value in known.arguments.items())
        for attack in known.attacks
        for role in known.roles
    }
