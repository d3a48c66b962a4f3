"""Tools and results of servers as a model reads them: pure functions of the protocol's objects."""

from __future__ import annotations

import base64
from fnmatch import fnmatchcase

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.errors import ConfigError, PictureError
from turnwise.core.types import TextPart, ToolSpec
from turnwise.pictures.pixels import to_part, to_png
from turnwise.tools.mcp.results import MAX_NAME, hide_parameters, name_tools, to_seen, to_text


def test_a_schema_is_handed_on_as_it_is():
    schema = {
        "type": "object",
        "properties": {
            "unit": {"$ref": "#/$defs/Unit"},
            "deep": {"type": "object", "properties": {"x": {"enum": [1]}}},
        },
        "required": ["unit"],
        "$defs": {"Unit": {"enum": ["m", "ft"]}},
    }
    (tool,) = name_tools([("s", {"name": "convert", "inputSchema": schema})])
    assert tool.spec == ToolSpec(name="convert", description="", parameters=schema)


def test_names_become_writable_and_different():
    listed = [
        ("fs", {"name": "read file/now"}),
        ("fs", {"name": "read_file_now"}),
        ("web", {"name": "read file/now"}),
        ("web", {"name": "日本"}),
    ]
    tools = name_tools(listed)
    assert [tool.spec.name for tool in tools] == ["read_file_now", "fs_read_file_now", "web_read_file_now", "_"]
    assert [tool.name for tool in tools] == [tool["name"] for _, tool in listed]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.text(max_size=80)), max_size=12, unique=True))
def test_every_name_can_be_written_and_none_is_given_twice(pairs: list[tuple[str, str]]):
    tools = name_tools([(label, {"name": name}) for label, name in pairs])
    names = [tool.spec.name for tool in tools]
    assert len(set(names)) == len(pairs)
    assert all(0 < len(name) <= MAX_NAME and name.isascii() for name in names)
    assert all(char.isalnum() or char in "_-" for name in names for char in name)


def test_a_server_with_two_tools_of_one_name_is_refused():
    with pytest.raises(ConfigError, match="'s' has two tools named 'a'"):
        name_tools([("s", {"name": "a"}), ("s", {"name": "a"})])


def test_filled_in_parameters_are_hidden():
    schema = {"type": "object", "properties": {"house": {}, "thing": {}}, "required": ["house", "thing"]}
    spec = hide_parameters(ToolSpec(name="t", description="", parameters=schema), ["house"])
    assert spec.parameters == {"type": "object", "properties": {"thing": {}}, "required": ["thing"]}


def test_text_parts_are_joined_and_others_are_named_with_their_size():
    image = base64.b64encode(b"12345").decode()  # 8 characters with one "=": 8 * 3 / 4 - 1 = 5 bytes
    content = [
        {"type": "text", "text": "first"},
        {"type": "image", "mimeType": "image/png", "data": image},
        {"type": "resource_link", "uri": "file:///a", "size": 7},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///c", "blob": image}},
        {"type": "hologram"},
    ]
    assert to_text({"content": content, "structuredContent": {"unused": 1}}).split("\n") == [
        "first",
        "[image image/png, 5 bytes]",
        "[resource file:///a, 7 bytes]",
        "inside",
        "[resource file:///c, 5 bytes]",
        "[hologram content]",
    ]


def test_structured_content_stands_in_for_missing_parts():
    assert to_text({"content": [], "structuredContent": {"bay": 3}}) == '{"bay": 3}'
    assert to_text({"content": []}) == ""


def test_pictures_are_shown_in_their_places():
    picture = to_part(np.full((2, 3, 3), 10, np.uint8))
    image = base64.b64encode(to_png(picture)).decode()
    content = [
        {"type": "text", "text": "first"},
        {"type": "text", "text": "second"},
        {"type": "image", "mimeType": "image/PNG", "data": image},
        {"type": "text", "text": "third"},
        {"type": "image", "mimeType": "image/svg+xml", "data": image},
        {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"},
        {"type": "resource", "resource": {"uri": "file:///b", "mimeType": "image/jpg", "blob": image}},
    ]
    assert to_seen({"content": content}, "the result") == (
        TextPart(text="first\nsecond"),
        picture,
        TextPart(text=f"third\n[image image/svg+xml, {len(to_png(picture))} bytes]\n[audio audio/wav, 3 bytes]"),
        picture,
    )
    assert to_seen({"content": [], "structuredContent": {"bay": 3}}, "the result") == (TextPart(text='{"bay": 3}'),)
    assert to_seen({"content": []}, "the result") == (TextPart(text=""),)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ("!", "image 0 of the result is no base64 (*); encode the whole file with base64.b64encode"),
        ("", "image 0 of the result is empty; give a whole file"),
        ("AAAA", "image 0 of the result is no picture that can be read; give PNG, JPEG, WebP, GIF or BMP, undamaged"),
        ("/etc/passwd.png", "image 0 of the result is no base64 (*"),
        ("file:///etc/passwd", "image 0 of the result is no base64 (*"),
    ],
)
def test_an_image_that_is_none_is_named(data: str, line: str):
    with pytest.raises(PictureError) as raised:
        to_seen({"content": [{"type": "image", "mimeType": "image/png", "data": data}]}, "the result")
    assert fnmatchcase(str(raised.value), line)
