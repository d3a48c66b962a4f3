"""The parts that are measured on stored trajectories, by hand."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.errors import ConfigError
from turnwise.core.judging import EpisodeJudges
from turnwise.core.messages import ImagePart, Message, TextPart, ToolCall, ToolCallError, reply_message, text_message
from turnwise.core.types import Scored, Signal, ToolRecord, TurnScores
from turnwise.testing import make_group, make_task, make_trajectory, make_turn
from turnwise_rewards.shaping.calibration import CalibrationOptions, measure_calibration
from turnwise_rewards.shaping.call_format import measure_call_format
from turnwise_rewards.shaping.curiosity import CuriosityOptions, measure_curiosity
from turnwise_rewards.shaping.measured import MeasuredReward, NoOptions
from turnwise_rewards.shaping.plan_consistency import PlanOptions, find_longest_common, measure_plan_consistency
from turnwise_rewards.shaping.progress import ProgressOptions, measure_progress
from turnwise_rewards.shaping.redundancy import measure_redundancy
from turnwise_rewards.shaping.tool_success import measure_tool_success
from turnwise_rewards.shaping.usefulness import measure_usefulness

NONE = NoOptions()


def make_record(arguments, answer="ok", *, error=None, name="search"):
    call = ToolCall(id="0", name=name, arguments=arguments)
    return ToolRecord(call=call, observation=answer, error=error, seconds=0.0)


def make_calls(*records, text="", **fields):
    """A turn whose reply says `text` and makes the calls of these records."""
    message = reply_message(text, tool_calls=tuple(record.call for record in records))
    return make_turn([1], [2], message=message, tool_records=records, **fields)


def say(text, **fields):
    return make_turn([1], [2], message=reply_message(text), **fields)


def give(measure, *turns, options=NONE, task=None, **fields):
    """The account of a group of one."""
    return measure(make_group(make_trajectory(*turns, **fields), task=task), 0, options)


def test_tool_success_is_the_share_of_calls_that_were_answered() -> None:
    calls = [make_record("a"), make_record("b"), make_record("c", error="no"), make_record("d", error="no")]
    found = give(measure_tool_success, make_calls(*calls[:3]), make_calls(calls[3]), make_calls(make_record("e")))
    assert found.value == pytest.approx(0.6)  # 3 of 5
    assert found.reason == "2 of 5 calls failed: calls 3 and 4"
    assert (found.change, found.changed) == ("without them", 1.0)


def test_no_part_pays_for_doing_nothing() -> None:
    """A share of no calls is 0 of a bonus and 0 of a penalty: neither an error nor a full share."""
    for measure in (measure_tool_success, measure_redundancy, measure_call_format, measure_usefulness):
        assert give(measure, say("red")).value == 0
        assert give(measure).value == 0  # no turn at all
    assert give(measure_plan_consistency, say("red"), options=PlanOptions()).value == 0
    assert give(measure_curiosity, say("red"), options=CuriosityOptions()).value == 0


def test_failed_calls_alone_leave_nothing_to_win() -> None:
    found = give(measure_tool_success, make_calls(make_record("a", error="no")))
    assert (found.value, found.changed) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("second", "value"),
    [
        (make_record('{"a": 1, "b": "x  y"}'), -0.5),
        (make_record('{"b":"x y","a":1}'), -0.5),  # the same JSON
        (make_record('{"a": 2, "b": "x  y"}'), 0.0),
        (make_record('{"a": 1, "b": "x  y"}', "changed"), 0.0),  # asked again for what has changed
        (make_record('{"a": 1, "b": "x  y"}', name="read"), 0.0),
    ],
)
def test_a_repeated_call_is_the_same_question_with_the_same_answer(second, value) -> None:
    first = make_record('{"a": 1, "b": "x  y"}')
    assert give(measure_redundancy, make_calls(first), make_calls(second)).value == value


def test_arguments_that_are_no_json_are_compared_by_their_words() -> None:
    calls = [make_record(text) for text in ("author of  kalo", "author of kalo", "author kalo", "[" * 10_000)]
    found = give(measure_redundancy, make_calls(*calls))
    assert (found.value, found.reason) == (-0.25, "1 of 4 calls repeated: call 2")


def test_call_format_counts_what_could_not_be_read() -> None:
    problems = tuple(ToolCallError(kind=kind, raw="", message="") for kind in ("bad_json", "bad_json", "no_action"))
    broken = make_turn([1], [2], message=reply_message("", tool_errors=problems))
    found = give(measure_call_format, make_calls(make_record("a")), broken)
    assert found.value == -0.75  # 3 of 4
    assert found.reason == "3 of 4 could not be read: bad_json 2, no_action 1"
    assert give(measure_call_format, make_calls(make_record("a"))).value == 0


PROMPT = make_task("Who wrote Blue Lantern?")


def test_a_call_is_useful_if_a_later_reply_says_a_new_word_of_its_answer() -> None:
    turns = [
        make_calls(make_record("author of Blue Lantern", "Blue Lantern was written by Mira")),
        make_calls(make_record("wrote", "Blue Lantern? Who wrote, by author")),  # nothing new
        make_calls(make_record("more", "an island")),  # new, never used
        say("<answer> mira </answer>"),
    ]
    found = give(measure_usefulness, *turns, task=PROMPT)
    assert found.value == pytest.approx(1 / 3)
    assert found.reason == "2 of 3 calls not used: calls 2 and 3"
    assert found.changed == 1.0


def test_use_in_a_later_call_counts_and_use_in_a_thought_does_not() -> None:
    seen = make_calls(make_record("a", "Mira"))
    assert give(measure_usefulness, seen, make_calls(make_record('{"query": "Mira"}', "x")), task=PROMPT).value == 0.5
    thought = make_turn([1], [2], message=text_message("assistant", "<think> Mira </think> none"))
    assert give(measure_usefulness, seen, thought, task=PROMPT).value == 0
    hidden = make_turn([1], [2], message=text_message("assistant", "none", reasoning="Mira"))
    assert give(measure_usefulness, seen, hidden, task=PROMPT).value == 0


def test_what_the_agent_said_itself_makes_no_call_useful() -> None:
    """A search that echoes its query is not useful because the answer repeats the query."""
    turns = [make_calls(make_record("mira", "you asked for mira")), say("<answer> mira </answer>")]
    assert give(measure_usefulness, *turns, task=PROMPT).value == 0
    guessed = make_calls(make_record("a", "Mira"), text="perhaps Mira")
    assert give(measure_usefulness, guessed, say("Mira"), task=PROMPT).value == 0


def test_the_second_of_two_equal_answers_is_not_useful() -> None:
    turns = [make_calls(make_record("a", "Mira"), make_record("b", "Mira")), say("Mira")]
    assert give(measure_usefulness, *turns, task=PROMPT).value == 0.5


def plan(text, *calls, reasoning=None, first=()):
    planned = make_turn(
        [1],
        [2],
        message=reply_message(text, reasoning=reasoning, tool_calls=tuple(record.call for record in first)),
        tool_records=first,
    )
    turns = [planned, *(make_calls(call) for call in calls)]
    return give(measure_plan_consistency, *turns, options=PlanOptions()).value


AUTHOR, PLACE = make_record("author of kalo"), make_record("birthplace of mife")


def test_plan_consistency_is_the_common_subsequence_over_the_longer_one() -> None:
    text = "<plan> search author ; search birthplace </plan>"
    assert plan(text, AUTHOR, PLACE) == 1
    assert plan(text, PLACE, AUTHOR) == 0.5  # one of them in order
    assert plan(text, AUTHOR) == 0.5
    assert plan(text, AUTHOR, PLACE, PLACE, PLACE) == 0.5  # 2 of 4 made
    assert plan("<plan>search author\nsearch birthplace</plan>", AUTHOR, PLACE) == 1
    assert plan("<plan> read author ; search editor </plan>", AUTHOR, PLACE) == 0  # another tool, another word
    assert plan("<plan> search </plan>", AUTHOR) == 1  # any arguments
    assert plan("", AUTHOR, reasoning="<plan> search author </plan>") == 1


def test_an_empty_plan_and_one_that_comes_too_late_give_nothing() -> None:
    assert plan("<plan> ; ;  </plan>", AUTHOR) == 0
    assert plan("<plan></plan>") == 0
    assert plan("no plan", AUTHOR) == 0
    late = [make_calls(AUTHOR), make_calls(PLACE, text="<plan> search author ; search birthplace </plan>")]
    assert give(measure_plan_consistency, *late, options=PlanOptions()).value == 0
    assert plan("<plan> search author </plan>", first=(AUTHOR,)) == 1  # in the reply that calls
    two = "<plan> search editor </plan> <plan> search author </plan>"
    assert plan(two, AUTHOR) == 0  # the first counts


@given(st.text("abc"), st.text("abc"))
def test_the_longest_common_subsequence_against_its_definition(first, second) -> None:
    def slow(left, right):
        if not left or not right:
            return 0
        if left[0] == right[0]:
            return 1 + slow(left[1:], right[1:])
        return max(slow(left[1:], right), slow(left, right[1:]))

    first, second = first[:7], second[:7]
    assert find_longest_common(first, second, lambda a, b: a == b) == slow(first, second)


def explore(*states, member=0):
    """A trajectory whose turns start in these states, the first of which is everybody's."""
    turns = [make_turn([1], [2], parent=at - 1 if at else None, state=state) for at, state in enumerate(states)]
    return make_trajectory(*turns, member=member)


