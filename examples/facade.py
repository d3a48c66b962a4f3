"""An environment, a run and its tables in one script or notebook: python examples/facade.py

`python examples/facade.py 2` takes two RL steps and shows the calls; without a number it takes 60.
"""

import sys
from pathlib import Path
from typing import Any

from guess import GuessEnv

import turnwise as tw


def main(steps: int, **options: Any) -> None:
    recipe = Path(__file__).with_name("guess.toml")
    # A given class replaces the recipe's environment and its arguments.
    run = tw.train(GuessEnv, recipe=recipe, environment__args={"random_calls": 2}, train__steps=steps, **options)
    print(run)
    # Tables are pandas data frames where pandas is installed (pip install 'turnwise[frames]'), else lists.
    rows = run.trajectories(step=steps)
    best = max(rows.to_dict("records") if hasattr(rows, "to_dict") else rows, key=lambda row: row["reward"] or 0)
    print(f"{len(rows)} trajectories in step {steps}; one of the best:\n{best['transcript']}")
    group = tw.load_run(run.path).groups(steps)[0]
    print(f"the rewards of the first group: {group.rewards()}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 60)
