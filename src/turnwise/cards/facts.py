"""What a card depends on besides code: the part of the recipe that decides what is evaluated and how."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

METHOD = 1
"""Version of the measurement. A card that was made by another one is out of date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A recipe as its card sees it."""

    recipe: str
    """Its short name, or its file."""
    ability: str
    """What success shows, in the words of whoever wrote the recipe; empty if nobody said."""
    number: str
    """The one number that is reported: "success", "reward" or a part of the reward."""
    environment: Mapping[str, Any]
    """Names and arguments of the environments."""
    heldout_tasks: int
    """Number of held-out tasks that an evaluation asks for."""
    samples: int
    """Attempts at each."""
    group_size: int
    """Attempts that credit compares with each other."""
    max_turns: int
    """Replies of a conversation after which an episode ends."""
    warm_up_tasks: int
    """Number of training tasks that the warm-up demonstrates, from the first on."""
    rl_tasks: int
    """Number of training tasks that RL draws, after those."""
    demonstrator: str
    """The family's policy that demonstrates; empty without a warm-up of demonstrations."""
    judges: tuple[str, ...]
    """Names and kinds of the judges that score."""
    roles: Mapping[str, str]
    """Policies by role, as the recipe binds them."""
    terms: tuple[str, ...]
    """Kinds of the rewards that train instead of, or with, the environment's own."""
    files: Mapping[str, str]
    """Digests of the recipe's data files, by name."""

    def compute_digest(self) -> str:
        """Return 16 hexadecimal digits that change with any of it, or with the method."""
        content = json.dumps([METHOD, asdict(self)], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(content.encode()).hexdigest()[:16]
