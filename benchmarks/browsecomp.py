"""Trains `browsecomp/tiny` over three seeds beside a reward that is a coin; its controls measure fewer searches.

    python benchmarks/browsecomp.py train [--seeds 0 1 2]
    python benchmarks/browsecomp.py table runs/browsecomp/*

Success against votes, confidence and the random control, from 16 samples of each held-out question:

    turnwise evaluate RUN --tasks 200 --samples 16 --temperature 1
    turnwise questions effort RUN"""

from __future__ import annotations

from pathlib import Path

from arms import Arm, run_arms

RECIPE = "browsecomp/tiny"
ARMS = (
    Arm(name="tiny", recipes=(RECIPE,)),
    Arm(name="random_reward", recipes=(RECIPE,), overrides=("rewards.control.kind=coin",)),
)

if __name__ == "__main__":
    run_arms(ARMS, output=Path("runs/browsecomp"), description=__doc__)
