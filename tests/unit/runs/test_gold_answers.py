"""How likely the right answer is, by hand on a policy that knows nothing and on one that knows one token, and what
credit makes of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from turnwise.algorithms.credit_table import build_credit
from turnwise.algorithms.turns.igpo import PRIOR_PART
from turnwise.config.load import load_config
from turnwise.core.errors import ConfigError
from turnwise.core.types import (
    Completion,
    FinishReason,
    Message,
    Scored,
    StopReason,
    Task,
    Trajectory,
    TrajectoryGroup,
    Turn,
    text_message,
    to_floats,
    to_ids,
)
from turnwise.credit.assignment import compute_advantages, to_credit_trajectories
from turnwise.credit.gold_answers import GoldAnswers, add_answer_probabilities, encode_answer
from turnwise.models.build import build_model
from turnwise.rendering.tags import TagRenderer
from turnwise.rendering.tokenizer import TAG_SPECIAL_TOKENS, train_tokenizer
from turnwise.runs.build import build_family

TINY = Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"
TASK = Task(environment="e", prompt=(text_message("user", "q"),), payload={"answers": ["Port Vessa"]})


class Family:
    def gold_answer(self, task: Task) -> str:
        return str(task.payload["answers"][0])

    def answer_reply(self, answer: str) -> Message:
        return text_message("assistant", f"<answer> {answer} </answer>")


@pytest.fixture(scope="module")
def renderer() -> TagRenderer:
    return TagRenderer(train_tokenizer(["Port Vessa lies far away"], vocab_size=300, special_tokens=TAG_SPECIAL_TOKENS))


def make_group(num_turns: int) -> TrajectoryGroup:
    def turn(index: int) -> Turn:
        completion = Completion(
            token_ids=to_ids([5, 6]),
            logprobs=to_floats([-1, -1]),
            finish_reason=FinishReason.STOP,
            version_first=0,
            version_last=0,
        )
        return Turn(
            parent=index - 1 if index else None,
            context_ids=to_ids([10 + index]),
            completion=completion,
            message=text_message("assistant", ""),
        )

    turns = tuple(turn(index) for index in range(num_turns))
    trajectory = Trajectory(
        task_id=TASK.id, group_id="g", member=0, turns=turns, stop=StopReason.DONE, reward=Scored(total=1.0)
    )
    return TrajectoryGroup(task=TASK, group_id="g", trajectories=(trajectory,))


def build(**changes: Any) -> Any:
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
    }
    return build_model("qwen3", sizes | changes, vocab_size=300, seed=3, dtype="float32")


def score(renderer: TagRenderer, model: Any, group: TrajectoryGroup) -> list[dict[str, float]]:
    torch.set_num_threads(1)
    [found] = add_answer_probabilities(
        [group], family=Family(), renderer=renderer, model=model, temperature=1.0, micro_batch_tokens=1000
    )
    return [{signal.name: signal.value for signal in turn.signals} for turn in found.trajectories[0].turns]


def test_only_the_answers_own_tokens_count(renderer: TagRenderer) -> None:
    reply, own = encode_answer(Family(), renderer, TASK)
    assert renderer._tokenizer.decode(reply[own]).strip() == "Port Vessa"
    assert renderer._tokenizer.decode(reply).replace(" ", "") == "<answer>PortVessa</answer>"


def test_a_policy_that_knows_nothing_gives_every_token_one_in_300(renderer: TagRenderer) -> None:
    model = build()
    with torch.no_grad():
        for parameter in model.lm_head.parameters():
            parameter.zero_()
    found = score(renderer, model, make_group(3))
    assert [row["answer_probability"] for row in found] == pytest.approx([1 / 300] * 3, rel=1e-5)
    assert found[0][PRIOR_PART] == pytest.approx(1 / 300, rel=1e-5)
    assert PRIOR_PART not in found[1]


def test_the_probability_is_that_of_the_conversation_so_far(renderer: TagRenderer) -> None:
    model = build(initializer_range=0.5)
    two, three = score(renderer, model, make_group(2)), score(renderer, model, make_group(3))
    # The same first turns: the same numbers. The last turn has no observations after it and keeps the number before it.
    assert two[0] == pytest.approx(three[0], rel=1e-4)
    assert two[1]["answer_probability"] == two[0]["answer_probability"]
    assert three[1]["answer_probability"] != pytest.approx(three[0]["answer_probability"], rel=1e-3)
    # By hand: the geometric mean over the answer's tokens after turn 0 and its observation (the context of turn 1).
    reply, own = encode_answer(Family(), renderer, TASK)
    tokens = torch.tensor([[10, 5, 6, 11, *reply.tolist()]])
    from turnwise.core.types import Origin, Sample, to_mask
    from turnwise.training.forward import score_logprobs

    mask = np.zeros(tokens.shape[1], bool)
    mask[4 + own.start : 4 + own.stop] = True
    nothing = to_floats(np.zeros(len(mask)))
    sample = Sample(
        token_ids=to_ids(tokens[0].numpy()),
        loss_mask=to_mask(mask),
        behavior_logprobs=nothing,
        advantages=nothing,
        version_first=0,
        version_last=0,
        origin=Origin(task_id="", group_id="", member=0),
    )
    [logprobs] = score_logprobs(model, [sample], 1.0, micro_batch_tokens=100)
    assert two[0]["answer_probability"] == pytest.approx(float(np.exp(logprobs.mean())), rel=1e-4)


def test_credit_reads_the_gains(renderer: TagRenderer) -> None:
    [group] = add_answer_probabilities(
        [make_group(3)],
        family=Family(),
        renderer=renderer,
        model=build(initializer_range=0.5),
        temperature=1.0,
        micro_batch_tokens=1000,
    )
    [seen] = to_credit_trajectories([group])
    assert seen.parts[PRIOR_PART] == group.trajectories[0].turns[0].signals[-1].value
    assert all(turn.answer_probability is not None for turn in seen.turns)
    assert set(compute_advantages(build_credit("igpo"), [group], [seen])) == {("g", 0)}


def test_an_answer_without_tokens_is_refused(renderer: TagRenderer) -> None:
    empty = Task(environment="e", prompt=(text_message("user", "q"),), payload={"answers": [""]})
    with pytest.raises(ConfigError, match=r"the right answer '' of task .* has no token of its own"):
        encode_answer(Family(), renderer, empty)


def test_built_in_families_know_their_answers() -> None:
    for recipe, overrides in (("search_r1", ["environment.args.num_entities=20"]), ("retool", [])):
        path = TINY.parents[1] / recipe / "tiny.toml"
        if not path.exists():
            continue
        family = build_family(load_config([path], overrides))
        assert isinstance(family, GoldAnswers)
        task = family.task("train", 0)
        assert family.gold_answer(task) in family.answer_reply(family.gold_answer(task)).text
