"""Requests find their place by meaning: whatever clients do to what they echo, and in whatever order calls come."""

import json
import random
from collections import Counter
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.messages import Message, TextPart, ToolCall, ToolSpec, reply_message, text_message
from turnwise.gateway.forest import Branches, Continues, Forest, Match, Node, Opens, Refuses
from turnwise.gateway.keys import root_key

TOOLS = (ToolSpec(name="add", description="Adds.", parameters={"type": "object", "properties": {"a": {}, "b": {}}}),)
ROOT = root_key(TOOLS, "policy")
SYSTEM, USER = text_message("system", "Use the tool."), text_message("user", "What is 17 + 17?")
ARGUMENTS = '{ "a" :   17,"b" : 17.0,"note" : "caf\\u00e9"}'


def call(name: str = "add", arguments: str = ARGUMENTS) -> ToolCall:
    return ToolCall(id="call_0", name=name, arguments=arguments)


def answer(reply: Message, text: str = "34", number: int = 0) -> Message:
    return text_message("tool", text, tool_call_id=reply.tool_calls[number].id)


def play(forest: Forest, messages: list[Message], reply: Message, root: bytes = ROOT) -> tuple[Match, Node]:
    """Match a request, answer it, and deliver the answer."""
    forest.acknowledge(root, messages)
    match = forest.match(root, messages)
    assert not isinstance(match, Refuses), match
    forest.take(match)
    node = forest.commit(root, messages, match, reply)
    forest.deliver(node.index)
    return match, node


def start(reply: Message | None = None) -> tuple[Forest, Message]:
    """A forest with one reply to `SYSTEM, USER`, and that reply."""
    forest = Forest(b"salt")
    reply = reply or reply_message("I add.", reasoning="Adding is right.", tool_calls=(call(),))
    match, node = play(forest, [SYSTEM, USER], reply)
    assert isinstance(match, Opens)
    assert match.reason == "first"
    return forest, node.message


# ------------------------------------------------------------------ any client, any order: the same forest


@dataclass(frozen=True)
class Step:
    """One request of a session: after an earlier step's reply (None: it opens), with these messages, answered so."""

    after: int | None
    tail: tuple[Message, ...]
    reply: Message


def write(value, rng: random.Random) -> str:
    """JSON as some client writes it: spacing, order of keys, escapes, spelling of numbers."""
    if isinstance(value, dict):
        items = list(value.items())
        rng.shuffle(items)
        value = dict(items)
    if isinstance(value, dict) and rng.random() < 0.5:
        value = {key: float(v) if type(v) is int and abs(v) < 2**53 else v for key, v in value.items()}
    space = rng.choice([None, (",", ":"), (" , ", " : ")])
    return json.dumps(value, ensure_ascii=rng.random() < 0.5, separators=space, indent=rng.choice([None, 2]))


def echo(message: Message, rng: random.Random) -> Message:
    """A delivered reply as some client sends it back."""
    calls = tuple(replace(c, arguments=write(json.loads(c.arguments or "{}"), rng)) for c in message.tool_calls)
    text = message.text
    half = len(text) // 2
    content = rng.choice([(TextPart(text=text),), (TextPart(text=text[:half]), TextPart(text=text[half:]))])
    if not text.strip():
        content = rng.choice([(), (TextPart(text=""),)])
    reasoning = rng.choice([message.reasoning, None])
    return replace(message, tool_calls=calls, content=content, reasoning=reasoning)


def shape(forest: Forest, at: int | None = None) -> Counter:
    """The forest below a node, whatever the order in which it grew."""
    below = [node for node in forest.nodes if node.parent == at]
    return Counter((node.chain, node.is_reply, frozenset(shape(forest, node.index).items())) for node in below)


OBJECTS = st.dictionaries(
    st.text("abé", min_size=1, max_size=2), st.integers() | st.booleans() | st.text('xé"\\', max_size=3)
)


