"""Episodes as people read them: what is forgotten, what is carried on, who called whom; as lines and as a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from turnwise.pictures.store import PictureStore
from turnwise.reporting.examples import Batch, draw_example
from turnwise.reporting.pictures import PictureDrawer
from turnwise.reporting.transcript import draw_episode, wants_colour
from turnwise.reporting.voices import find_lead, group_episodes, list_talks

Row = dict[str, Any]


def say(context: str, reply: str, *, parent: int | None = None, conversation: int = 0, tool: str = "") -> Row:
    """A turn."""
    return {
        "parent": parent,
        "conversation": conversation,
        "context": [0, 0],
        "completion": [0, 0],
        "context_text": context,
        "completion_text": reply,
        "completion_pieces": [],
        "observations": [{"content": [{"text": tool}]}] if tool else [],
        "tool_records": [],
    }


def make_row(role: str, turns: list[Row], openings: list[tuple[str, str | None]], **fields: Any) -> Row:
    firsts = [next((t for t in turns if t["conversation"] == place), say("", "")) for place in range(len(openings))]
    return {
        "id": {"draw": 0, "member": 0, "attempt": 0, "role": role},
        "task": {"id": "t", "payload": {}, "prompt": [{"content": [{"text": "Question"}]}]},
        "learns": True,
        "stop": "done",
        "error": None,
        "reward": {"scored": {"total": 1.0, "parts": []}},
        "turns": turns,
        "conversations": [
            {"name": name, "caller": caller, "messages": [{"content": [{"text": first["context_text"]}]}]}
            for (name, caller), first in zip(openings, firsts, strict=True)
        ],
        **fields,
    }


STREAM = make_row(
    "agent",
    [
        say("question red memory none section blueka redmo", "<answer> red = redmo ; x</answer>"),
        say("question red memory red = redmo ; x section goldlo", "<answer> red = nothing</answer>", conversation=1),
        say("question red memory red = redmo answer", "<answer> redmo</answer>", conversation=2),
    ],
    [("chunk0", None), ("chunk1", None), ("answer", None)],
)
"""The second memory is replaced by another text before the answer reads it."""


def test_what_no_later_context_holds_is_forgotten() -> None:
    chunk0, chunk1, answer = list_talks([STREAM])
    assert [talk.said[0].forgot_context for talk in (chunk0, chunk1, answer)] == [True, True, False]
    assert [talk.said[0].forgot_reply for talk in (chunk0, chunk1, answer)] == [False, True, False]
    assert [talk.memory for talk in (chunk0, chunk1, answer)] == ["red = redmo ; x", "", ""]


def test_a_conversation_that_goes_on_forgets_nothing_and_parts_of_words_are_no_memory() -> None:
    chat = make_row(
        "agent", [say("a question", "<search> x </search>"), say("found y", "<answer> y </answer>", parent=0)], []
    )
    [talk] = list_talks([chat])
    assert (talk.name, talk.opening) == ("main", "Question")
    assert not any(said.forgot_context or said.forgot_reply for said in talk.said)
    row = make_row("agent", [say("a", "red"), say("a redmo", "b", conversation=1)], [("c0", None), ("c1", None)])
    first, _ = list_talks([row])
    assert (first.said[0].forgot_context, first.said[0].forgot_reply, first.memory) == (False, True, "")


def test_of_a_reply_only_what_is_kept_is_memory() -> None:
    turns = [
        say("go", "<think> it says five </think> <memory> five apples </memory>"),
        say("memory five apples .", "done", conversation=1),
    ]
    first, _ = list_talks([make_row("agent", turns, [("c0", None), ("c1", None)])])
    assert first.memory == "five apples"


def test_what_a_caller_opens_with_is_no_memory() -> None:
    turns = [say("Find author", "Mira"), say("Find birthplace of Mira", "x", conversation=1)]
    called = make_row("searcher", turns, [("s1", "main"), ("s2", "main")])
    assert [talk.memory for talk in list_talks([called])] == ["", ""]
    assert not list_talks([called])[0].said[0].forgot_reply


PLANNER = make_row(
    "planner",
    [say("Question", "ask <b>x</b>", tool="one"), say("one", "<answer> one </answer>", parent=0)],
    [],
)
SEARCHER = make_row(
    "searcher",
    [
        say("Find x", "search", conversation=0, tool="a passage"),
        say("Find deeper", "<answer> two </answer>", conversation=1),
        say("a passage", "<answer> one </answer>", parent=0, conversation=0),
    ],
    [("s1", "main"), ("s2", "s1")],
)


def test_conversations_stand_under_their_callers_and_turns_in_their_conversations() -> None:
    talks = list_talks([PLANNER, SEARCHER])
    assert [(t.name, t.role, t.depth, len(t.said)) for t in talks] == [
        ("main", "planner", 0, 2),
        ("s1", "searcher", 1, 2),
        ("s2", "searcher", 2, 1),
    ]
    assert all(said.branch_of is None for talk in talks for said in talk.said), "s2 came between, nothing branched"
    branched = make_row("agent", [say("q", "a"), say("b", "c", parent=0), say("d", "e", parent=0)], [])
    assert [said.branch_of for said in list_talks([branched])[0].said] == [None, None, 1]


def test_a_conversation_that_goes_on_from_its_callers_turn_is_no_branch() -> None:
    """As a folded context does, which shares its caller's tokens."""
    turns = [
        say("question", "call a"),
        say("sub-question", "found", parent=0, conversation=1),
        say("back", "done", parent=0),
    ]
    row = make_row("agent", turns, [("main", None), ("branch", "main")])
    main, branch = list_talks([row])
    assert [said.branch_of for said in (*main.said, *branch.said)] == [None, None, None]


