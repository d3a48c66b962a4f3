"""Records of calls that a program answered with pictures."""

import numpy as np

from turnwise.core.types import Message, TextPart, ToolCall
from turnwise.gateway.turns import list_records
from turnwise.pictures.pixels import to_part
from turnwise.testing import make_turn

PART = to_part(np.zeros((2, 4, 3), np.uint8))
CALL = ToolCall(id="c", name="zoom", arguments="{}")


def test_a_record_has_the_pictures_of_the_answer_without_their_pixels() -> None:
    turn = make_turn([1], [2], message=Message(role="assistant", content=(), tool_calls=(CALL,)))
    answer = Message(role="tool", content=(TextPart(text="see"), PART), tool_call_id="c")
    [record] = list_records(turn, [answer], 1.0)
    assert (record.observation, record.content) == ("see", answer.content)
    assert record.content[1].pixels is None  # type: ignore[union-attr]
    [plain] = list_records(turn, [Message(role="tool", content=(TextPart(text="see"),), tool_call_id="c")], 1.0)
    assert plain.content == ()