def test_curiosity_pays_for_what_few_others_reached() -> None:
    group = make_group(explore("s", "a"), explore("s", "a", "b", member=1), explore("s", member=2), version=3)
    values = [measure_curiosity(group, index, CuriosityOptions()).value for index in range(3)]
    # N(a) = 2, N(b) = 1: 2^-.5; (2^-.5 + 1) / 2; nothing beyond the first state.
    assert values == pytest.approx([2**-0.5, (2**-0.5 + 1) / 2, 0])
    faded = measure_curiosity(group, 0, CuriosityOptions(half_life=3))
    assert faded.value == pytest.approx(2**-0.5 / 2)
    assert "faded to 0.5 at version 3" in faded.reason


def test_walking_in_circles_and_longer_walks_earn_no_more() -> None:
    group = make_group(explore("s", "a", "s", "a"), explore("s", "b", "c", "d", member=1))
    values = [measure_curiosity(group, index, CuriosityOptions()).value for index in range(2)]
    assert values == pytest.approx([1.0, 1.0])


def test_without_states_what_the_environment_answered_counts() -> None:
    def answered(text, member):
        return make_trajectory(make_turn([1], [2], observations=(text_message("tool", text),)), member=member)

    group = make_group(answered("x", 0), answered("x", 1), answered("y", 2))
    values = [measure_curiosity(group, index, CuriosityOptions()).value for index in range(3)]
    assert values == pytest.approx([2**-0.5, 2**-0.5, 1])


