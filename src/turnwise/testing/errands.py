"""A family of tasks for a planner and its workers, made of the notes of `testing.notes`.

    planner     read amber kite                 one note is wanted, or two are
                <answer> amber kite </answer>   each goes to a worker, all at once
    worker      start amber                     reads notes until it has the code, as in `testing.notes`
                <search> amber </search>
                code 7
                <answer> 7 </answer>
    worker      start kite ...
    planner     found 7 3                       what the workers found
                <answer> 7 3 </answer>

The scripted policy "naive" sends only one worker in half of the episodes, and a worker answers with the last word of
the first note it reads. Reinforcement learning has to find that every wanted note needs a worker, and to follow a note
that names another one. Both roles get the team's reward: 1 if all codes are right."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from turnwise.core.checked import OneConversation
from turnwise.core.episodes import MAIN, Ask, Asked, EpisodeEnd, EpisodeSpec, RoleSpec
from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Split
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Reward, RewardPart, Scored, Task, text_message
from turnwise.testing.notes import CODES, NAMES, Notes, NotesPolicy

PLANNER, WORKER = "planner", "worker"
MAX_WORKERS = 2
NOTHING = "nothing"
"""What a worker found that gave no answer."""


def read_words(reply: str) -> list[str]:
    """Return the words of an answer; none if the reply is no answer."""
    answer = re.search(r"<answer>([^<]*)</answer>", reply)
    return answer[1].split() if answer else []


def describe_found(found: Sequence[str]) -> str:
    """Return what the planner is told of the workers' answers."""
    return " ".join(["found", *found])


def build_errand(task: Task, name: str) -> Task:
    """Return the task of a worker that is sent to a note."""
    payload = {"notes": task.payload["notes"], "answer": task.payload["codes"].get(name, NOTHING)}
    return Task(environment="notes", prompt=(text_message("user", f"start {name}"),), payload=payload)


