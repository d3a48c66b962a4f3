"""Your own reward for the search world: exact match, less a little for every search beyond the second.

turnwise train recipes/search_r1/tiny.toml environment.args.reward=own_reward:THRIFTY
(with this folder on PYTHONPATH). The cases run at start; a reward that fails its own cases never trains anything.
"""

from turnwise.core.types import Message, ToolCall, text_message
from turnwise.rewards.answers import AnswerCase, AnswerReward, exact_match, final_answer


def thrifty(case: AnswerCase) -> float:
    """1 for a right answer, less 0.1 per search beyond the second, at least 0.5; 0 for a wrong one."""
    answer = final_answer(case)
    if answer is None or not exact_match(answer, case.golds, case.normalize):
        return 0.0
    searches = sum(len(reply.tool_calls) for reply in case.replies)
    return max(0.5, 1.0 - 0.1 * max(0, searches - 2))


def _search() -> Message:
    return text_message("assistant", "", tool_calls=(ToolCall(id="call_0", name="search", arguments='{"query": "q"}'),))


def _answer(text: str) -> Message:
    return text_message("assistant", f"<answer> {text} </answer>")


THRIFTY = AnswerReward(
    name="thrifty",
    compute=thrifty,
    must_pass=(AnswerCase(replies=(_search(), _search(), _answer("the Vessa")), golds=("Vessa",)),),
    must_fail=(
        AnswerCase(replies=(_search(), _answer("Ardun")), golds=("Vessa",)),
        AnswerCase(replies=(_search(),), golds=("Vessa",)),
        AnswerCase(replies=(*[_search()] * 9, _answer("Vessa")), golds=("Vessa",)),
    ),
)

if __name__ == "__main__":
    from turnwise.rewards.selfcheck import check_reward

    check_reward(THRIFTY)
    print("the reward passes its own cases")
