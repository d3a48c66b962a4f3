"""One puzzle whose facts are divided: B asks A for what it lacks, A tells, B answers.

    ask       B reads its facts and the question, and writes a message to A
    tell      A reads its facts and that message, and writes one to B
    answer    B reads its facts, what it heard and the question, and answers for the team

Every reply has its own conversation, which starts empty. If credit compares with what the team would have got
otherwise, `a_again` and `b_again` are asked afterwards in the same words: A's message is redrawn, and B answers the new
one or a null message. They are roles of the same policy that never train and change nothing in the episode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnwise.core.episodes import Ask, Asked, EpisodeEnd, EpisodeSpec, RoleSpec
from turnwise.core.errors import EnvironmentFault
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Reward, Scored, Task, text_message
from turnwise.rewards.answers import extract_answer
from turnwise.rewards.teams import compute_counterfactual_reward, compute_difference_reward
from turnwise_worlds.relay.arguments import RelayArguments
from turnwise_worlds.relay.facts import NONE, Puzzle, build_puzzle, parse_facts, scramble

A, B, A_AGAIN, B_AGAIN = "a", "b", "a_again", "b_again"
ASK, TELL, ANSWER = "ask", "tell", "answer"
"""The three conversations."""
AGAIN = "_again"
"""Separates the number of credit's question in the name of its conversation."""


def build_spec(chosen: RelayArguments) -> EpisodeSpec:
    """Build the roles: A, B, and those that credit asks."""
    roles, extra = [RoleSpec(name=A), RoleSpec(name=B)], 0
    if chosen.credit == "difference":
        roles, extra = [*roles, RoleSpec(name=B_AGAIN)], 1
    elif chosen.credit == "counterfactual":
        again = [RoleSpec(name=name, max_open=chosen.resamples) for name in (A_AGAIN, B_AGAIN)]
        roles, extra = [*roles, *again], 2 * chosen.resamples
    return EpisodeSpec(roles=tuple(roles), max_replies=3 + extra, can_replay=True)


def describe(puzzle: Puzzle) -> tuple[Message, ...]:
    """Describe the whole puzzle; no role reads this."""
    facts_of_a, facts_of_b = " ".join(puzzle.facts_of_a), " ".join(puzzle.facts_of_b)
    return _say(f" a {facts_of_a} b {facts_of_b} question {' '.join(puzzle.question)}")


def build_ask(puzzle: Puzzle) -> tuple[Message, ...]:
    """Build the opening in which B asks."""
    return _say(f" facts {' '.join(puzzle.facts_of_b)} question {' '.join(puzzle.question)} ask")


def build_tell(puzzle: Puzzle, heard: str) -> tuple[Message, ...]:
    """Build the opening in which A tells."""
    return _say(f" facts {' '.join(puzzle.facts_of_a)} heard {heard} tell")


def build_answer(puzzle: Puzzle, heard: str) -> tuple[Message, ...]:
    """Build the opening in which B answers."""
    return _say(f" facts {' '.join(puzzle.facts_of_b)} heard {heard} question {' '.join(puzzle.question)} answer")


def read_message(reply: Message) -> str:
    """Return the words of a reply in answer tags; `NONE` if it has none."""
    return " ".join((extract_answer(reply.text) or "").split()) or NONE


class RelayEnvironment:
    """Implements `AskingEnvironment`. Only what a scrambled channel delivers is random."""

    def __init__(self, chosen: RelayArguments) -> None:
        self.spec = build_spec(chosen)
        self._chosen = chosen
        self._heard_by_a = NONE
        self._overflowed = False
        self._wanted: set[str] = set()
        """Conversations with an open request."""
        self._results: dict[str, bool] = {}
        """Whether the answer was right: the team's under "", then those that credit asked for, by number."""

    async def begin(self, task: Task, seed: int) -> Asked:
        """Ask B for its message."""
        self._puzzle, self._seed = build_puzzle(int(task.payload["seed"])), seed
        return self._ask(Ask(role=B, conversation=ASK, messages=build_ask(self._puzzle)))

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """Accept a message, or an answer."""
        if conversation not in self._wanted:
            raise EnvironmentFault(f"RelayEnvironment got a reply in {conversation!r}, where it had not asked for one")
        self._wanted.remove(conversation)
        step, _, number = conversation.partition(AGAIN)
        message = read_message(reply)
        too_long = step != ANSWER and len(message.split()) > self._chosen.max_message_words
        self._overflowed = self._overflowed or (too_long and not number)
        if step == ASK:
            self._heard_by_a = self._carry(message, conversation)
            return self._ask(*([] if too_long else [self._ask_a(TELL, role=A)]))
        if step == TELL and not too_long:
            role = B_AGAIN if number else B
            return self._ask(
                self._ask_b(f"{ANSWER}{conversation.removeprefix(TELL)}", self._carry(message, conversation), role=role)
            )
        self._results[number] = not too_long and self._is_right(message)
        return self._ask(*([] if number else self._ask_again()))

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """Return the rewards: the team's is 1 for a right answer; A's depends on `credit`; roles that never train get
        0."""
        results = dict(self._results)
        if end.conversation is not None:  # cut off by a limit
            results[end.conversation.partition(AGAIN)[2]] = False
        team = float(results.pop("", False))
        again = [float(result) for result in results.values()]
        of_a = team
        if self._chosen.credit == "difference" and again:
            of_a = compute_difference_reward(team, again[0])
        elif self._chosen.credit == "counterfactual":
            of_a = compute_counterfactual_reward(team, again)
        parts = {"success": team, "overflow": float(self._overflowed)}
        totals = {A: of_a, B: team}
        return {role.name: Scored.of(totals.get(role.name, 0.0), parts) for role in self.spec.roles}

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def _ask(self, *asks: Ask) -> Asked:
        self._wanted |= {ask.conversation for ask in asks}
        return Asked(asks=asks)

    def _ask_a(self, conversation: str, *, role: str) -> Ask:
        return Ask(role=role, conversation=conversation, messages=build_tell(self._puzzle, self._heard_by_a))

    def _ask_b(self, conversation: str, heard: str, *, role: str) -> Ask:
        return Ask(role=role, conversation=conversation, messages=build_answer(self._puzzle, heard))

    def _ask_again(self) -> tuple[Ask, ...]:
        """Ask credit's questions. The team has finished by then, so a limit reached here does not affect its result."""
        if self._chosen.credit == "difference":
            return (self._ask_b(f"{ANSWER}{AGAIN}0", NONE, role=B_AGAIN),)
        count = self._chosen.resamples if self._chosen.credit == "counterfactual" else 0
        return tuple(self._ask_a(f"{TELL}{AGAIN}{number}", role=A_AGAIN) for number in range(count))

    def _carry(self, message: str, conversation: str) -> str:
        """Return what the channel delivers."""
        if self._chosen.channel == "scrambled":
            return scramble(message, rng(self._seed, "channel", conversation))
        return NONE if self._chosen.channel == "silent" else message

    def _is_right(self, text: str) -> bool:
        given = parse_facts(text)
        return all(given.get(slot) == fact for slot, fact in self._puzzle.answer.items())


def _say(text: str) -> tuple[Message, ...]:
    return (text_message("user", text),)
