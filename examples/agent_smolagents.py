"""A ToolCallingAgent of smolagents, as it is: reads notes with a tool until it knows the code.

smolagents writes its calls into text of its own, so that every reply opens a conversation. All of them train.
`recipes/agents/smolagents.toml` trains the agent. Its warm-up plays `SmolagentsNotes`, whose conversations open with
the texts that smolagents writes.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

import httpx
from smolagents import AgentError, OpenAIServerModel, Tool, ToolCallingAgent
from smolagents.agents import EMPTY_PROMPT_TEMPLATES

from turnwise.core.episodes import AGENT, Ask, Asked, EpisodeEnd, EpisodeSpec
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Reward, RewardPart, Scored, Task, ToolCall, ToolSpec, text_message
from turnwise.testing.notes import CODES, NAMES, NotesFamily, NotesPolicy

SYSTEM = "Find the code."
MAX_STEPS = 4
TLS = ssl.create_default_context()
"""Shared by all clients: reading the certificates takes longer than the rest of an episode."""
TOOLS = (
    ToolSpec(
        name="search",
        description="Read a note.",
        parameters={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    ),
    ToolSpec(
        name="final_answer",
        description="Provides a final answer to the given problem.",
        parameters={"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]},
    ),
)


class Search(Tool):  # type: ignore[misc]
    """Reads a note."""

    name = "search"
    description = "Read a note."
    inputs: ClassVar = {"query": {"type": "string", "description": "The name of the note."}}
    output_type = "string"

    def __init__(self, notes: Mapping[str, str]) -> None:
        super().__init__()
        self.notes = notes

    def forward(self, query: str) -> str:
        """Return the note."""
        return self.notes.get(query.strip(), "nothing")


def read_notes(task: Task, base_url: str, api_key: str) -> float:
    """Play one task; the outcome is 1.0 for the right code and 0.0 for anything else."""
    model = OpenAIServerModel(
        model_id="policy",
        api_base=base_url,
        api_key=api_key,
        client_kwargs={"http_client": httpx.Client(verify=TLS)},
        tool_choice="auto",  # "required" needs a policy that a grammar can hold to calls
    )
    templates = {**EMPTY_PROMPT_TEMPLATES, "system_prompt": SYSTEM}
    agent = ToolCallingAgent(
        [Search(task.payload["notes"])], model, prompt_templates=templates, max_steps=MAX_STEPS, verbosity_level=0
    )
    try:
        return float(str(agent.run(task.prompt[0].text)) == task.payload["answer"])
    except AgentError:  # a reply reached its limit of tokens, which ends the conversation
        return 0.0


class SmolagentsEpisode:
    """Implements `AskingEnvironment`: every reply opens a conversation with what smolagents makes of the earlier
    ones."""

    spec = EpisodeSpec()

    async def begin(self, task: Task, seed: int) -> Asked:
        """Ask for the first step."""
        self._task, self._rng, self._answer = task, rng("smolagents", seed, task.id), ""
        self._messages = [text_message("system", SYSTEM), text_message("user", f"New task:\n{task.prompt[0].text}")]
        return self._ask(0)

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """Read a note and ask for the next step; the episode ends with an answer, and with what is no call."""
        step = int(conversation.removeprefix("step"))
        call = reply.tool_calls[0] if reply.tool_calls else None
        given = read_arguments(call)
        if call is None or call.name != "search" or "query" not in given or step + 1 == MAX_STEPS:
            self._answer = str(given.get("answer", ""))
            return Asked(asks=())
        made = {"id": f"call_{self._rng.getrandbits(96):024x}", "type": "function"}
        made |= {"function": {"name": call.name, "arguments": given}}  # type: ignore[dict-item]
        note = self._task.payload["notes"].get(str(given["query"]).strip(), "nothing")
        self._messages.append(text_message("assistant", f"Calling tools:\n{[made]}"))
        self._messages.append(text_message("user", f"Observation:\n{note}"))
        return self._ask(step + 1)

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """Judge the answer."""
        right = float(self._answer == self._task.payload["answer"])
        return {AGENT: Scored(total=right, parts=(RewardPart(name="success", value=right),))}

    async def close(self) -> None:
        """Do nothing: nothing is held."""

    def _ask(self, step: int) -> Asked:
        return Asked(asks=(Ask(messages=tuple(self._messages), conversation=f"step{step}", tools=TOOLS),))


def read_arguments(call: ToolCall | None) -> dict[str, Any]:
    """Return a call's arguments; none for what is no object."""
    try:
        read = json.loads(call.arguments) if call is not None else {}
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


class SmolagentsPolicy:
    """A policy of the notes that answers with a call."""

    def __init__(self, policy: NotesPolicy) -> None:
        self._policy = policy

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next call."""
        seen = [text_message(message.role, message.text.split("\n", 1)[-1]) for message in messages[1:]]
        said = self._policy.reply(task, seen, rng)
        if said.tool_calls:
            return said
        word = said.text.split()[1]
        answer = {"answer": int(word) if word in CODES else word}
        call = ToolCall(id=f"call_{len(messages)}", name="final_answer", arguments=json.dumps(answer))
        return Message(role="assistant", content=(), tool_calls=(call,))


class SmolagentsNotes(NotesFamily):
    """The tasks of the notes, in the texts of smolagents."""

    def build_environment(self, task: Task) -> SmolagentsEpisode:  # type: ignore[override]
        """Build a fresh episode."""
        return SmolagentsEpisode()

    def policy(self, name: str) -> SmolagentsPolicy:  # type: ignore[override]
        """Return a policy of the notes, whose answers are calls."""
        return SmolagentsPolicy(super().policy(name))

    def texts(self, count: int) -> list[str]:
        """Return `count` texts with every word that can occur."""
        made = {"id": "call_", "type": "function", "function": {"name": "search", "arguments": {"query": "WORD"}}}
        words = ("see", "code", "nothing", *NAMES, *CODES)
        texts = []
        for index in range(count):
            word = words[index % len(words)]
            called = f"Calling tools:\n{[made]}".replace("WORD", word)
            asked = f"{SYSTEM}\n\nNew task:\nstart {word}", f" search query = {word}", f" final_answer answer = {word}"
            texts.append((*asked, called, f"Observation:\nsee {word}", f"Observation:\ncode {word}")[index % 6])
        return texts
