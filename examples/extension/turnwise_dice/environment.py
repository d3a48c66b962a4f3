"""Two dice are rolled, and the model calls their total."""

from random import Random


class Dice:
    """Public methods are tools. A fresh object plays every episode."""

    def reset(self, seed: int) -> str:
        """Roll the dice. Returns the first text that the model reads."""
        random = Random(seed)
        self.rolled = [random.randint(1, 6), random.randint(1, 6)]
        self.right = self.done = False
        return f"The dice show {self.rolled[0]} and {self.rolled[1]}. Call their total."

    def call(self, total: int) -> str:
        """Call the total, which ends the episode.

        Args:
            total: The total of both dice.
        """
        self.right, self.done = total == sum(self.rolled), True
        return "right" if self.right else "wrong"

    def get_reward(self) -> dict[str, float]:
        """The reward, and the part that evaluations count."""
        return {"reward": float(self.right), "success": float(self.right)}

    def _oracle(self) -> tuple[str, dict[str, int]]:
        """The right call for the oracle."""
        return "call", {"total": sum(self.rolled)}
