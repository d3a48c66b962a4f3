"""The table of credit methods, and the function that builds a checked credit function from a name and options.

Each method's file defines its row; this table lists the rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnwise.algorithms.advantages.gae import GAE
from turnwise.algorithms.advantages.gdpo import GDPO
from turnwise.algorithms.advantages.grpo import DR_GRPO, GRPO
from turnwise.algorithms.advantages.learning_progress import LEARNING_PROGRESS
from turnwise.algorithms.advantages.max_rl import MAX_RL
from turnwise.algorithms.advantages.opo import OPO
from turnwise.algorithms.advantages.otb import OTB
from turnwise.algorithms.advantages.pass_at_k import PASS_AT_K
from turnwise.algorithms.advantages.rae import RAE
from turnwise.algorithms.advantages.reinforce import REINFORCE, REINFORCE_PLUS_PLUS, REINFORCE_PLUS_PLUS_BASELINE
from turnwise.algorithms.advantages.remax import REMAX
from turnwise.algorithms.advantages.rloo import RLOO
from turnwise.algorithms.advantages.turn_gae import BILEVEL_GAE, TURN_GAE
from turnwise.algorithms.credit import CreditMethod
from turnwise.algorithms.credit_checks import CheckedCredit
from turnwise.algorithms.names import collect_rows, describe_unknown_option, find_row
from turnwise.algorithms.turns.branching import ARPO
from turnwise.algorithms.turns.discount import TURN_DISCOUNT
from turnwise.algorithms.turns.gigpo import GIGPO
from turnwise.algorithms.turns.igpo import IGPO
from turnwise.algorithms.turns.multi_turn_grpo import MULTI_TURN_GRPO
from turnwise.algorithms.turns.potential import POTENTIAL
from turnwise.algorithms.turns.prime import PRIME
from turnwise.algorithms.turns.process_scores import PROCESS_SCORES
from turnwise.algorithms.turns.schedule import SCHEDULED_MIX
from turnwise.algorithms.turns.spa import SPA
from turnwise.algorithms.turns.tree import TREE
from turnwise.algorithms.turns.vine import VINE
from turnwise.algorithms.vspo import VSPO

TRAJECTORY_METHODS: dict[str, CreditMethod] = collect_rows(
    (
        REINFORCE,
        REINFORCE_PLUS_PLUS,
        REINFORCE_PLUS_PLUS_BASELINE,
        GRPO,
        DR_GRPO,
        RLOO,
        OPO,
        OTB,
        REMAX,
        MAX_RL,
        GDPO,
        PASS_AT_K,
        RAE,
        LEARNING_PROGRESS,
        GAE,
        TURN_GAE,
        BILEVEL_GAE,
    )
)
"""Methods that credit whole trajectories, and those that learn a critic."""

TURN_METHODS: dict[str, CreditMethod] = collect_rows(
    (
        MULTI_TURN_GRPO,
        GIGPO,
        TREE,
        VINE,
        IGPO,
        SPA,
        PRIME,
        PROCESS_SCORES,
        POTENTIAL,
        TURN_DISCOUNT,
        ARPO,
        SCHEDULED_MIX,
        VSPO,
    )
)
"""Step- and turn-level methods, and those that combine comparisons."""

CREDIT_METHODS: dict[str, CreditMethod] = collect_rows((*TRAJECTORY_METHODS.values(), *TURN_METHODS.values()))
"""Every credit method by name."""


def build_credit(name: str, options: Mapping[str, object] | None = None) -> CheckedCredit:
    """Build the credit method with that name or alias, with `options` overriding its defaults; it checks its input.

    Build it once per run: `rae` keeps its baselines (`CheckedCredit.state_dict`).

    Raises ValueError when the name or an option is unknown (with the nearest and all known ones) or the method refuses
    an option's value. `CheckedCredit` lists what the function itself raises.
    """
    return build_credit_row(find_row("credit method", name, CREDIT_METHODS), options)


def build_credit_row(method: CreditMethod, options: Mapping[str, object] | None = None) -> CheckedCredit:
    """As `build_credit`, for a row that need not be in the table."""
    for option in options or {}:
        if option not in method.defaults:
            raise ValueError(describe_unknown_option(f"credit method {method.name!r}", option, method.defaults))
    return CheckedCredit(method=method, function=method.build(**{**method.defaults, **(options or {})}))