class Errand:
    """Implements `AskingEnvironment`: one episode of a planner and its workers."""

    def __init__(self, limits: Mapping[str, float]) -> None:
        """`limits` are those of the workers' tools (`ToolEnvironment`)."""
        self.spec = EpisodeSpec(
            roles=(RoleSpec(name=PLANNER), RoleSpec(name=WORKER, max_open=MAX_WORKERS)), can_replay=True
        )
        self._limits = limits
        self._workers: dict[str, OneConversation] = {}
        self._found: dict[str, str] = {}

    async def begin(self, task: Task, seed: int) -> Asked:
        """Ask the planner where to send workers."""
        self._task, self._seed = task, seed
        return Asked(asks=(Ask(messages=task.prompt, role=PLANNER, conversation=PLANNER),))

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """Send the workers, or go on with one; when all have answered, ask the planner for the codes."""
        if conversation == PLANNER:
            names = [] if self._workers else read_words(reply.text)
            return Asked(asks=tuple([await self._send(name) for name in names[:MAX_WORKERS]]))
        asked = await self._workers[conversation].tell(MAIN, reply)
        asks = tuple(Ask(messages=ask.messages, role=WORKER, conversation=conversation) for ask in asked.asks)
        if not asks:
            self._found[conversation] = " ".join(read_words(reply.text)) or NOTHING
            if len(self._found) == len(self._workers):
                told = text_message("user", describe_found([self._found[name] for name in self._workers]))
                asks = (Ask(messages=(told,), role=PLANNER, conversation=PLANNER),)
        return Asked(asks=asks, observations=asked.observations, tool_records=asked.tool_records)

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """Judge the planner's last answer."""
        said = replies.get(PLANNER, ())
        right = float(bool(self._workers) and read_words(said[-1].text) == self._task.payload["answer"].split())
        return dict.fromkeys((PLANNER, WORKER), Scored(total=right, parts=(RewardPart(name="success", value=right),)))

    async def close(self) -> None:
        """Close the workers' environments."""
        for worker in self._workers.values():
            await worker.close()

    async def _send(self, name: str) -> Ask:
        conversation = f"{WORKER}{len(self._workers)}"
        worker = self._workers[conversation] = OneConversation(Notes(**self._limits))  # type: ignore[arg-type]
        asked = await worker.begin(build_errand(self._task, name), self._seed)
        [ask] = asked.asks
        return Ask(messages=ask.messages, role=WORKER, conversation=conversation, tools=ask.tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrandPolicy:
    """Speaks for both roles. It decides by what it sees, never by the payload."""

    send_all: float
    """Probability of sending a worker to every note, instead of only to the first."""
    worker: NotesPolicy

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the plan, the codes, or a worker's next reply."""
        words = messages[-1].text.split()
        if messages[0].text.startswith("start "):
            return self.worker.reply(task, messages, rng)
        if words[0] == "found":
            return text_message("assistant", f"<answer> {' '.join(words[1:])} </answer>")
        names = words[1:] if rng.random() < self.send_all else words[1:2]
        return text_message("assistant", f"<answer> {' '.join(names)} </answer>")


class ErrandsFamily:
    """Implements `core.protocols.EnvironmentFamily`. A task is a pure function of split and index."""

    def __init__(
        self,
        *,
        linked: float = 0.5,
        naive_send_all: float = 0.5,
        tool_timeout_s: float = 10.0,
        max_observation_chars: int = 4000,
    ) -> None:
        """`linked` is the share of notes that name another note, which has the code, `naive_send_all` the probability
        that the naive planner sends a worker to every note; the other arguments are those of `ToolEnvironment`."""
        self._linked, self._naive_send_all = linked, naive_send_all
        self._limits = {"tool_timeout_s": tool_timeout_s, "max_observation_chars": max_observation_chars}

    def task(self, split: Split, index: int) -> Task:
        """Return the index-th task of a split; there is no end. Raises IndexError for a negative index."""
        if index < 0:
            raise IndexError(f"task {index} of {split}: the index must be at least 0")
        random = rng("errands", split, index)
        count, names = random.randint(1, MAX_WORKERS), random.sample(NAMES, 2 * MAX_WORKERS)
        wanted = names[:count]
        codes = {name: random.choice(CODES) for name in wanted}
        notes: dict[str, str] = {}
        for name, other in zip(wanted, names[MAX_WORKERS:], strict=False):
            is_linked = random.random() < self._linked
            notes |= (
                {name: f"see {other}", other: f"code {codes[name]}"} if is_linked else {name: f"code {codes[name]}"}
            )
        prompt = " ".join(["read", *wanted])
        payload = {"notes": notes, "codes": codes, "wanted": wanted, "answer": " ".join(codes[name] for name in wanted)}
        return Task(environment="errands", prompt=(text_message("user", prompt),), payload=payload)

    def build_environment(self, task: Task) -> Errand:
        """Build a fresh episode."""
        return Errand(self._limits)

    def policy(self, name: str) -> ErrandPolicy:
        """Return the scripted policy "oracle", "naive" (see the module) or "random". Raises ConfigError naming
        these."""
        policies = {
            "oracle": ErrandPolicy(send_all=1.0, worker=NotesPolicy(follow=1.0)),
            "naive": ErrandPolicy(send_all=self._naive_send_all, worker=NotesPolicy(follow=0.1)),
            "random": ErrandPolicy(send_all=0.5, worker=NotesPolicy(follow=0.5, guess=True)),
        }
        if name not in policies:
            raise ConfigError(f"the errands family has no policy {name!r}; choose one of {', '.join(policies)}")
        return policies[name]

    def texts(self, count: int) -> list[str]:
        """Return `count` texts with every word that can occur in a prompt, a note or a reply."""
        words = [f" {word}" for word in ("read", "found", "see", "code", NOTHING, *NAMES, *CODES)]
        return [f"{('start', 'read')[index % 2]}{words[index // 2 % len(words)]}" for index in range(count)]