def picture(letter: str) -> ImagePart:
    return ImagePart(digest=letter * 64, width=4, height=2)


def test_other_pictures_are_other_states() -> None:
    def answered(letter, member):
        seen = Message(role="tool", content=(TextPart(text="look"), picture(letter)))
        return make_trajectory(make_turn([1], [2], observations=(seen,)), member=member)

    group = make_group(answered("a", 0), answered("a", 1), answered("b", 2))
    values = [measure_curiosity(group, index, CuriosityOptions()).value for index in range(3)]
    assert values == pytest.approx([2**-0.5, 2**-0.5, 1])


@pytest.mark.parametrize(("letters", "expected"), [("ab", 0.0), ("aa", -0.5)])
def test_an_equal_call_that_shows_another_picture_is_no_repetition(letters: str, expected: float) -> None:
    """Zooming twice at one place leads deeper."""
    call = ToolCall(id="c", name="zoom", arguments='{"row": 2}')
    records = [
        ToolRecord(call=call, observation="", content=(picture(letter),), error=None, seconds=0.0) for letter in letters
    ]
    group = make_group(make_trajectory(*(make_turn([1], [2], tool_records=(record,)) for record in records)))
    assert measure_redundancy(group, 0, NoOptions()).value == expected


def test_progress_sums_a_signal_or_takes_the_gain_of_the_potential() -> None:
    turns = [
        make_turn([1], [2], scores=TurnScores(progress=0.25, potential=0.1), signals=(Signal(name="door", value=2),)),
        make_turn([1], [2], parent=0, scores=TurnScores(progress=0.5, potential=0.7)),
    ]
    assert give(measure_progress, *turns, options=ProgressOptions()).value == 0.75
    assert give(measure_progress, *turns, options=ProgressOptions(source="potential")).value == pytest.approx(0.6)
    assert give(measure_progress, *turns, options=ProgressOptions(source="door")).value == 2
    with pytest.raises(ConfigError, match=r"options.source='key': no turn of trajectory 0/0 has it; .* signals: door"):
        give(measure_progress, *turns, options=ProgressOptions(source="key"))


