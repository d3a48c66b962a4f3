"""Your own environment: PYTHONPATH=examples turnwise train examples/own_environment.toml"""

from turnwise.core.seeds import rng
from turnwise.core.types import Scored, Task, ToolCall, text_message
from turnwise.environments.tool_environment import ToolEnvironment


class Vault(ToolEnvironment):
    """Opens if `search` is called with the letters that the prompt shows backwards."""

    async def setup(self, task: Task, seed: int):
        self.secret, self.open = task.payload["secret"], False
        return task.prompt, [self.search]

    def search(self, query: str) -> str:
        """Try letters on the vault.

        Args:
            query: The letters to try."""
        self.open = self.open or query == self.secret
        return "open" if self.open else "closed"

    async def score(self, replies, stop):
        return Scored(total=float(self.open))


class Guess:
    """The oracle knows the letters; any other policy tries them in either order."""

    def __init__(self, knows: bool) -> None:
        self.knows = knows

    def reply(self, task, messages, random):
        if messages[-1].role == "tool":
            return text_message("assistant", "<answer> done </answer>")
        letters = task.payload["secret"][:: 1 if self.knows or random.random() < 0.5 else -1]
        arguments = f'{{"query": "{letters}"}}'
        return text_message("assistant", "", tool_calls=(ToolCall(id="0", name="search", arguments=arguments),))


class VaultFamily:
    def __init__(self, letters=3, **limits):  # environment.args, limits of tools
        self.letters, self.limits = letters, limits

    def task(self, split, index):  # every fifth secret is held out: no task is in both splits
        random = rng("vault", split, index)
        draws = iter(lambda: " ".join(random.choices("abcdefgh", k=self.letters)), None)
        secret = next(each for each in draws if (sum(each.encode()) % 5 == 0) == (split == "heldout"))
        prompt = (text_message("user", f"Backwards: {secret[::-1]}."),)
        return Task(environment="vault", prompt=prompt, payload={"secret": secret})

    def build_environment(self, task):
        return Vault(**self.limits)

    def policy(self, name):
        return Guess(name == "oracle")

    def texts(self, count):
        return [f"{self.task('train', i).prompt[0].text} a b c d e f g h open closed done" for i in range(count)]
