"""Packages that may be missing: Turnwise's other distributions, by what they offer, and those that environments need.

An error about a missing one says what to install."""

from __future__ import annotations

import importlib.metadata
import re

from turnwise.core.errors import ConfigError

OFFERED: dict[str, dict[str, tuple[str, ...]]] = {
    "turnwise-swe": {
        "turnwise.environments": ("swe",),
        "turnwise.commands": ("bugs", "repos", "swe"),
        "turnwise.task_formats": ("harbor",),
        "turnwise.recipes": ("swe",),
    },
    "turnwise-worlds": {
        "turnwise.environments": (
            "coding",
            "coq",
            "debate",
            "delegate",
            "devices",
            "games",
            "house",
            "lean",
            "memory",
            "miniwob",
            "pages",
            "plan",
            "program_proposer",
            "proofs",
            "push",
            "relay",
            "repair",
            "retry",
            "revise",
            "screens",
            "search_proposer",
            "tool_calls",
            "web",
        ),
        "turnwise.commands": ("exploitability", "search"),
        "turnwise.recipes": (
            "deepcoder",
            "delegate",
            "games",
            "houses",
            "memory",
            "planning",
            "proofs",
            "proposer",
            "push",
            "reflection",
            "repair",
            "seeing",
            "teams",
            "toolrl",
            "web",
        ),
    },
    "turnwise-adapters": {
        "turnwise.environments": (
            "alfworld",
            "crafter",
            "gymnasium",
            "minigrid",
            "open_spiel",
            "openenv",
            "pettingzoo",
            "reasoning_gym",
            "scienceworld",
            "textworld",
            "verifiers",
            "verl_tool",
        ),
        "turnwise.commands": ("tools",),
        "turnwise.recipes": ("adapters", "text_worlds"),
    },
    "turnwise-rewards": {
        "turnwise.environments": ("planted", "report"),
        "turnwise.rewards": (
            "calibration",
            "call_format",
            "cluster_entropy",
            "coin",
            "counterfactual",
            "curiosity",
            "entropy",
            "grounding",
            "majority",
            "plan_consistency",
            "progress",
            "ranking",
            "redundancy",
            "reward_model",
            "self_certainty",
            "self_consistency",
            "tool_success",
            "usefulness",
        ),
        "turnwise.annotators": ("reward_model", "step_judge"),
        "turnwise.commands": ("reward-model", "rewards"),
        "turnwise.recipes": ("grounding", "redteam", "reward_models", "shaping", "unlabelled"),
    },
    "turnwise-synthesis": {
        "turnwise.environments": ("browsecomp", "expander", "near_failures", "research"),
        "turnwise.commands": ("failures", "questions", "research", "synthesize"),
        "turnwise.recipes": ("browsecomp", "pretraining", "research"),
    },
}
"""Names by entry-point group by package; those of `turnwise.recipes` are the folders of the recipes."""


def describe_home(group: str, name: str) -> str:
    """Say which of Turnwise's packages has a name that no installed package offers, and how to install it; "" if none
    has it."""
    from turnwise import __version__

    for package, groups in OFFERED.items():
        if name in groups.get(group, ()):
            version = find_version(package)
            if not version:
                return f"is in {package}: pip install {package}"
            if version != __version__:
                return f"is in {package} {__version__}; {version} is installed: pip install {package}=={__version__}"
    return ""


def find_version(package: str) -> str:
    """The installed version of a package; "" if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def require_package(package: str, minimum: str, extra: str) -> str:
    """Return the installed version of a distribution. Raises ConfigError with the remedy if it is missing or too
    old."""
    remedy = f"install it with: pip install 'turnwise[{extra}]'"
    if not (installed := find_version(package)):
        raise ConfigError(f"this environment needs the package {package} >= {minimum}; {remedy}")
    if _numbers(installed) < _numbers(minimum):
        raise ConfigError(f"{package} {installed} is too old; this environment needs {minimum} or newer; {remedy}")
    return installed


def _numbers(release: str) -> tuple[int, ...]:
    """Return the leading numbers of a release, `(1, 10)` for "1.10rc1", which suffice for a lower bound."""
    return tuple(map(int, re.findall(r"\d+", re.split(r"[a-z+]", release)[0])))
