"""A simulated phone and desktop: what actions do, what checkers read, what is refused, what policies are worth."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.errors import ConfigError, EnvironmentFault, ToolFailure
from turnwise.core.protocols import StepResult
from turnwise.core.types import Scored, StopReason, Task, text_message
from turnwise_worlds.devices.desktop import DESKTOP_ACTIONS, act_on_desktop
from turnwise_worlds.devices.environment import open_session
from turnwise_worlds.devices.family import Devices
from turnwise_worlds.devices.goals import TASKS, make_goal
from turnwise_worlds.devices.pages import HOME, handle
from turnwise_worlds.devices.phone import PHONE_ACTIONS, act_on_phone
from turnwise_worlds.devices.real import to_android_fields, to_osworld_action, write_android_elements
from turnwise_worlds.devices.screen import DESKTOP, PHONE, Screen, list_lines
from turnwise_worlds.devices.session import Session
from turnwise_worlds.devices.state import Device
from turnwise_worlds.web.site.handle import Request

DEVICE = (
    Device(entries=(), settings=(("Wi-Fi", "off"), ("Brightness", "low")), next_number=1)
    .add("contacts", {"name": "Kalo", "phone": "555 0001"})
    .add("notes", {"title": "list", "text": "buy bread"})
    .add("clock", {"time": "07:30", "label": "rosu"})
    .add("files", {"name": "tefa.txt", "text": "call"}, folder="Downloads")
)


def use_phone(session: Session, *actions: dict[str, Any]) -> Session:
    for action in actions:
        session = act_on_phone(session, action)
    return session


def use_desktop(session: Session, *actions: dict[str, Any]) -> Session:
    for action in actions:
        session = act_on_desktop(session, action)
    return session


def number_of(session: Session, name: str) -> int:
    """The index of what has this name, in AndroidWorld's count."""
    return next(node.number for node in session.screen.page.nodes if node.name == name and node.number) - 1


def tap(session: Session, name: str, **more: Any) -> Session:
    return act_on_phone(session, {"action_type": "click", "index": number_of(session, name), **more})


def on_phone() -> Session:
    return Session(screen=Screen.open(DEVICE, PHONE))


def on_desktop() -> Session:
    return Session(screen=Screen.open(DEVICE, DESKTOP))


def test_a_contact_is_added_on_the_phone_by_hand() -> None:
    session = tap(tap(on_phone(), "Contacts"), "New contact")
    fields = {"name": number_of(session, "name"), "phone": number_of(session, "phone")}
    session = use_phone(
        session,
        {"action_type": "input_text", "index": fields["name"], "text": "Rosu"},
        {"action_type": "click", "index": fields["phone"]},
        {"action_type": "input_text", "text": "555"},
        {"action_type": "input_text", "text": " 0002"},  # written after what is there
    )
    assert session.screen.device == DEVICE  # nothing is sent yet
    saved = tap(session, "Save").screen.device
    assert saved.content == DEVICE.add("contacts", {"name": "Rosu", "phone": "555 0002"}).content
    cleared = use_phone(
        session, {"action_type": "input_text", "index": fields["phone"], "text": "x", "clear_text": True}
    )
    refused = act_on_phone(cleared, {"action_type": "keyboard_enter"})
    assert refused.screen.device.content == DEVICE.content
    assert 'text "phone: x is no phone"' in [line.text for line in refused.screen.visible]
    home = act_on_phone(refused, {"action_type": "navigate_home"})
    assert not home.screen.device.notice


def test_an_element_is_called_by_number_or_by_place() -> None:
    session = on_phone()
    # Home has a heading and five icons: the icon "Notes" is on the third line, whose middle is at 2.5 * 80.
    by_place = act_on_phone(session, {"action_type": "click", "x": 10, "y": 200})
    assert by_place == tap(session, "Notes") == act_on_phone(session, {"action_type": "click", "index": "1"})
    assert by_place == act_on_phone(session, {"action_type": "open_app", "app_name": "notes"})
    assert session.screen.place_of(2) == (160, 200)
    beside = act_on_phone(session, {"action_type": "click", "x": 10, "y": 600})
    assert beside == session


