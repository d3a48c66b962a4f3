"""Plain classes that show pictures: what `reset` and tools may return, and what becomes of a picture that is none."""

import asyncio
import json
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from turnwise.core.errors import EnvironmentFault
from turnwise.core.messages import ImagePart, Message, Part, TextPart
from turnwise.core.types import Scored, ToolCall, text_message
from turnwise.environments.classes.family import ClassFamily
from turnwise.environments.episodes import Played, play_episode
from turnwise.environments.tool_environment import hash_calls
from turnwise.pictures.crop import read_crop, zoom
from turnwise.pictures.pixels import to_data_url, to_part, to_png

RED, BLUE = (Image.new("RGB", (40, 30), colour) for colour in ("red", "blue"))
RED_PART, BLUE_PART = (to_part(np.asarray(image)) for image in (RED, BLUE))


class Shown:
    """Shows what a test wants."""

    opening: Any = "Look."
    answer: Any = ""

    def reset(self, **row: object) -> object:
        return self.opening

    def look(self) -> object:
        """Look."""
        return self.answer

    def get_reward(self) -> float:
        return 1.0


class Replies:
    """Calls `look` once, then ends."""

    def reply(self, task: object, messages: list[Message], rng: object) -> Message:
        if any(message.role == "tool" for message in messages):
            return text_message("assistant", "done")
        return text_message("assistant", "", tool_calls=(ToolCall(id="a", name="look", arguments="{}"),))


def play(**members: Any) -> Played:
    family = ClassFamily(type("Shown", (Shown,), members))
    return asyncio.run(play_episode(family, family.task("train", 0), Replies(), seed=0, max_turns=3))  # type: ignore[arg-type]


def text(words: str) -> TextPart:
    return TextPart(text=words)


@pytest.mark.parametrize(
    ("returned", "parts"),
    [
        (RED, [RED_PART]),
        (RED_PART, [RED_PART]),
        ([RED, "and", BLUE_PART], [RED_PART, text("and"), BLUE_PART]),
        (
            [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "image", "image": RED}],
            [text("ab"), RED_PART],
        ),
        ([{"type": "image_url", "image_url": {"url": to_data_url(BLUE_PART)}}], [BLUE_PART]),
        ([{"role": "user", "content": [{"type": "image", "image": RED}, "What?"]}], [RED_PART, text("What?")]),
    ],
)
def test_what_reset_may_show(returned: object, parts: list[Part]) -> None:
    [message] = play(opening=returned).opening.messages
    assert list(message.content) == parts
    assert all(part.pixels is not None for part in message.images)


@pytest.mark.parametrize(
    ("answer", "parts"),
    [
        (RED, [RED_PART]),
        (RED_PART, [RED_PART]),
        ((RED, "seen", BLUE), [RED_PART, text("seen"), BLUE_PART]),
        ([{"type": "image", "image": RED}, {"type": "text", "text": "seen"}], [RED_PART, text("seen")]),
        ([RED, {"x": 1}], [RED_PART, text('{"x": 1}')]),
        ([{"type": "button"}], [text('[{"type": "button"}]')]),
        ([1, 2], [text("[1, 2]")]),
        (np.zeros((1, 1, 3), np.uint8), [text("[[[0, 0, 0]]]")]),
    ],
)
def test_what_a_tool_may_show(answer: object, parts: list[Part]) -> None:
    played = play(answer=answer)
    result = played.results[0]
    [message] = result.observations
    assert list(message.content) == parts
    assert (message.role, message.tool_call_id, message.name) == ("tool", "a", "look")
    [record] = result.tool_records
    assert record.error is None
    assert record.observation == message.text
    assert list(record.content) == (parts if message.images else [])
    assert all(part.pixels is None for part in record.content if isinstance(part, ImagePart))
    assert played.reward == Scored(total=1.0)


def test_states_differ_by_the_picture_that_was_seen() -> None:
    records = [play(answer=image).results[0].tool_records for image in (RED, BLUE, RED)]
    hashes = [hash_calls("task", each) for each in records]
    assert hashes[0] == hashes[2] != hashes[1]