@st.composite
def sessions(draw) -> list[Step]:
    steps: list[Step] = []
    for number in range(draw(st.integers(1, 7))):
        after = draw(st.none() | st.integers(0, len(steps) - 1)) if steps else None
        calls = tuple(
            ToolCall(id=f"call_{number}_{k}", name="add", arguments=json.dumps(draw(OBJECTS)))
            for k in range(draw(st.integers(0, 2)))
        )
        text = draw(st.sampled_from(["", f"  reply {number}\n", f"reply {number}"])) if calls else f"reply {number}"
        thought = draw(st.none() | st.just(f"thought {number}"))
        made = steps[after].reply.tool_calls if after is not None else ()
        said = draw(st.text("ab \n", max_size=3))
        tail = tuple(text_message("tool", said, tool_call_id=made[k].id) for k in range(len(made)))
        if not tail:
            tail = (SYSTEM, text_message("user", said)) if after is None else (text_message("user", said),)
        steps.append(Step(after, tail, reply_message(text, reasoning=thought, tool_calls=calls)))
    return steps


def grow(steps: list[Step], rng: random.Random, *, is_concurrent: bool) -> Forest:
    """Play a session in some order that its program could have chosen, with echoes that some client could have
    written."""
    forest, taken = Forest(b"salt"), set()
    nodes: dict[int, Node] = {}
    left = list(range(len(steps)))
    while left:
        ready = [k for k in left if steps[k].after is None or steps[k].after in nodes]
        batch = rng.sample(ready, rng.randint(1, len(ready))) if is_concurrent else [rng.choice(ready)]
        asked = []
        for k in batch:
            step, messages = steps[k], []
            path = [k]
            while (before := steps[path[0]].after) is not None:
                path.insert(0, before)
            ids: dict[str, str] = {}
            for j in path:
                for message in steps[j].tail:
                    made = message.tool_call_id
                    messages.append(replace(message, tool_call_id=ids[made]) if made else message)
                if j != k:
                    sent = nodes[j].message
                    own = [c.id for c in steps[j].reply.tool_calls]
                    ids |= dict(zip(own, [c.id for c in sent.tool_calls], strict=True))
                    messages.append(echo(sent, rng))
            match = forest.match(ROOT, messages)
            if step.after is None:
                assert isinstance(match, Opens | Branches)
                assert isinstance(match, Opens) or match.after is None
            else:
                assert isinstance(match, Branches if step.after in taken else Continues)
                assert match.after == nodes[step.after].index
                taken.add(step.after)
            forest.take(match)
            asked.append((k, messages, match))
        rng.shuffle(asked)
        for k, messages, match in asked:
            nodes[k] = forest.commit(ROOT, messages, match, steps[k].reply)
            forest.deliver(nodes[k].index)
            left.remove(k)
    return forest


@settings(max_examples=150, deadline=None)
@given(sessions(), st.integers(0, 2**32), st.integers(0, 2**32))
def test_any_client_and_any_order_give_the_same_forest(steps, one, other) -> None:
    first = grow(steps, random.Random(one), is_concurrent=False)
    second = grow(steps, random.Random(other), is_concurrent=True)
    assert shape(first) == shape(second)
    assert len(first.replies) == len(second.replies) == len(steps)


# ------------------------------------------------------------------ what single clients do


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"reasoning": None},
        {"content": (TextPart(text="I "), TextPart(text="add."))},
        {"content": (TextPart(text=" I add.\n"),)},
        {"arguments": '{"a":17,"b":17,"note":"café"}'},
        {"arguments": '{"note": "caf\\u00e9", "b": 17.0, "a": 17}'},
        {"arguments": '{\n  "a": 17.0, "a": 17, "b": 17, "note": "café"}'},
    ],
)
def test_an_echo_in_another_spelling_continues(change) -> None:
    forest, reply = start()
    arguments = change.pop("arguments", None)
    calls = reply.tool_calls if arguments is None else (replace(reply.tool_calls[0], arguments=arguments),)
    match, _ = play(
        forest, [SYSTEM, USER, replace(reply, tool_calls=calls, **change), answer(reply)], reply_message("34")
    )
    assert isinstance(match, Continues)
    assert [message.text for message in match.tail] == ["34"]
    assert match.notes == ({"reasoning_dropped"} if "reasoning" in change else set())


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"content": (TextPart(text="I add!"),)}, "content"),
        ({"reasoning": "Adding is wrong."}, "reasoning"),
        ({"tool_calls": ()}, "the number of tool calls"),
        ({"name": "subtract"}, "tool_calls[0].name"),
        ({"arguments": '{"a": 17, "b": 18, "note": "café"}'}, "tool_calls[0].arguments"),
        ({"arguments": '{"a": 17, "b": 17, "note": "cafe\u0301"}'}, "tool_calls[0].arguments"),
    ],
)
def test_a_rewritten_reply_opens_and_names_the_field(change, field) -> None:
    forest, reply = start()
    inside = {key: change.pop(key) for key in ("name", "arguments") if key in change}
    calls = tuple(replace(c, **inside) for c in reply.tool_calls)
    edited = replace(reply, **{"tool_calls": calls, **change})
    result = answer(reply) if edited.tool_calls else text_message("user", "34")
    match, node = play(forest, [SYSTEM, USER, edited, result], reply_message("34"))
    assert isinstance(match, Opens)
    assert match.reason == "rewritten"
    assert match.detail.endswith(f": {field}")
    # The edited conversation goes on from there, and the original one is still open.
    again, _ = play(forest, [SYSTEM, USER, edited, result, node.message, USER], reply_message("ok"))
    assert isinstance(again, Continues)
    assert again.after == node.index
    original, _ = play(forest, [SYSTEM, USER, reply, answer(reply)], reply_message("34"))
    assert isinstance(original, Continues)