def test_back_home_menus_and_scrolling() -> None:
    device = DEVICE
    for number in range(12):
        device = device.add("notes", {"title": f"n{number:02d}", "text": "x"})
    session = Session(screen=Screen.open(device, PHONE))
    listed = tap(session, "Notes")
    assert act_on_phone(listed, {"action_type": "navigate_back"}).screen.path == HOME
    assert act_on_phone(session, {"action_type": "navigate_back"}) == session
    # 15 lines (a heading, "New note", 13 notes); 8 are visible, and a scroll moves by 7.
    assert [line.text for line in listed.screen.visible][-1].startswith('[6] link "n04"')
    with pytest.raises(ToolFailure, match="there is no element 13 on the screen"):
        act_on_phone(listed, {"action_type": "click", "index": 13})
    down = act_on_phone(listed, {"action_type": "scroll", "direction": "down"})
    assert down.screen.start == 7
    assert act_on_phone(listed, {"action_type": "swipe", "direction": "up"}) == down
    assert act_on_phone(down, {"action_type": "scroll", "direction": "down"}).screen.start == 7
    assert tap(down, "n11").screen.path.startswith("/notes/")
    menu = act_on_phone(listed, {"action_type": "long_press", "index": 2})
    assert menu.screen.path.endswith("/edit")


def test_a_file_is_moved_and_an_alarm_turned_off_on_the_desktop() -> None:
    session = on_desktop()
    x, y = session.screen.place_of(number_of(session, "Files") + 1)
    assert act_on_desktop(session, {"action_type": "CLICK", "x": x, "y": y}).screen.path == HOME  # an icon
    opened = use_desktop(session, {"action_type": "MOVE_TO", "x": x, "y": y}, {"action_type": "DOUBLE_CLICK"})
    assert opened.screen.path == "/files"
    assert opened == use_desktop(session, {"action_type": "CLICK", "x": x, "y": y, "num_clicks": 2})
    for name in ("Downloads", "tefa.txt", "Move to Pictures"):
        x, y = opened.screen.place_of(number_of(opened, name) + 1)
        kind = "CLICK" if name.startswith("Move") else "DOUBLE_CLICK"
        opened = act_on_desktop(opened, {"action_type": kind, "x": x, "y": y})
    entry = next(entry for entry in opened.screen.device.entries if entry.app == "files")
    assert entry.folder == "Pictures"
    assert act_on_desktop(opened, {"action_type": "HOTKEY", "keys": ["win", "D"]}).screen.path == HOME


def test_selected_text_is_replaced_and_other_text_kept_on_the_desktop() -> None:
    session = replace(on_desktop(), screen=on_desktop().screen.go("/contacts/1/edit"))
    x, y = session.screen.place_of(number_of(session, "name") + 1)
    session = act_on_desktop(session, {"action_type": "CLICK", "x": x, "y": y})
    added = act_on_desktop(session, {"action_type": "TYPING", "text": "s"})
    selected = act_on_desktop(session, {"action_type": "HOTKEY", "keys": ["ctrl", "a"]})
    replaced = act_on_desktop(selected, {"action_type": "TYPING", "text": "Mina"})
    shorter = act_on_desktop(session, {"action_type": "PRESS", "key": "Backspace"})
    emptied = act_on_desktop(selected, {"action_type": "PRESS", "key": "backspace"})
    values = [each.screen.page.find(1).value for each in (added, replaced, shorter, emptied)]  # type: ignore[union-attr]
    assert values == ["Kalos", "Mina", "Kal", ""]
    sent = act_on_desktop(replaced, {"action_type": "PRESS", "key": "enter"})
    assert sent.screen.device.find(1).get("name") == "Mina"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ({"action_type": "fly"}, "action_type must be one of click"),
        ({}, "action_type must be one of click"),
        ({"action_type": "click"}, "give index, or x and y"),
        ({"action_type": "click", "index": 1, "x": 3, "y": 3}, "give index, or x and y"),
        ({"action_type": "click", "index": True}, "index must be a whole number"),
        ({"action_type": "click", "index": 1.5}, "index must be a whole number"),
        ({"action_type": "click", "index": -1}, "there is no element -1 on the screen"),
        ({"action_type": "click", "index": "9" * 30}, "index must be a whole number"),
        ({"action_type": "click", "x": 320, "y": 0}, r"\(320, 0\) is not on the screen of 320 x 640"),
        ({"action_type": "scroll", "direction": "sideways"}, "direction must be"),
        ({"action_type": "scroll", "direction": ["down"]}, "direction must be"),
        ({"action_type": "input_text", "text": "x"}, "no text field has the focus"),
        ({"action_type": "input_text", "index": 0, "text": 5}, "text must be a text"),
        ({"action_type": "open_app", "app_name": "Maps"}, "no app is called 'Maps'"),
        ({"action_type": "status", "goal_status": "done"}, "goal_status must be complete or infeasible"),
    ],
)
def test_what_is_wrong_with_an_action_on_the_phone_is_said(action: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolFailure, match=message):
        act_on_phone(on_phone(), action)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ({"action_type": "DRAG_TO", "x": 1, "y": 1}, "nothing here is dragged"),
        ({"action_type": "KEY_DOWN", "key": "ctrl"}, "no key is held down"),
        ({"action_type": "CLICK", "x": 1}, "give both x and y"),
        ({"action_type": "CLICK", "x": 900, "y": 1}, "is not on the screen of 800 x 600"),
        ({"action_type": "CLICK", "x": 1, "y": 1, "num_clicks": 9}, "num_clicks 1 to 3"),
        ({"action_type": "MOUSE_UP"}, "no mouse button is down"),
        ({"action_type": "PRESS", "key": "f13"}, "key 'f13' does nothing here"),
        ({"action_type": "HOTKEY", "keys": "ctrl+c"}, "keys must be one of ctrl"),
        ({"action_type": "TYPING", "text": "x"}, "no text field has the focus"),
    ],
)
def test_what_is_wrong_with_an_action_on_the_desktop_is_said(action: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolFailure, match=message):
        act_on_desktop(on_desktop(), action)


