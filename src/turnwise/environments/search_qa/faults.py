"""What goes wrong in an attempt at a search question, told from its searches, the facts it read and its answer.

The question's formal query says which fact is needed next, whatever was searched so far: the first hop whose answer no
passage read so far states. What was searched while that fact was needed is compared with it, by relation and entity.
Questions from files have no formal query; of those only the passages read and the answer are looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from turnwise.core.faults import FORMAT, GAVE_UP, REPEATED, TOOL_FAILURE, Fault
from turnwise.core.messages import text_message
from turnwise.core.types import Task, Trajectory
from turnwise.environments.search_qa.environment import SWITCHED_OFF
from turnwise.environments.search_qa.policies import Conversation
from turnwise.environments.search_qa.projection import Constant, Intersection, Project, Projection, Union, parse
from turnwise.environments.search_qa.questions import UNKNOWN, stated_fact
from turnwise.environments.search_qa.wordings import natural_question
from turnwise.environments.search_qa.world import RELATIONS
from turnwise.rewards.answers import AnswerCase, final_answer
from turnwise.rewards.normal_form import normalize_answer

NEVER_SEARCHED = "never searched"
NEVER_AGAIN = "never searched again"
WRONG_RELATION = "wrong relation"
WRONG_ENTITY = "wrong entity"
NOT_READ = "right passage not read"
NOT_USED = "read and not used"
MADE_UP = "made up"

NAMES: Mapping[str, str] = {
    NEVER_SEARCHED: "It answered without a search, and the question does not say the answer.",
    NEVER_AGAIN: "What it read leads to a further search, which it never made.",
    WRONG_RELATION: "It searched for another relation of the right entity than the one that was needed next.",
    WRONG_ENTITY: "It searched for another entity than the one that was needed next.",
    NOT_READ: "It searched for what was needed, and the passage that says it was not among the results.",
    NOT_USED: "It had read what answers the question, and answered otherwise or that it does not know.",
    MADE_UP: "No passage says the answer, and it answered with something in place of not knowing.",
}


@dataclass(frozen=True, slots=True)
class Need:
    """A fact that is needed next."""

    relation: str
    entity: str

    def describe(self) -> str:
        """`author of Blue Lantern`."""
        return f"{self.relation} of {self.entity}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    turn: int
    query: str
    needed: Need | None
    """What was needed when it was made; None if nothing was."""
    repeats: bool
    """Whether the same query was made before."""

    @property
    def is_right(self) -> bool:
        """Whether it names the entity that was needed, and its relation or none."""
        if self.needed is None or not _names_entity(self.query, self.needed):
            return False
        return self.needed.relation in (_list_relations(self.query, self.needed) or {self.needed.relation})


def find_search_fault(task: Task, trajectory: Trajectory) -> Fault | None:
    """Name what went wrong; None where a limit ended the attempt."""
    last = len(trajectory.turns) - 1
    if trajectory.stop.is_truncated:
        return None
    case = AnswerCase(replies=[turn.message for turn in trajectory.turns], golds=(), stop=trajectory.stop)
    answer = final_answer(case)
    if answer is None:
        return Fault(name=FORMAT, turn=last, detail="the attempt ended without an answer")
    searches = list(_list_queries(trajectory))
    if searches and all(text == SWITCHED_OFF for _, _, text in searches):
        return Fault(name=TOOL_FAILURE, turn=searches[0][0], detail="search is switched off")
    detail = f"answered {answer!r}"
    if stated_fact(task.payload["question"]) is not None:
        return Fault(name=NOT_USED, turn=last, detail=f"the question says it; {detail}")
    if UNKNOWN in task.payload["answers"]:
        return Fault(name=MADE_UP, turn=last, detail=detail)
    if not searches:
        return Fault(name=NEVER_SEARCHED, turn=last, detail=detail)
    if task.payload["query"] is None:
        return _find_from_texts(task, searches, last, detail)
    return _find_from_query(parse(task.payload["query"]), searches, answer, last)


def _find_from_texts(task: Task, searches: Sequence[tuple[int, str, str]], last: int, detail: str) -> Fault:
    """Name a fault of a question without a formal query."""
    read = " ".join(normalize_answer(text) for _, _, text in searches)
    golds = [normalize_answer(gold) for gold in task.payload["answers"]]
    if any(f" {gold} " in f" {read} " for gold in golds):
        return Fault(name=NOT_USED, turn=last, detail=detail)
    return Fault(name=NOT_READ, turn=searches[0][0], detail=f"no passage that was read has {golds[0]!r}; {detail}")


def _find_from_query(query: Projection, searches: Sequence[tuple[int, str, str]], answer: str, last: int) -> Fault:
    """Name a fault by the last right search and what came after it.

    A wrong search before a right one is forgiven. After the last right one the first wrong search counts, even if its
    results happened to say what was needed: it was not asked for.
    """
    made = list(_follow(query, searches))
    members, need = find_need(query, _read([text for _, _, text in searches]))
    right = max((place for place, search in enumerate(made) if search.is_right), default=-1)
    strayed = [search for search in made[right + 1 :] if search.needed is not None]
    fresh = [search for search in strayed if not search.repeats]
    said = f"answered {answer!r}"
    if strayed:
        first = (fresh or strayed)[0]
        needed = first.needed
        assert needed is not None, "only searches that were in need of something stray"
        name = WRONG_RELATION if _names_entity(first.query, needed) else WRONG_ENTITY
        detail = f"searched {first.query!r}; needed {needed.describe()}; {said}"
        return Fault(name=name if fresh else REPEATED, turn=first.turn, detail=detail)
    if need is None:
        known = ", ".join(sorted(members)) or "nothing"
        return Fault(name=NOT_USED, turn=last, detail=f"the passages give {known}; {said}")
    detail = f"needed {need.describe()}; {said}"
    if made[right].needed == need:
        return Fault(name=NOT_READ, turn=made[right].turn, detail=f"searched {made[right].query!r}; {detail}")
    is_blank = normalize_answer(answer) in ("", normalize_answer(UNKNOWN))
    return Fault(name=GAVE_UP if is_blank else NEVER_AGAIN, turn=last, detail=detail)


def find_need(query: Projection, facts: Sequence[tuple[str, str, str]]) -> tuple[set[str], Need | None]:
    """Return the members of a query that these facts give, and the first fact that is missing for it; None if none is.

    `facts` are (relation, subject, object). Of a union one part is enough. A relation that is read backwards is missing
    until one of its subjects is known.
    """
    match query:
        case Constant(entity):
            return {entity}, None
        case Project(relation, of, inverse):
            names, need = find_need(of, facts)
            if need is not None:
                return set(), need
            members = {s if inverse else o for r, s, o in facts if r == relation and (o if inverse else s) in names}
            missing = None if members else Need(relation, min(names, default=""))
            return members, missing
        case Intersection(parts):
            found = [find_need(part, facts) for part in parts]
            missing = next((need for _, need in found if need is not None), None)
            return set.intersection(*(names for names, _ in found)), missing
        case Union(parts):
            found = [find_need(part, facts) for part in parts]
            known = set[str]().union(*(names for names, _ in found))
            return known, None if known else next((need for _, need in found if need is not None), None)


def _follow(query: Projection, searches: Sequence[tuple[int, str, str]]) -> Iterator[_Search]:
    """Yield every search with what was needed when it was made."""
    for number, (turn, text, _) in enumerate(searches):
        earlier = searches[:number]
        _, needed = find_need(query, _read([result for _, _, result in earlier]))
        repeats = _plain(text) in {_plain(other) for _, other, _ in earlier}
        yield _Search(turn=turn, query=text, needed=needed, repeats=repeats)


def _list_queries(trajectory: Trajectory) -> Iterator[tuple[int, str, str]]:
    """Yield turn, query and result of every search that ran."""
    for index, turn in enumerate(trajectory.turns):
        for record in turn.tool_records:
            try:
                query = json.loads(record.call.arguments)["query"]
            except (ValueError, TypeError, KeyError):
                continue
            yield index, str(query), record.observation


def _read(results: Sequence[str]) -> list[tuple[str, str, str]]:
    return Conversation.of([text_message("tool", result) for result in results]).facts()


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _names_entity(query: str, need: Need) -> bool:
    return f" {_plain(need.entity)} " in f" {_plain(query).replace('?', ' ')} "


def _list_relations(query: str, need: Need) -> set[str]:
    """Return the relations that a search names; empty if it names none."""
    text = _plain(query)
    natural = {name for name in RELATIONS if _plain(natural_question(Project(name, Constant(need.entity)))) == text}
    return natural or {name for name in RELATIONS if name in text.replace("?", " ").split()}
