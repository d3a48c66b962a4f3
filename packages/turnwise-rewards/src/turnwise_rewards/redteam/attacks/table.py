"""Every scripted attack."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from turnwise.core.errors import ConfigError
from turnwise_rewards.redteam.attack import Attack
from turnwise_rewards.redteam.attacks.answers import ANSWERS
from turnwise_rewards.redteam.attacks.conduct import CONDUCT
from turnwise_rewards.redteam.attacks.judges import JUDGES
from turnwise_rewards.redteam.attacks.programs import PROGRAMS

ATTACKS: tuple[Attack, ...] = (*ANSWERS, *CONDUCT, *JUDGES, *PROGRAMS)


def choose_attacks(names: Sequence[str]) -> tuple[Attack, ...]:
    """Return the attacks of these names; all for none. Raises ConfigError for an unknown name."""
    by_name = {attack.name: attack for attack in ATTACKS}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        near = difflib.get_close_matches(unknown[0], list(by_name), n=1, cutoff=0.0)[0]
        raise ConfigError(f"--attack {unknown[0]!r} is unknown; did you mean {near!r}?")
    return tuple(by_name[name] for name in names) or ATTACKS