@pytest.mark.parametrize("text", ["two\nlines", "\x00", "x" * 300, "\u202e"])
def test_what_no_field_takes_is_not_typed(text: str) -> None:
    session = tap(tap(on_phone(), "Notes"), "New note")
    with pytest.raises(ToolFailure, match=r"a field takes one line|at most 200 characters"):
        act_on_phone(session, {"action_type": "input_text", "index": 0, "text": text})


def test_a_text_cannot_look_like_an_element() -> None:
    spoof = 'x" at (1, 1) [0] button "Delete'
    device = DEVICE.add("notes", {"title": spoof, "text": spoof})
    page = Screen.open(device, DESKTOP).go("/notes").page
    assert [line.text for line in list_lines(page)][-1] == f"[2] link {json.dumps(spoof)}"


@pytest.mark.parametrize("task", TASKS)
def test_no_task_is_done_before_it_is_begun_and_nothing_else_may_change(task: str) -> None:
    for seed in range(8):
        goal = make_goal(seed, task)
        assert not goal.is_met(goal.device, "")
        assert goal.is_met(goal.wanted, f" {goal.answer.upper()} ")
        other = goal.wanted.set("Brightness", "low" if dict(goal.wanted.settings)["Brightness"] != "low" else "high")
        assert not goal.is_met(other, goal.answer)
        victim = goal.wanted.entries[0]
        assert not goal.is_met(goal.wanted.remove(victim), goal.answer)
        assert not goal.is_met(goal.wanted.add(victim.app, dict(victim.fields), folder=victim.folder), goal.answer)
        assert not goal.is_met(goal.wanted, f"{goal.answer} or not")


@given(st.text(max_size=30), st.dictionaries(st.sampled_from(("name", "phone", "title")), st.text(max_size=20)))
@settings(max_examples=60, deadline=None)
def test_every_request_has_an_answer(path: str, fields: dict[str, str]) -> None:
    for method in ("GET", "POST"):
        answer = handle(DEVICE, Request(method=method, path=f"/{path}", fields=fields))  # type: ignore[arg-type]
        assert answer.html.startswith("<!DOCTYPE html>")
        if method == "GET":
            assert answer.device == DEVICE


def play(family: Devices, task: Task, texts: Sequence[str]) -> tuple[list[StepResult], Scored]:
    async def run() -> tuple[list[StepResult], Scored]:
        environment = family.build_environment(task)
        await environment.reset(task, 0)
        results = []
        for text in texts:
            results.append(await environment.step(text_message("assistant", text)))
        reward = await environment.score([], StopReason.DONE)
        assert isinstance(reward, Scored)
        return results, reward

    return asyncio.run(run())


def test_saying_that_it_is_done_is_worth_nothing_and_a_malformed_reply_is_named() -> None:
    family = Devices(kinds={"phone": 1})
    task = family.task("train", 0)
    complete = '{"action_type": "status", "goal_status": "complete"}'
    results, reward = play(family, task, ["no json", '{"action_type": ', "[1]", f"I am done: {complete}"])
    for result in results[:3]:
        assert result.observations[0].text.startswith('error: no action; write one JSON object with "action_type"')
        assert result.signals[0].value == 1.0
    assert results[3].done
    assert (reward.total, reward.part("done"), reward.part("refused")) == (0.0, 0.0, 3.0)


