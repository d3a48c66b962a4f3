"""Higher-order actions: the choice is the real action, options are in random order, the outcome is the reward's."""

import asyncio
import re
from collections import Counter
from dataclasses import replace
from random import Random

from turnwise.core.types import Message, text_message
from turnwise.environments.replies import answer_message
from turnwise.environments.search_qa.family import SearchQA
from turnwise.environments.search_qa.policies import search_message
from turnwise_synthesis.documents.higher_order import RIGHT, WRONG, build_choices, build_plain
from turnwise_synthesis.documents.ledger import Ledger
from turnwise_synthesis.documents.trajectories import Step, Told, play_trajectories
from turnwise_synthesis.documents.writers import describe_action

SEARCH = search_message("author of Blue Lantern", 0)
FOUND = text_message("tool", "The author of Blue Lantern is Mira Tolen.", tool_call_id="call_0", name="search")
TOLD = Told(
    id="a",
    opening=(text_message("user", "Who wrote Blue Lantern?"),),
    tools=(),
    steps=(
        Step(reply=SEARCH, observations=(FOUND,)),
        Step(reply=answer_message("Mira Tolen"), observations=()),
    ),
    succeeded=True,
)


class Fixed:
    """Proposes these actions in turn."""

    def __init__(self, *actions: str | None) -> None:
        self._actions, self._next = actions, 0

    async def propose(self, told: Told, step: int, rng: Random) -> str | None:
        self._next += 1
        return self._actions[(self._next - 1) % len(self._actions)]


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages]


def test_a_trajectory_as_choices() -> None:
    ledger = Ledger()
    proposers = [Fixed("answer Lena Vale", "search author of Blue Lantern")]
    [document] = asyncio.run(build_choices([TOLD], proposers, ledger, seed=0, alternatives=1))
    question, first, found, last, outcome = document.messages
    assert (question, found) == (TOLD.opening[0], FOUND)
    options = {"search author of Blue Lantern", "answer Lena Vale"}
    match = re.fullmatch(r"1 (.+) 2 (.+) So ([12])", first.text)
    assert match is not None
    assert {match[1], match[2]} == options
    assert match[int(match[3])] == "search author of Blue Lantern"
    assert first.tool_calls == SEARCH.tool_calls
    assert last.text.endswith("<answer> Mira Tolen </answer>")
    assert outcome.text == RIGHT


def test_the_real_action_is_no_alternative_and_alternatives_differ() -> None:
    ledger = Ledger()
    same = [Fixed("search author of Blue Lantern", None, "", "answer Mira Tolen")]
    documents = asyncio.run(build_choices([TOLD], same, ledger, seed=0, alternatives=3, tries=8))
    # "answer Mira Tolen" is an alternative to the search only, the search one to the answer only.
    [document] = documents
    assert re.fullmatch(r"1 .+ 2 .+ So [12]", document.messages[1].text)
    assert re.fullmatch(r"1 .+ 2 .+ So [12] <answer> Mira Tolen </answer>", document.messages[3].text)


def test_what_has_no_outcome_or_no_choice_is_named() -> None:
    ledger = Ledger()
    unscored = replace(TOLD, id="b", succeeded=None)
    assert asyncio.run(build_choices([TOLD, unscored], [Fixed(None)], ledger, seed=0)) == []
    assert build_plain([unscored], ledger) == []
    assert [(each.kind, each.item, each.reason) for each in ledger.dropped] == [
        ("has", "a", "no_choice"),
        ("has", "b", "no_outcome"),
        ("plain", "b", "no_outcome"),
    ]


def test_the_control_is_the_same_trajectory_without_options_and_outcome() -> None:
    [plain] = build_plain([TOLD], Ledger())
    assert plain.messages == (*TOLD.opening, SEARCH, FOUND, TOLD.steps[1].reply)


def test_the_place_of_the_choice_is_uniform() -> None:
    told = [replace(TOLD, id=str(number), opening=(text_message("user", f"Q{number}"),)) for number in range(600)]
    documents = asyncio.run(build_choices(told, [Fixed("answer A B", "answer C D")], Ledger(), seed=1))
    chosen = Counter(re.search(r"So (\d)", document.messages[1].text)[1] for document in documents)  # type: ignore[index]
    assert set(chosen) == {"1", "2", "3"}
    # Chi-squared with 2 degrees of freedom exceeds 13.8 once in a thousand.
    assert sum((count - 200) ** 2 / 200 for count in chosen.values()) < 13.8


def test_outcomes_are_those_of_the_environment() -> None:
    family = SearchQA(mode="fresh", num_entities=16, num_words=8, kinds={"1hop": 0.5, "2hop": 0.5})
    ledger = Ledger()
    told = asyncio.run(
        play_trajectories(family, ["oracle", "random"], count=3, first=0, seed=0, max_turns=5, ledger=ledger)
    )
    assert len(told) == 6
    for each in told:
        assert each.task is not None
        answer = describe_action(each.steps[-1].reply)[1]
        assert each.succeeded == (answer in each.task.payload["answers"])
    documents = asyncio.run(build_choices(told, [Fixed("answer X Y")], ledger, seed=0))
    ends = {document.id: document.messages[-1].text for document in documents}
    assert ends == {f"has/{each.id}": RIGHT if each.succeeded else WRONG for each in told if f"has/{each.id}" in ends}
    assert len(ends) == 6