def test_a_caller_that_is_not_on_record_leaves_nothing_out() -> None:
    lost = make_row("searcher", [say("Find x", "y")], [("s1", "gone")])
    assert [(talk.name, talk.depth) for talk in list_talks([lost])] == [("s1", 1)]


def test_a_role_that_said_nothing_has_no_conversation() -> None:
    assert [talk.name for talk in list_talks([PLANNER, make_row("searcher", [], [])])] == ["main"]


def test_the_role_that_learns_leads_its_episode() -> None:
    other = {**PLANNER, "learns": False}
    second = {**SEARCHER, "id": {"draw": 1, "member": 0, "attempt": 0, "role": "searcher"}}
    assert group_episodes([other, SEARCHER, second]) == [[other, SEARCHER], [second]]
    assert find_lead([other, SEARCHER]) is SEARCHER
    assert find_lead([other]) is other


# ------------------------------------------------------------------------------------------------ lines


def test_lines_without_colour() -> None:
    assert list(draw_episode([PLANNER, SEARCHER], colour=False)) == [
        "planner   main: Question",
        "planner     model  ask <b>x</b>",
        "planner     tool   one",
        "planner     model  <answer> one </answer>",
        "searcher      s1: Find x",
        "searcher        model  search",
        "searcher        tool   a passage",
        "searcher        model  <answer> one </answer>",
        "searcher          s2: Find deeper",
        "searcher            model  <answer> two </answer>",
    ]
    assert list(draw_episode([STREAM], colour=False))[-2:] == ["memory over time", "  chunk0  red = redmo ; x"]


def test_one_role_in_one_conversation_has_no_labels() -> None:
    chat = make_row("agent", [say("q", "a\nb", tool="c"), say("c", "d", parent=0)], [])
    assert list(draw_episode([chat], colour=False)) == ["  model  a", "         b", "  tool   c", "  model  d"]


def test_roles_have_colours_and_forgotten_text_is_grey() -> None:
    lines = list(draw_episode([STREAM], colour=True))
    assert lines[0] == "\x1b[90mchunk0: question red memory none section blueka redmo\x1b[0m"
    assert lines[1] == "  model  <answer> red = redmo ; x</answer>"
    assert lines[3].startswith("\x1b[90m")
    several = list(draw_episode([PLANNER, SEARCHER], colour=True))
    assert several[0] == "\x1b[36mplanner   \x1b[0mmain: Question"
    assert several[4].startswith("\x1b[33msearcher  \x1b[0m")


def test_what_a_model_wrote_commands_no_terminal() -> None:
    row = make_row("agent", [say("q", "\x1b[2Jgone\x07\r\x9b1m fine\tä")], [])
    assert list(draw_episode([row], colour=False)) == ["  model  \ufffd[2Jgone\ufffd\ufffd\ufffd1m fine\tä"]


@pytest.mark.parametrize(
    ("is_terminal", "environ", "expected"),
    [(True, {}, True), (False, {}, False), (True, {"NO_COLOR": "1"}, False), (True, {"NO_COLOR": ""}, True)],
)
def test_colours_are_for_terminals_that_want_them(
    is_terminal: bool, environ: Mapping[str, str], expected: bool
) -> None:
    assert wants_colour(is_terminal, environ) is expected


# ------------------------------------------------------------------------------------------------ page


def draw(*episode: Row) -> str:
    empty = {name: np.zeros(0) for name in ("token_ids", "logprobs")}
    batch = Batch(label="after <RL>", rows=episode, arrays=empty, drawer=PictureDrawer(PictureStore(None)))
    return draw_example("wrong → right", (episode, batch), (episode, batch))


def test_a_page_has_a_column_for_every_role() -> None:
    page = draw(PLANNER, SEARCHER)
    assert page.count('<div class="roles several" style="--roles: 2">') == 2
    assert page.count('<h5 class="k1">planner</h5>') == page.count('<h5 class="k2">searcher</h5>') == 2
    assert "s2, called by s1" in page
    assert 'class="stack"' in page
    assert "Memory over time" not in page


def test_a_page_greys_what_is_forgotten_and_lists_the_memory() -> None:
    page = draw(STREAM)
    assert 'class="pair"' in page
    assert '<span class="prompt forgotten" title="prompt">question red memory none section blueka redmo' in page
    assert '<span class="prompt" title="prompt">question red memory red = redmo answer' in page
    assert page.count('class="sampled forgotten"') == 2, "the second memory, before and after"
    assert "<dt>chunk0</dt><dd>red = redmo ; x</dd>" in page


def test_what_a_page_shows_is_text() -> None:
    evil = "<img src=x onerror=alert(1)>"
    turns = [say(evil, f"<answer> {evil}</answer>"), say(f"memory {evil} .", "x", conversation=1)]
    page = draw(make_row(evil, turns, [(evil, None), ("c1", evil)]), make_row("b", [], []))
    assert "<img" not in page
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") >= 10