def test_long_text_is_cut_and_pictures_stay() -> None:
    family = ClassFamily(
        type("Shown", (Shown,), {"answer": ["abc", RED, "defgh", BLUE, "ij"]}), max_observation_chars=5
    )
    played = asyncio.run(play_episode(family, family.task("train", 0), Replies(), seed=0, max_turns=3))  # type: ignore[arg-type]
    [record] = played.results[0].tool_records
    # 10 characters, of which 5 are kept: abc and de
    assert list(record.content) == [text("abc"), RED_PART, text("de [... 5 characters cut]"), BLUE_PART]
    assert record.clipped_chars == 5


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            [{"type": "image", "image": "gone.png"}],
            "picture 0 of the result of tool 'look': there is no file 'gone.png'; check the path; base64 needs "
            "data:image/png;base64, before it",
        ),
        (Image.open(BytesIO(to_png(BLUE_PART)[:-30])), "the result of tool 'look' cannot be decoded; give a whole"),
        (Image.new("F", (2, 2)), "the result of tool 'look' has pixels of Pillow's mode 'F'"),
        ({"screen": RED}, "the result has a picture inside a dict or a list of lists; return it alone or in a list"),
        ([[RED]], "the result has a picture inside a dict or a list of lists; return it alone or in a list"),
        ({"screen": RED_PART}, "the result has a picture inside a dict"),
    ],
)
def test_a_picture_that_cannot_be_read_is_the_tools_fault(answer: object, words: str) -> None:
    if isinstance(answer, list) and isinstance(answer[0], dict):
        answer = [*answer, "two"]
    [record] = play(answer=answer).results[0].tool_records
    assert words in record.observation
    assert record.observation.startswith("error: ")
    assert "\n" not in record.observation
    assert record.content == ()


def test_a_picture_that_reset_cannot_show_is_one_clear_line() -> None:
    with pytest.raises(EnvironmentFault) as raised:
        play(opening=[{"type": "image", "image": "https://example.org/a.png"}, "What?"])
    assert str(raised.value) == (
        "Shown.reset: part 0 of its content is the address 'https://example.org/a.png', and nothing is downloaded; "
        "save the picture and give its path"
    )


class Page:
    """A page to zoom into."""

    def reset(self, **row: object) -> object:
        self.page = to_part(np.arange(60 * 80 * 3, dtype=np.uint32).astype(np.uint8).reshape(60, 80, 3))
        return [self.page, "Where?"]

    def image_zoom_in_tool(self, bbox_2d: list[float]) -> object:
        """Zoom in.

        Args:
            bbox_2d: Left, top, right and bottom.
        """
        return zoom(self.page, bbox_2d, size=(32, 32))

    def get_reward(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("box", "answer"),
    [
        ([0, 0, 40, 40], (0, 0, 40, 40)),
        ([70, 50, 90, 90], (52, 32, 80, 60)),
        ([40, 0, 0, 40], "error: bbox_2d must be [left, top, right, bottom] with left < right and top < bottom"),
        ([100, 100, 120, 120], "error: bbox_2d is outside the image, which has 80 x 60 pixels"),
    ],
)
def test_a_model_zooms_and_is_told_of_a_wrong_box(box: list[int], answer: object) -> None:
    async def run() -> Message:
        environment = ClassFamily(Page).build_environment(task)
        try:
            await environment.reset(task, 0)
            call = ToolCall(id="a", name="image_zoom_in_tool", arguments=json.dumps({"bbox_2d": box}))
            result = await environment.step(text_message("assistant", "", tool_calls=(call,)))
            return result.observations[0]
        finally:
            await environment.close()

    task = ClassFamily(Page).task("train", 0)
    message = asyncio.run(run())
    if isinstance(answer, str):
        assert (message.text, message.images) == (answer, ())
    else:
        [picture] = message.images
        made = read_crop(picture.label)
        assert made is not None
        assert (made.box, made.size, picture.width, picture.height) == (answer, (32, 32), 32, 32)
