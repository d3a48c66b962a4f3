"""`turnwise rewards`: the group of the package's commands, one module each."""

from __future__ import annotations

import typer

from turnwise_rewards.commands.calibration import calibration
from turnwise_rewards.commands.check import check
from turnwise_rewards.commands.explain import explain

rewards = typer.Typer(
    help="Look into rewards: what each part gave, what can be gamed, what a confidence is worth.", no_args_is_help=True
)
rewards.command("explain")(explain)
rewards.command("calibration")(calibration)
rewards.command("check")(check)
