"""Your own environment: a tool the agent may call, a state, and a score computed from the state.

    turnwise train examples/own_environment.toml
"""

from random import Random

from turnwise.core.seeds import rng
from turnwise.core.types import Message, Scored, Task, ToolCall, text_message
from turnwise.environments.tool_environment import ToolEnvironment


class Vault(ToolEnvironment):
    """A vault opens when `search` is called with the word the prompt spells backwards."""

    async def setup(self, task: Task, seed: int):
        self.secret, self.open = task.payload["secret"], False
        return task.prompt, [self.search]

    def search(self, query: str) -> str:
        """Try a word on the vault.

        Args:
            query: The word to try.
        """
        self.open = self.open or query == self.secret
        return "open" if self.open else "closed"

    async def score(self, replies, stop):
        return Scored(total=float(self.open))


class Guess:
    """Plays the task; with `knows` it is the oracle, without it tries a letter order at random."""

    def __init__(self, knows: bool) -> None:
        self.knows = knows

    def reply(self, task: Task, messages: list[Message], random: Random) -> Message:
        if messages[-1].role == "tool":
            return text_message("assistant", "<answer> done </answer>")
        letters = task.payload["secret"].split()
        word = letters if self.knows else random.choice([letters, letters[::-1]])
        return text_message("assistant", "", tool_calls=(ToolCall(id="0", name="search", arguments=f'{{"query": "{" ".join(word)}"}}'),))


class VaultFamily:
    """Implements `EnvironmentFamily`: tasks, environments, scripted policies, texts for a tokenizer."""

    def __init__(self, letters: int = 3, **limits: object) -> None:
        self.letters, self.limits = letters, limits

    def task(self, split, index):
        secret = rng("vault", split, index).choices("abcdefgh", k=self.letters)
        prompt = text_message("user", f"The word is {' '.join(reversed(secret))} backwards.")
        return Task(environment="vault", prompt=(prompt,), payload={"secret": " ".join(secret)})

    def build_environment(self):
        return Vault(**self.limits)

    def policy(self, name):
        return Guess(knows=name == "oracle")

    def texts(self, count):
        return [f"{self.task('train', i).prompt[0].text} a b c d e f g h open closed done" for i in range(count)]