def test_an_integer_rounded_by_the_client_is_a_rewrite() -> None:
    forest, reply = start(reply_message("", tool_calls=(call(arguments='{"a": 9007199254740993}'),)))
    rounded = replace(reply.tool_calls[0], arguments='{"a":9007199254740992}')
    match, _ = play(forest, [SYSTEM, USER, replace(reply, tool_calls=(rounded,)), answer(reply)], reply_message("x"))
    assert isinstance(match, Opens)
    assert match.reason == "rewritten"


def test_the_same_request_is_sampled_beside_its_first_answer() -> None:
    forest, reply = start()
    match, second = play(forest, [SYSTEM, USER], reply_message("I cannot."))
    assert isinstance(match, Branches)
    assert (match.after, match.reason, match.beside) == (None, "resampled", forest.replies[0].index)
    for expected in (Continues, Branches):
        match, _ = play(forest, [SYSTEM, USER, reply, answer(reply)], reply_message("34"))
        assert isinstance(match, expected)
        assert match.after == forest.replies[0].index
    match, _ = play(forest, [SYSTEM, USER, reply, answer(reply, "35")], reply_message("35"))
    assert isinstance(match, Branches)
    assert (match.after, match.reason, match.beside) == (forest.replies[0].index, "answered", None)
    match, _ = play(forest, [SYSTEM, USER, second.message, USER], reply_message("Well."))
    assert isinstance(match, Continues)
    assert match.after == second.index


def test_call_ids_tell_equal_replies_apart() -> None:
    forest, reply = start()
    _, twin = play(forest, [SYSTEM, USER], replace(reply, tool_calls=(call(),)))
    assert twin.message.tool_calls[0].id != reply.tool_calls[0].id
    for node in (forest.replies[0], twin):
        match, _ = play(forest, [SYSTEM, USER, node.message, answer(node.message)], reply_message("34"))
        assert isinstance(match, Continues)
        assert (match.after, match.notes) == (node.index, frozenset())


def test_equal_replies_without_calls_are_ambiguous_and_the_latest_is_taken() -> None:
    forest, reply = start(reply_message("34"))
    _, twin = play(forest, [SYSTEM, USER], reply_message("34"))
    match, _ = play(forest, [SYSTEM, USER, reply, USER], reply_message("34"))
    assert isinstance(match, Continues)
    assert (match.after, match.notes) == (twin.index, frozenset({"ambiguous"}))


def test_a_reply_that_was_not_delivered_gives_way_to_one_that_was() -> None:
    forest = Forest(b"salt")
    match = forest.match(ROOT, [SYSTEM, USER])
    delivered = forest.commit(ROOT, [SYSTEM, USER], match, reply_message("34"))
    lost = forest.commit(ROOT, [SYSTEM, USER], forest.match(ROOT, [SYSTEM, USER]), reply_message("34"))
    forest.deliver(delivered.index)
    match = forest.match(ROOT, [SYSTEM, USER, reply_message("34"), USER])
    assert isinstance(match, Continues)
    assert match.after == delivered.index
    assert not lost.is_delivered


def test_an_echo_proves_that_a_reply_arrived() -> None:
    forest = Forest(b"salt")
    match = forest.match(ROOT, [SYSTEM, USER])
    node = forest.commit(ROOT, [SYSTEM, USER], match, reply_message("34"))
    forest.acknowledge(ROOT, [SYSTEM, USER, reply_message("34"), USER])
    assert node.is_delivered


