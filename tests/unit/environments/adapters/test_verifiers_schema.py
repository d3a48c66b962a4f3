"""The schema of a function's arguments keeps what its references point to."""

from __future__ import annotations

from pydantic import BaseModel

from turnwise.environments.adapters.verifiers import describe_tool


class Place(BaseModel):
    page: int


def look(place: Place) -> str:
    """Look at a place."""
    return str(place)


def test_definitions_are_kept() -> None:
    parameters = describe_tool(look, "").parameters
    assert parameters["properties"]["place"] == {"$ref": "#/$defs/Place"}
    assert parameters["$defs"]["Place"]["required"] == ["page"]
