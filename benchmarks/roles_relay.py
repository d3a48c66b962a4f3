"""Two roles and one word, as a Turnwise environment family: `environment.name = "roles_relay:Relay"`, with this folder
on PYTHONPATH.

The teller sees a word and says one; the hearer sees what the teller said and says one. Both are rewarded if the last
word equals the first. The prompts only state the format, so that reinforcement learning has to find both parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from turnwise.core.episodes import Ask, Asked, EpisodeEnd, EpisodeSpec, RoleSpec
from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Reward, RewardPart, Scored, Task, text_message
from turnwise.environments.arguments import check_index, choose_policy
from turnwise.rewards.answers import extract_answer

WORDS = ("red", "blue", "green", "gold")
TELLER, HEARER = "teller", "hearer"


class RelayEnvironment:
    """One word to be told and heard. Implements `AskingEnvironment`."""

    spec = EpisodeSpec(roles=(RoleSpec(name=TELLER), RoleSpec(name=HEARER)), max_replies=2, can_replay=True)

    async def begin(self, task: Task, seed: int) -> Asked:
        """The teller speaks first."""
        self._word = str(task.payload["word"])
        return Asked(asks=(Ask(role=TELLER, conversation=TELLER, messages=task.prompt),))

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """The hearer reads what was told, and nothing else."""
        if conversation == HEARER:
            return Asked(asks=())
        return Asked(asks=(Ask(role=HEARER, conversation=HEARER, messages=_show("told", _read(reply))),))

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """1 for both roles if the word arrived, else 0."""
        said = replies.get(HEARER, ())
        success = float(bool(said) and _read(said[-1]) == self._word)
        return dict.fromkeys(
            (TELLER, HEARER), Scored(total=success, parts=(RewardPart(name="success", value=success),))
        )

    async def close(self) -> None:
        """Nothing to free."""


class Echo:
    """Says the word it sees with this probability, else a random one. Implements `ScriptedPolicy`."""

    def __init__(self, share: float) -> None:
        self._share = share

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """The word in answer tags."""
        seen = messages[-1].text.split()[-1]
        word = seen if seen in WORDS and rng.random() < self._share else rng.choice(WORDS)
        return text_message("assistant", f"<answer> {word} </answer>")


class Relay:
    """Implements `EnvironmentFamily`; it takes no arguments."""

    def task(self, split: Split, index: int) -> Task:
        """One task: a word."""
        check_index(split, index)
        word = rng("relay", split, index).choice(WORDS)
        return Task(environment="relay", prompt=_show("word", word), payload={"word": word, "index": index})

    def build_environment(self, task: Task) -> RelayEnvironment:
        """A fresh, single-use environment."""
        return RelayEnvironment()

    def policy(self, name: str) -> ScriptedPolicy:
        """ "oracle" echoes, "naive" echoes three times in ten, "random" says any word."""
        return choose_policy(name, {"oracle": Echo(1.0), "naive": Echo(0.3), "random": Echo(0.0)})

    def texts(self, count: int) -> list[str]:
        """Texts with every word in every place."""
        texts = [f" {place} {word} <answer> {word} </answer>" for place in ("word", "told") for word in WORDS]
        return (texts * (count // len(texts) + 1))[:count]


def _show(place: str, word: str) -> tuple[Message, ...]:
    return (text_message("user", f" {place} {word}"),)


def _read(reply: Message) -> str:
    words = (extract_answer(reply.text) or "").split()
    return words[0] if words and words[0] in WORDS else "none"