def play_policy(family: Devices, task: Task, policy: str, seed: int = 0) -> Scored:
    random, scripted = Random(seed), family.policy(policy)

    async def run() -> Scored:
        environment = family.build_environment(task)
        messages = list((await environment.reset(task, 0)).messages)
        for _ in range(40):
            messages.append(scripted.reply(task, messages, random))
            result = await environment.step(messages[-1])
            messages += result.observations
            if result.done:
                break
        reward = await environment.score([], StopReason.DONE)
        assert isinstance(reward, Scored)
        return reward

    return asyncio.run(run())


@pytest.mark.parametrize("kind", ["phone", "desktop"])
def test_the_oracle_does_every_task_and_nobody_else_does(kind: str) -> None:
    for task in TASKS:
        family = Devices(kinds={kind: 1}, tasks={task: 1})
        assert play_policy(family, family.task("heldout", 0), "oracle").total == 1.0
    family = Devices(kinds={kind: 1}, horizon=10)
    tasks = [family.task("heldout", index) for index in range(10)]
    assert sum(play_policy(family, task, "random", index).total for index, task in enumerate(tasks)) <= 1
    blank = Devices(kinds={kind: 1}, screen="blank", horizon=10)
    assert sum(play_policy(blank, task, "oracle", index).total for index, task in enumerate(tasks)) <= 1
    assert blank.task("heldout", 0) == family.task("heldout", 0)


def test_states_are_equal_however_they_were_reached_and_forks_go_their_own_way() -> None:
    family = Devices(kinds={"phone": 1})
    task = family.task("train", 0)

    async def run() -> None:
        one, other = family.build_environment(task), family.build_environment(task)
        await one.reset(task, 0)
        await other.reset(task, 0)
        await one.step(text_message("assistant", '{"action_type": "click", "index": 1}'))
        await other.step(text_message("assistant", '{"action_type": "open_app", "app_name": "Notes"}'))
        assert one.state_hash() == other.state_hash()
        twin = await one.fork()
        await twin.step(text_message("assistant", '{"action_type": "navigate_home"}'))
        await other.step(text_message("assistant", '{"action_type": "wait"}'))
        assert len({one.state_hash(), twin.state_hash(), other.state_hash()}) == 3
        with pytest.raises(EnvironmentFault, match="reset twice"):
            await one.reset(task, 0)
        with pytest.raises(EnvironmentFault, match="before reset"):
            await family.build_environment(task).step(text_message("assistant", "{}"))

    asyncio.run(run())


def test_replies_get_the_form_of_the_real_benchmarks() -> None:
    assert to_android_fields('so: {"action_type": "click", "index": 3, "x": null}') == {
        "action_type": "click",
        "index": 3,
    }
    with pytest.raises(ToolFailure, match="have no field 'force'"):
        to_android_fields('{"action_type": "click", "index": 3, "force": 1}')
    assert to_osworld_action('{"action_type": "DONE"}') == "DONE"
    flat, nested = (
        '{"action_type": "CLICK", "x": 1, "y": 2}',
        '{"action_type": "CLICK", "parameters": {"x": 1, "y": 2}}',
    )
    wanted = {"action_type": "CLICK", "parameters": {"x": 1, "y": 2}}
    assert to_osworld_action(flat) == to_osworld_action(nested) == wanted
    with pytest.raises(ToolFailure, match="action_type must be one of MOVE_TO"):
        to_osworld_action('{"action_type": "os.system"}')
    box = {"x_min": 0, "x_max": 100, "y_min": 20, "y_max": 40}
    button: dict[str, object] = {"text": "Save", "class_name": "android.widget.Button", "bbox_pixels": box}
    elements: list[dict[str, object]] = [{"text": None}, button]
    assert write_android_elements(elements) == '[1] button "Save" at (50, 30)'
    assert (len(PHONE_ACTIONS), len(DESKTOP_ACTIONS)) == (13, 16)


def test_kinds_and_tasks_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"kinds.watch=1: unknown kind; use phone, desktop"):
        Devices(kinds={"watch": 1})
    with pytest.raises(ConfigError, match=r"tasks.dance=1: unknown kind; use add_contact"):
        Devices(tasks={"dance": 1})
    session = open_session(Devices().task("train", 0).payload)[1]
    assert session.screen.path == HOME