def calibrate(text, success, **options):
    reward = Scored.of(success, {"success": success})
    return give(measure_calibration, say(text), options=CalibrationOptions(**options), reward=reward)


def test_calibration_scores_what_is_stated() -> None:
    found = calibrate("<confidence> 0.7 </confidence> red", 0.0)
    assert found.value == pytest.approx(0.51)
    assert found.reason == "stated 0.7, and the answer is wrong"
    assert (found.change, found.changed) == ("had it stated 0", 1.0)
    assert calibrate("<confidence> 1 </confidence>", 1.0).changed is None  # nothing would have given more
    assert calibrate("<sure>0.7</sure>", 1.0, tag="sure").value == pytest.approx(0.91)


def test_rlcr_is_half_of_each_and_nothing_where_ill_formed() -> None:
    """arXiv 2507.16806: .5 format + .5 right + .5 (1 - (c - y)^2), all 0 where ill-formed; the weight is 0.5."""
    options = {"right_weight": 1, "format_weight": 1}
    assert 0.5 * calibrate("<confidence> 0.7 </confidence>", 1.0, **options).value == pytest.approx(0.5 + 0.5 + 0.455)
    assert 0.5 * calibrate("<confidence> 0.7 </confidence>", 0.0, **options).value == pytest.approx(0.5 + 0.255)
    found = calibrate("<confidence> 7 </confidence>", 1.0, **options)
    assert (found.value, found.reason) == (0.0, "the confidence is outside ('7')")
    assert calibrate("red", 1.0, **options).reason == "the confidence is missing"


def test_a_reward_without_the_part_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"options.success='solved': the reward of trajectory 0/0 .*; its parts: right"
    ):
        give(
            measure_calibration,
            say("<confidence> 1 </confidence>"),
            options=CalibrationOptions(success="solved"),
            reward=Scored.of(1, {"right": 1}),
        )


def test_a_member_that_could_not_be_scored_is_left_alone() -> None:
    """Its reward has no parts: measuring them would end the run."""
    good = make_trajectory(say("<confidence>1</confidence>"), reward=Scored.of(1, {"success": 1}), member=1)
    group = make_group(make_trajectory(say("x"), reward=None), good)
    reward = MeasuredReward(measure_calibration, CalibrationOptions())
    assert asyncio.run(reward.score(group, EpisodeJudges({}))) == [0.0, 1.0]


def test_many_good_calls_earn_no_more_than_one() -> None:
    """A reward per call is earned by calling (Visual-Agent/DeepEyes#83)."""
    one, many = ([make_record(str(number)) for number in range(count)] for count in (1, 10))
    assert give(measure_tool_success, make_calls(*one)).value == give(measure_tool_success, make_calls(*many)).value
