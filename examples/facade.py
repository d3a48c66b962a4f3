"""An environment, a run and its tables in one script or notebook: python examples/facade.py

`python examples/facade.py 2` takes two RL steps and shows the calls; without a number it takes 60.
"""

import sys
from random import Random
from typing import Any

import turnwise as tw


class GuessEnv:
    """A plain class: `reset` opens an episode, public methods are tools, `get_reward` judges."""

    def reset(self, seed: int) -> str:
        self.secret, self.tries, self.right, self.done = Random(seed).randint(1, 15), 0, False, False
        return "Guess my number from 1 to 15."

    def guess(self, number: int) -> str:
        """Guess the number.

        Args:
            number: The guess.
        """
        self.tries, self.right = self.tries + 1, number == self.secret
        self.done = self.right or self.tries == 4
        return "higher" if number < self.secret else "lower"

    def get_reward(self) -> float:
        return float(self.right)


def main(steps: int, **options: Any) -> None:
    run = tw.train(
        GuessEnv,
        recipe={"renderer": {"kind": "calls"}, "sft": {"steps": 100}},
        environment__args={"random_calls": 4},
        rollout={"max_turns": 5, "max_turn_tokens": 12, "max_tokens": 128},
        train__steps=steps,
        **options,
    )
    print(run)
    # Tables are pandas data frames where pandas is installed (pip install 'turnwise[frames]'), else lists.
    rows = run.trajectories(step=steps)
    best = max(rows.to_dict("records") if hasattr(rows, "to_dict") else rows, key=lambda row: row["reward"] or 0)
    print(f"{len(rows)} trajectories in step {steps}; one of the best:\n{best['transcript']}")
    group = tw.load_run(run.path).groups(steps)[0]
    print(f"the rewards of the first group: {group.rewards()}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 60)
