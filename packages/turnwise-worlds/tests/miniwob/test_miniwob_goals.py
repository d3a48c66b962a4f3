"""What small models read of MiniWoB++'s pages and goals, and what the oracle does, without a browser."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.errors import ConfigError
from turnwise.environments.arguments import read_arguments
from turnwise_worlds.miniwob.arguments import MiniwobArguments
from turnwise_worlds.miniwob.family import Miniwob
from turnwise_worlds.miniwob.goals import KNOWN, Step, find_words, lengthen, plan, shorten
from turnwise_worlds.miniwob.listing import FORM_KINDS, Element, View, read_listing, read_view, write_listing
from turnwise_worlds.miniwob.tasks import GROUPS, TASKS, expand

GOALS = {
    "choose-list": "Select Bobine from the list and click Submit.",
    "click-button": 'Click on the "okay" button.',
    "click-dialog-2": 'Click the button in the dialog box labeled "x".',
    "click-tab": "Click on Tab #2.",
    "enter-text": 'Enter "Jerald" into the text field and press Submit.',
    "focus-text-2": "Focus into the 3rd input textbox.",
    "login-user": 'Enter the username "vina" and the password "US" into the text fields and press login.',
}
SHORT = {
    "choose-list": "choose Bobine",
    "click-button": "button okay",
    "click-dialog-2": "dialog x",
    "click-tab": "tab 2",
    "enter-text": "enter Jerald",
    "focus-text-2": "focus 3",
    "login-user": "login vina US",
}


@pytest.mark.parametrize("task", GOALS)
def test_goals_are_shortened_and_the_short_ones_mean_the_same(task: str) -> None:
    assert shorten(task, GOALS[task]) == SHORT[task]
    assert lengthen(task, SHORT[task]) == find_words(task, GOALS[task])


def test_a_sentence_that_is_not_known_stays_whole() -> None:
    assert shorten("click-tab", "Click anywhere.") == "Click anywhere."
    assert shorten("book-flight", "Book a flight.") == "Book a flight."
    assert plan("book-flight", (), find_words("book-flight", "Book a flight.")) is None


def make_view(*elements: tuple[str, str, str]) -> View:
    """The view of a page with these kinds, names and values."""
    nodes = [["div", kind, name, value, ["a", "b"] if kind == "list" else []] for kind, name, value in elements]
    return read_view({"goal": "", "done": False, "reward": 0, "nodes": nodes})


def test_what_can_be_operated_is_numbered_before_labels() -> None:
    view = make_view(("label", "some text", ""), ("field", "", "x"), ("button", "ok", ""))
    assert [each.name for each in view.elements] == ["", "ok", "some text"]
    assert [each.place for each in view.elements] == [1, 2, 0]
    assert write_listing(view, "button ok", "short") == " field = x 1 ok 2 button ok"
    assert write_listing(view, "Click ok.", "full") == "[1] field: x\n[2] button ok\n[3] label some text\nClick ok."


words = st.text("abcxyz#", min_size=1, max_size=5)
operable = st.sampled_from(["button", *sorted(FORM_KINDS)])


@given(st.lists(st.tuples(operable, words, st.sampled_from(["", "v", "w v"])), min_size=1, max_size=6), words)
def test_listings_are_read_back(elements: list[tuple[str, str, str]], goal: str) -> None:
    view = make_view(*((kind, name, value if kind in FORM_KINDS else "") for kind, name, value in elements))
    for style in ("short", "full"):
        read, read_goal = read_listing(write_listing(view, goal, style), style)
        assert [(each.kind, each.name, each.value) for each in read] == [
            (each.kind, each.name, each.value) for each in view.elements
        ]
        assert read_goal == goal


def test_the_oracle_fills_in_before_it_sends() -> None:
    empty = (Element(kind="field", name="", value=""), Element(kind="button", name="Submit", value=""))
    filled = (Element(kind="field", name="", value="Jerald"), empty[1])
    assert plan("enter-text", empty, ("Jerald",)) == Step(verb="type", number=1, text="Jerald")
    assert plan("enter-text", filled, ("Jerald",)) == Step(verb="click", number=2)


def test_every_known_task_and_every_group_is_in_the_package() -> None:
    assert len(TASKS) == 130
    assert set(KNOWN) <= TASKS
    assert expand(list(GROUPS)) == tuple(dict.fromkeys(task for group in GROUPS.values() for task in group))
    assert set(GROUPS["tiny"]) <= set(KNOWN)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tasks": ["click-buton"]}, "tasks=['click-buton']: Value error, tasks='click-buton' is neither a task"),
        ({"tasks": []}, "tasks=[]: Value error, tasks=[] has no task"),
        ({"style": "long"}, "style='long'"),
        ({"max_pages": 0}, "max_pages=0"),
    ],
)
def test_wrong_arguments_are_one_line(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_arguments(MiniwobArguments, arguments)
    assert str(raised.value).startswith(message)


def test_tasks_depend_on_split_and_index_alone() -> None:
    family = Miniwob(tasks=["tiny"])
    assert family.task("train", 3) == Miniwob(tasks=["tiny"]).task("train", 3)
    seeds = {family.task(split, index).payload["seed"] for split in ("train", "heldout") for index in range(200)}
    assert len(seeds) == 400
    assert {family.task("train", index).payload["task"] for index in range(200)} == set(GROUPS["tiny"])
