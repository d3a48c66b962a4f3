"""A conversation holds the tokens that rendering its messages gives, across turns, forks and restarts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.batching.samples import to_samples
from turnwise.core.episodes import Asked
from turnwise.core.errors import EnvironmentFault, RenderError
from turnwise.core.types import (
    Completion,
    ConversationOpening,
    FinishReason,
    IntArray,
    Message,
    Scored,
    Signal,
    StopReason,
    ToolCall,
    ToolRecord,
    ToolSpec,
    Trajectory,
    TrajectoryId,
    TurnScores,
    text_message,
    to_floats,
)
from turnwise.pictures.pixels import to_part
from turnwise.rendering.tags import TagRenderer
from turnwise.rendering.tokenizer import TAG_SPECIAL_TOKENS, train_tokenizer
from turnwise.rollout.conversation import Conversation, leave_out_prompt

RENDERER = TagRenderer(
    train_tokenizer(["What is here ? nothing found"], vocab_size=300, special_tokens=TAG_SPECIAL_TOKENS)
)
SEARCH = ToolSpec(name="search", description="Search.", parameters={})
WORDS = st.lists(st.sampled_from(["What", "is", "here", "?", "<search>", "</answer>", "é"]), min_size=1).map(" ".join)


def sample(message: Message) -> Completion:
    """The reply as an engine would have sampled it."""
    ids = RENDERER.encode_reply(message)
    return Completion(
        token_ids=ids,
        logprobs=to_floats(np.full(len(ids), -0.5)),
        finish_reason=FinishReason.STOP,
        version_first=0,
        version_last=0,
    )


def search(query: str) -> Message:
    call = ToolCall(id="c", name="search", arguments=f'{{"query": "{query}"}}')
    return Message(role="assistant", content=(), tool_calls=(call,))


def observe(*texts: str) -> tuple[Message, ...]:
    return tuple(text_message("tool", text, tool_call_id="c") for text in texts)


def to_trajectory(conversation: Conversation) -> Trajectory:
    return Trajectory(
        id=TrajectoryId(draw=0, member=0),
        task_id="t",
        turns=tuple(conversation.turns),
        stop=StopReason.DONE,
        reward=Scored(total=1.0),
        conversations=leave_out_prompt(conversation.openings, ()),
    )


def find_prompt(trajectory: Trajectory, index: int) -> list[int]:
    """What turn `index` was conditioned on: all tokens of its ancestors, then its context."""
    turn = trajectory.turns[index]
    before: list[int] = []
    if turn.parent is not None:
        before = [
            *find_prompt(trajectory, turn.parent),
            *trajectory.turns[turn.parent].completion.token_ids.tolist(),
        ]
    return [*before, *turn.context_ids.tolist()]


TURNS = st.lists(st.tuples(WORDS, st.lists(WORDS, min_size=1, max_size=2)), min_size=1, max_size=4)
"""Per turn a query and the observations that answer it."""
EPISODE = st.lists(st.tuples(st.lists(WORDS, min_size=1, max_size=2), TURNS), min_size=1, max_size=3)
"""Per conversation its opening messages and its turns."""


@given(episode=EPISODE)
def test_a_conversation_equals_rendering_its_messages_again(
    episode: list[tuple[list[str], list[tuple[str, list[str]]]]],
) -> None:
    conversation, prompts = Conversation(renderer=RENDERER), []
    for number, (opening, turns) in enumerate(episode):
        messages = [text_message("user", text) for text in opening]
        if number:
            conversation.restart(messages, name=f"part{number}")
        else:
            conversation.open(messages, [SEARCH])
        for query, texts in turns:
            prompts.append(conversation.prompt_ids.tolist())
            conversation.reply(sample(search(query)))
            conversation.go_on(observe(*texts))
    trajectory = to_trajectory(conversation)
    # The prompt of every turn is its parent's prompt, the parent's completion and its own context ...
    assert [find_prompt(trajectory, index) for index in range(len(trajectory.turns))] == prompts
    # ... and what the messages of its conversation render to from the start.
    index = 0
    for number, (opening, turns) in enumerate(episode):
        rendered: IntArray = RENDERER.open([text_message("user", text) for text in opening], [SEARCH])
        for query, texts in turns:
            assert prompts[index] == rendered.tolist()
            assert trajectory.turns[index].conversation == number
            completion = RENDERER.encode_reply(search(query))
            added = RENDERER.extend(rendered, completion, observe(*texts), [SEARCH])
            rendered = np.concatenate([rendered, completion, added])
            index += 1
    assert sum(turn.parent is None for turn in trajectory.turns) == len(episode)
    assert len(conversation.replies) == len(trajectory.turns)


def test_a_restart_is_a_second_root_with_a_context_of_its_own() -> None:
    conversation = Conversation(renderer=RENDERER)
    question, summary = text_message("user", "What is here ?"), text_message("user", "nothing found")
    conversation.open([question], [SEARCH])
    conversation.reply(sample(search("here")))
    conversation.go_on(observe("nothing"))
    conversation.reply(sample(search("found")))
    assert leave_out_prompt(conversation.openings, [question]) == ()  # one conversation, opened with the task's prompt
    assert [opening.messages for opening in leave_out_prompt(conversation.openings, [summary])] == [(question,)]
    named = Conversation(renderer=RENDERER)
    named.open([question], [], name="first")
    kept = leave_out_prompt(named.openings, [question])
    assert [opening.name for opening in kept] == ["first"]  # its name is nowhere else
    conversation.restart([summary], name="part1")
    assert conversation.prompt_ids.tolist() == RENDERER.open([summary], [SEARCH]).tolist()
    conversation.reply(sample(text_message("assistant", "<answer> here </answer>")))
    trajectory = to_trajectory(conversation)
    assert [turn.parent for turn in trajectory.turns] == [None, 0, None]
    assert [turn.conversation for turn in trajectory.turns] == [0, 0, 1]
    assert trajectory.conversations == (
        ConversationOpening(name="main", messages=(question,), tools=(SEARCH,)),
        ConversationOpening(name="part1", messages=(summary,), tools=(SEARCH,)),
    )
    assert [message.text for message in conversation.replies] == ["", "", "<answer> here </answer>"]


def test_each_conversation_of_a_trajectory_is_one_sample() -> None:
    conversation = Conversation(renderer=RENDERER)
    conversation.open([text_message("user", "What is here ?")], [SEARCH])
    for query in ("here", "nothing"):
        conversation.reply(sample(search(query)))
        conversation.go_on(observe("found"))
    conversation.restart([text_message("user", "What ?")], name="part1")
    conversation.reply(sample(search("is")))
    trajectory = to_trajectory(conversation)
    samples = to_samples(trajectory)
    assert [each.origin.branch for each in samples] == [0, 1]
    for each, last in zip(samples, (1, 2), strict=True):
        completion = trajectory.turns[last].completion.token_ids.tolist()
        assert each.token_ids.tolist() == [*find_prompt(trajectory, last), *completion]
    assert sum(int(each.loss_mask.sum()) for each in samples) == trajectory.num_sampled_tokens


def test_a_fork_goes_on_from_the_same_place_and_leaves_the_original_alone() -> None:
    conversation = Conversation(renderer=RENDERER)
    conversation.open([text_message("user", "What is here ?")], [SEARCH])
    conversation.reply(sample(search("here")))
    conversation.go_on(observe("nothing"))
    prompt = conversation.prompt_ids.tolist()
    twin = conversation.fork()
    twin.reply(sample(search("found")))
    twin.go_on(observe("here"))
    assert (len(conversation.turns), len(conversation.replies), conversation.prompt_ids.tolist()) == (1, 1, prompt)
    assert [turn.parent for turn in twin.turns] == [None]  # its first turn follows the fork
    assert twin.turns[0].context_ids.tolist() == conversation.context_ids.tolist()
    assert len(twin.replies) == 2
    assert twin.prompt_ids.tolist()[: len(prompt)] == prompt


def test_a_turn_keeps_all_that_was_observed() -> None:
    conversation = Conversation(renderer=RENDERER)
    conversation.open([text_message("user", "What ?")], [SEARCH])
    message = conversation.reply(sample(search("here")), state="s0", engine_s=2.0)
    record = ToolRecord(call=message.tool_calls[0], observation="found", error=None, seconds=0.5)
    asked = Asked(
        asks=(),
        observations=(text_message("tool", "found", tool_call_id="c"),),
        tool_records=(record,),
        scores=TurnScores(reward=0.25),
        signals=(Signal(name="depth", value=3.0),),
    )
    conversation.observe(asked, environment_s=1.0)
    (turn,) = conversation.turns
    assert (turn.message, turn.observations, turn.tool_records) == (message, asked.observations, (record,))
    assert (turn.scores, turn.signals, turn.state) == (TurnScores(reward=0.25), asked.signals, "s0")
    assert (turn.engine_s, turn.environment_s) == (2.0, 1.0)


def test_a_turn_keeps_pictures_by_digest_alone() -> None:
    """Trajectories wait in memory until they train."""
    part = to_part(np.zeros((2, 4, 3), np.uint8))
    conversation = Conversation(renderer=RENDERER)
    conversation.open([text_message("user", "What ?")], [SEARCH])
    message = conversation.reply(sample(search("here")))
    record = ToolRecord(call=message.tool_calls[0], observation="", content=(part,), error=None, seconds=0.0)
    seen = Message(role="tool", content=(part,), tool_call_id="c")
    conversation.observe(Asked(asks=(), observations=(seen,), tool_records=(record,)))
    [turn] = conversation.turns
    assert (turn.observations, turn.tool_records) == ((seen,), (record,))
    assert [each.pixels for each in (*turn.observations[0].images, turn.tool_records[0].content[0])] == [None, None]  # type: ignore[union-attr]


def test_what_cannot_go_on_is_refused() -> None:
    conversation = Conversation(renderer=RENDERER)
    with pytest.raises(RenderError, match="without any text"):
        conversation.open([], [])
    conversation.open([text_message("user", "What ?")], [])
    conversation.reply(sample(search("here")))
    with pytest.raises(EnvironmentFault, match="neither ended the episode nor returned an observation"):
        conversation.go_on(())
