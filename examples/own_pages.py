"""A tool with long results, read page by page: PYTHONPATH=examples turnwise train examples/own_pages.toml"""

from random import Random
from textwrap import wrap

SHOWN = 60
"""Characters of a page. A result longer than `environment.max_observation_chars` would be cut without a way back."""
WORDS = ("rain", "wind", "snow", "sun")


class Library:
    """The code stands on the last page of one of two letters."""

    def reset(self, seed: int) -> str:
        random = Random(seed)
        self.code, self.home = str(random.randint(10, 99)), random.choice("AB")
        text = " ".join(random.choices(WORDS, k=20))
        letters = {"A": text, "B": text, self.home: f"{text} the code is {self.code}"}
        self.letters = {name: wrap(written, SHOWN) for name, written in letters.items()}
        self.page, self.right = 0, False
        return f"Which code has letter {self.home} ?"

    def read(self, letter: str, page: int) -> str:
        """Read a page of a letter.

        Args:
            letter: A or B.
            page: The page, from 1.
        """
        if letter not in self.letters:
            raise ValueError(f"there is no letter {letter}; read A or B")  # told to the model
        pages = self.letters[letter]
        if not 1 <= page <= len(pages):
            raise ValueError(f"page {page} does not exist; read 1 to {len(pages)}")
        self.page = page if letter == self.home else self.page
        return f"page {page} of {len(pages)}: {pages[page - 1]}"

    def answer(self, code: int) -> str:
        """Give the code, which ends the episode.

        Args:
            code: The code.
        """
        self.right, self.done = str(code) == self.code, True
        return "right" if self.right else "wrong"

    def get_reward(self) -> dict[str, float]:
        return {"reward": float(self.right), "success": float(self.right), "last_page": float(self.page)}

    def _oracle(self) -> tuple[str, dict[str, object]]:
        if self.page == len(self.letters[self.home]):
            return "answer", {"code": int(self.code)}
        return "read", {"letter": self.home, "page": self.page + 1}
