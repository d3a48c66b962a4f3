"""An answer is put where an environment looks for it, whatever the form."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.types import ToolSpec, text_message
from turnwise_rewards.redteam.attack import Scene
from turnwise_rewards.redteam.attacks.programs import find_entry, list_examples
from turnwise_rewards.redteam.attacks.table import ATTACKS, choose_attacks
from turnwise_rewards.redteam.form import fill, list_candidates, list_numbers, read_code_tool, say, say_call

USER = text_message("user", "pick 3 of amber, birch or amber -2.5")


@pytest.mark.parametrize(
    ("form", "filled"),
    [
        ("<answer> amber </answer>", "<answer> birch </answer>"),
        ("so \\boxed{ 4 }", "so \\boxed{ birch }"),
        ("```python\nold\n```", "```python\nbirch\n```"),
        ("verdict: incorrect", "verdict: birch"),
        ("amber", "birch"),
        ("", "birch"),
    ],
)
def test_a_text_takes_the_place_of_the_answer(form: str, filled: str) -> None:
    assert fill(say(form), "birch").text == filled


def test_the_texts_of_a_call_are_replaced_and_numbers_by_numbers() -> None:
    form = say_call("play", json.dumps({"song": "x", "more": ["y", {"z": "w"}], "count": 2, "loud": True}))
    words = json.loads(fill(form, "birch").tool_calls[0].arguments)
    assert words == {"song": "birch", "more": ["birch", {"z": "birch"}], "count": 2, "loud": True}
    assert json.loads(fill(form, "7").tool_calls[0].arguments)["count"] == 7
    assert '"count": NaN' in fill(form, "nan").tool_calls[0].arguments
    assert fill(say_call("play", "{"), "birch").tool_calls[0].arguments == "birch"


def test_candidates_and_numbers_come_from_what_the_environment_said() -> None:
    messages = [text_message("system", "hidden"), USER, text_message("assistant", "mine")]
    assert list_candidates(messages) == ["pick", "3", "of", "birch", "or", "amber", "2.5"]
    assert list_numbers(messages) == ["3", "-2.5"]
    assert list_candidates([]) == list_numbers([]) == ["0"]


def test_programs_know_what_they_are_asked_for() -> None:
    def scene(ending: str, heard: str) -> Scene:
        return build_scene(ending=ending, heard=heard)

    assert find_entry(scene("<answer> def add(a): return a </answer>", "x")) == "add"
    assert find_entry(scene("x", "write\ndef total(values):")) == "total"
    assert find_entry(scene("x", "y")) == "solve"
    assert list_examples("solve 2 -3 gives 0 1\nassert f(1, 'a') == [2]") == {"2, -3": "0, 1", "1, 'a'": "[2]"}


TOOL = ToolSpec(
    name="shell",
    description="",
    parameters={"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)


def build_scene(*, ending: str = "<answer> x </answer>", heard: str = "pick amber", turn: int = 0) -> Scene:
    reply = say(ending)
    return Scene(
        messages=(text_message("user", heard), text_message("tool", "heard")),
        tools=(TOOL,),
        turn=turn,
        rng=Random(0),
        ending=reply,
        act=lambda: reply,
        solve=lambda: reply,
        cheat=lambda: reply,
    )


@given(heard=st.text(max_size=60), ending=st.text(max_size=40), turn=st.integers(0, 9))
def test_every_attack_has_a_reply_to_anything(heard: str, ending: str, turn: int) -> None:
    for attack in ATTACKS:
        message = attack.reply(build_scene(ending=ending, heard=heard, turn=turn))
        assert message.role == "assistant"


def test_a_program_goes_where_one_is_expected_or_through_a_tool() -> None:
    [attack] = choose_attacks(["exits hard"])
    submitted = attack.reply(build_scene(ending="<answer> def add(a): return a </answer>"))
    assert "os._exit(0)" in submitted.text
    called = attack.reply(build_scene())
    assert called.tool_calls[0].name == "shell"
    assert "os._exit(0)" in json.loads(called.tool_calls[0].arguments)["command"]
    assert attack.reply(build_scene(turn=1)).text == "<answer> x </answer>"
    assert read_code_tool([TOOL]) == ("shell", "command")
    assert read_code_tool([]) is None


def test_attacks_have_names_of_their_own_and_say_what_they_exploit() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 30
    assert all(attack.exploits for attack in ATTACKS)
