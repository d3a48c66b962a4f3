"""A plain class as an environment: PYTHONPATH=examples turnwise train examples/guess.toml"""

from random import Random


class GuessEnv:
    def reset(self, seed: int) -> str:
        self.secret, self.tries, self.right = Random(seed).randint(1, 3), 0, False
        return "Guess my number from 1 to 3."

    def guess(self, number: int) -> str:
        """Guess the number.

        Args:
            number: The guess.
        """
        self.tries, self.right = self.tries + 1, number == self.secret
        self.done = self.right or self.tries == 2
        return "higher" if number < self.secret else "lower"

    def get_reward(self) -> float:
        return float(self.right)
