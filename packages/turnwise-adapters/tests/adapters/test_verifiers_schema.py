"""A function's arguments as the model is told of them, and as the function gets them."""

from __future__ import annotations

import asyncio
import datetime
import json
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from turnwise.core.types import ToolCall
from turnwise.tools.tool import run_tool
from turnwise_adapters.verifiers import build_tool


class Place(BaseModel):
    page: int = Field(ge=1)


class Book:
    def look(
        self,
        place: Place,
        others: list[Place],
        day: datetime.date,
        copy: Literal["first", "second"] = "first",
        lines: Annotated[int, Field(description="How many.")] = Field(default=3, le=9),
        note=None,  # type: ignore[no-untyped-def] # a parameter without a type
    ) -> str:
        """Look at a place."""
        return f"{place!r} {others!r} {day!r} {copy} {lines} {note}"

    async def look_later(self, place: Place) -> str:
        """Look at a place."""
        return f"{place!r}"


def call(function: object, **arguments: object) -> tuple[str, str | None]:
    made = ToolCall(id="1", name="book_look", arguments=json.dumps(arguments))
    record = asyncio.run(run_tool(build_tool(function, "book"), made, timeout_s=30, max_chars=1000))  # type: ignore[arg-type]
    return record.observation, record.error


def test_definitions_are_kept() -> None:
    tool = build_tool(Book().look, "book")
    assert (tool.spec.name, tool.spec.description) == ("book_look", "Look at a place.")
    parameters = tool.spec.parameters
    assert parameters["required"] == ["place", "others", "day"]
    assert parameters["properties"]["place"] == {"$ref": "#/$defs/Place"}
    assert parameters["properties"]["note"] == {"default": None, "title": "note", "type": "string"}
    assert parameters["properties"]["lines"]["description"] == "How many."
    assert parameters["$defs"]["Place"]["required"] == ["page"]


def test_a_function_gets_what_its_annotations_say() -> None:
    said = "Place(page=2) [Place(page=3)] datetime.date(2024, 2, 29) first 3 None"
    assert call(Book().look, place={"page": 2}, others=[{"page": 3}], day="2024-02-29") == (said, None)
    assert call(Book().look_later, place={"page": 2}) == ("Place(page=2)", None)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"place": {"page": 0}}, "error: page of place of book_look: 0 is less than the minimum of 1"),
        ({"place": 7}, "error: place of book_look must be of type object, not integer"),
        ({"day": "2023-02-29"}, "error: day of book_look: Input should be a valid date"),  # past the schema's check
        ({"where": 1}, "error: book_look takes place, others, day, copy, lines, note; unknown: where"),
    ],
)
def test_what_the_annotations_refuse_is_told_to_the_model(changes: dict[str, object], said: str) -> None:
    observation, error = call(Book().look, **{"place": {"page": 2}, "others": [], "day": "2024-02-29", **changes})
    assert observation.startswith(said)
    assert error == observation