def test_other_tools_or_another_model_open() -> None:
    forest, reply = start()
    for root in (root_key((), "policy"), root_key(TOOLS, "other"), root_key(TOOLS, "policy", {"thinking": False})):
        match = forest.match(root, [SYSTEM, USER, reply, answer(reply)])
        assert isinstance(match, Opens)
        assert match.reason == "tools"


def test_a_system_message_with_the_time_in_it_is_named() -> None:
    forest = Forest(b"salt")
    play(forest, [text_message("system", "It is 10:01. Be brief."), USER], reply_message("34"))
    match = forest.match(ROOT, [text_message("system", "It is 10:02. Be brief."), USER, reply_message("34"), USER])
    assert isinstance(match, Opens)
    assert match.reason == "new"
    assert match.detail == "another system message: from character 10 '1. Be brief.' became '2. Be brief.'"


def test_a_trimmed_observation_opens_where_it_was_trimmed() -> None:
    forest, reply = start()
    _, second = play(forest, [SYSTEM, USER, reply, answer(reply, "a long text")], reply_message("Long."))
    match = forest.match(ROOT, [SYSTEM, USER, reply, answer(reply, "a long..."), second.message, USER])
    assert isinstance(match, Opens)
    assert match.reason == "edited"
    assert match.detail.startswith("messages[3] is not the one received before: from character 6")


def test_a_summary_opens() -> None:
    forest, _ = start()
    match = forest.match(ROOT, [text_message("user", "So far: 17 + 17 was asked. Go on.")])
    assert isinstance(match, Opens)
    assert match.reason == "new"


def test_an_assistant_message_that_nobody_sampled_is_context() -> None:
    forest = Forest(b"salt")
    made_up = reply_message("Got it. Thanks for the context!")
    match, node = play(forest, [USER, made_up, USER], reply_message("34"))
    assert isinstance(match, Opens)
    match, _ = play(forest, [USER, made_up, USER, node.message, USER], reply_message("35"))
    assert isinstance(match, Continues)
    assert match.after == node.index
    match, last = play(forest, [USER, made_up, USER, node.message, made_up, USER], reply_message("36"))
    assert isinstance(match, Opens)
    assert match.reason == "foreign"
    match, _ = play(forest, [USER, made_up, USER, node.message, made_up, USER, last.message, USER], reply_message("37"))
    assert isinstance(match, Continues)
    assert match.after == last.index


def test_a_reply_named_by_its_id_is_continued() -> None:
    forest, _ = start(reply_message("34"))
    _, twin = play(forest, [SYSTEM, USER], reply_message("34"))
    for node in (forest.replies[0], twin):
        issued = forest.make_id("resp", node.index)
        assert forest.find(issued) is None
        forest.name(issued, node.index)
        assert forest.find(issued) is node
        match = forest.match(ROOT, [*forest.path(node.index), USER], after=node.index)
        assert isinstance(match, Continues)
        assert (match.after, match.tail) == (node.index, (USER,))
        forest.take(match)
        again = forest.match(ROOT, [*forest.path(node.index), USER], after=node.index)
        assert isinstance(again, Branches)
    assert isinstance(forest.match(root_key((), "policy"), [*forest.path(0), USER], after=twin.index), Opens)
    assert forest.find("resp_0") is None


def test_a_request_without_an_answer_is_taken_up_by_the_next() -> None:
    forest, reply = start()
    messages = [SYSTEM, USER, reply, answer(reply)]
    failed = forest.match(ROOT, messages)
    forest.take(failed)
    assert isinstance(forest.match(ROOT, messages), Branches)
    forest.release(failed)
    assert isinstance(forest.match(ROOT, messages), Continues)


def test_ids_belong_to_one_session() -> None:
    one, reply = start()
    other = Forest(b"pepper")
    play(other, [SYSTEM, USER], reply_message("", tool_calls=(call(),)))
    assert other.find(reply.tool_calls[0].id) is None
    refused = other.match(ROOT, [SYSTEM, USER, answer(reply)])
    assert isinstance(refused, Refuses)
    assert refused.field == "messages[2].tool_call_id"
    assert one.find(reply.tool_calls[0].id) is one.replies[0]


@pytest.mark.parametrize("messages", [[], [SYSTEM, USER, reply_message("34")]])
def test_what_does_not_ask_for_a_reply_is_refused(messages) -> None:
    forest, _ = start()
    refused = forest.match(ROOT, messages)
    assert isinstance(refused, Refuses)
    assert refused.field == "messages"
