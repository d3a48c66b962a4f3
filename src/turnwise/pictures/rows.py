"""The pictures of a data file's rows, in the layouts of TRL, verl and others.

    images   a column with a list of pictures; `image` with one. Each is what `read_picture` reads: a path relative to
             the file, a data URL, Hugging Face's {"bytes", "path"}, a Pillow image
    prompt   shows them, in order, at parts {"type": "image"} of its messages (TRL), or else at "<image>" in its texts
             (verl, LLaMA-Factory), or else, if it has neither, before the text of the first user message (TRL)

A part of a message may also have its picture in itself, as in chat APIs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from turnwise.core.errors import DataError, PictureError
from turnwise.core.messages import ImagePart, Message
from turnwise.pictures.read import KEYS, is_picture, read_picture

Row = dict[str, Any]
COLUMNS = ("images", "image")
"""Columns that have pictures."""
MARKER = "<image>"
"""What stands for a picture in a text."""
_FILE = re.compile(r"(?i)(data:|file:).*|.*\.(png|jpe?g|webp|gif|bmp)", re.DOTALL)
_FIELDS = ("digest", "width", "height", "label")
_SPEAKERS = ("user", "human")


class RowPictures:
    """Pictures of rows, known by digest: each is read once when its row is loaded, and again when it is shown, so that
    a file may have more of them than memory."""

    def __init__(self) -> None:
        """Starts without any."""
        self._sources: dict[str, tuple[Any, Path | None, str]] = {}

    def take(self, row: Mapping[str, Any], prompts: Sequence[str], folder: Path | None) -> Row:
        """Return the row with its pictures as `ImagePart` without pixels, in its columns and at their places in the
        first of the columns `prompts` that it has: a text, or a list of messages.

        Paths are relative to `folder`; None is the working folder. A row without pictures is returned unchanged. Raises
        DataError for a picture that cannot be read, and if the prompt has places for another number of them.
        """
        given = self._take_columns(row, folder)
        pictures = [each for value in given.values() for each in (value if isinstance(value, list) else [value])]
        name = next((name for name in prompts if row.get(name) is not None), None)
        if name is None:
            return {**row, **given}
        is_list = isinstance(row[name], list)
        messages = list(row[name]) if is_list else [{"content": row[name]}]
        if not all(isinstance(message, Mapping) for message in messages):
            return {**row, **given}  # no messages; whoever reads the prompt says so
        messages = _place(self._take_parts(messages, folder), pictures)
        return {**row, **given, name: messages if is_list else messages[0]["content"]}

    def _take_columns(self, row: Mapping[str, Any], folder: Path | None) -> Row:
        given: Row = {}
        for name in COLUMNS:
            if not has_pictures(row, name):
                continue
            value = row[name]
            if name == "images" and isinstance(value, list | tuple):
                given[name] = [self._read(each, f"picture {at} of images", folder) for at, each in enumerate(value)]
            else:
                given[name] = self._read(value, f"the picture of {name}", folder)
        if len(given) > 1:
            raise DataError('the row has "images" and also "image"; keep one of them')
        return given

    def _take_parts(self, messages: Sequence[Mapping[str, Any]], folder: Path | None) -> list[Row]:
        """Return messages whose parts with a picture in them have it read."""
        taken = []
        for index, message in enumerate(messages):
            content = message.get("content")
            if isinstance(content, list):
                content = [
                    self._take_part(part, f"message {index}: part {at} of its content", folder)
                    for at, part in enumerate(content)
                ]
                message = {**message, "content": content}
            taken.append(dict(message))
        return taken

    def _take_part(self, part: Any, where: str, folder: Path | None) -> Any:
        return self._read(part, where, folder) if is_picture(part) and not _is_hole(part) else part

    def _read(self, value: Any, where: str, folder: Path | None) -> ImagePart:
        part = read_picture(value, where=where, folder=folder)
        self._sources.setdefault(part.digest, (value, folder, where))
        return replace(part, pixels=None)

    def find(self, part: ImagePart) -> ImagePart:
        """Return a picture with its pixels; without them if no row here has it.

        Raises PictureError if its file is gone or shows another picture than when the row was loaded.
        """
        if part.pixels is not None or part.digest not in self._sources:
            return part
        value, folder, where = self._sources[part.digest]
        read = read_picture(value, where=where, folder=folder)
        if read != part:
            raise PictureError(f"{where} has changed since its row was loaded; restore it, or start the run again")
        return replace(part, pixels=read.pixels)

    def hash_all(self) -> str:
        """Return the SHA-256 of the digests of all pictures, in hexadecimal; empty if there are none."""
        return hashlib.sha256("".join(sorted(self._sources)).encode()).hexdigest() if self._sources else ""

    def fill(self, message: Message) -> Message:
        """Return a message whose pictures have their pixels. Raises as `find` does."""
        if not message.images:
            return message
        parts = (self.find(part) if isinstance(part, ImagePart) else part for part in message.content)
        return replace(message, content=tuple(parts))


def has_pictures(row: Mapping[str, Any], name: str) -> bool:
    """Return whether one of `COLUMNS` has pictures in a row, rather than another text of that name, such as the image
    of a container."""
    value = row.get(name)
    if value is None or (isinstance(value, list) and not value):
        return False
    return name != "image" or not isinstance(value, str) or _FILE.fullmatch(value) is not None


def refuse_pictures(row: Row, folder: Path | None = None) -> Row:
    """Return a row without pictures, for readers that show none. Raises DataError for one that has some."""
    if shown := [name for name in COLUMNS if has_pictures(row, name)]:
        raise DataError(
            f"{shown[0]!r} has pictures, which are not shown here (docs/pictures.md says where they are); leave the "
            "column out if the text says enough"
        )
    return row


def to_plain(row: Mapping[str, Any], prompt: str) -> Row:
    """Return a row from `RowPictures.take` as JSON: its pictures, in its columns and in the column `prompt`, as their
    digests and sizes."""
    plain = dict(row)
    for name in {*COLUMNS, prompt} & set(row):
        plain[name] = _map(row[name], ImagePart, _to_digest)
    return plain


def from_plain(row: Mapping[str, Any], prompt: str, change: Callable[[ImagePart], Any]) -> Row:
    """Return a row of `to_plain` with its pictures, as `change` returns them."""

    def change_digest(value: Mapping[str, Any]) -> Any:
        return change(ImagePart(**{key: value[key] for key in _FIELDS})) if set(value) == {"type", *_FIELDS} else None

    made = dict(row)
    for name in {*COLUMNS, prompt} & set(row):
        made[name] = _map(row[name], Mapping, change_digest)
    return made


def _map(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """Change the values of a kind among lists and dicts; where `change` returns None, look further inside."""
    if isinstance(value, kind) and (changed := change(value)) is not None:
        return changed
    if isinstance(value, Mapping):
        return {key: _map(each, kind, change) for key, each in value.items()}
    return [_map(each, kind, change) for each in value] if isinstance(value, list | tuple) else value


def _to_digest(part: ImagePart) -> Row:
    return {"type": "image", **{name: getattr(part, name) for name in _FIELDS}}


def _is_hole(part: object) -> bool:
    """Return whether a part of a message stands for a picture that is elsewhere."""
    return (
        isinstance(part, Mapping) and part.get("type") == "image" and not any(part.get(key) is not None for key in KEYS)
    )


def _place(messages: list[Row], pictures: Sequence[ImagePart]) -> list[Row]:
    """Return messages that show the pictures at their places. Raises DataError if their numbers differ."""
    num_holes = sum(_is_hole(part) for message in messages for part in _parts_of(message))
    num_marks = sum(text.count(MARKER) for message in messages for text in _texts_of(message)) if pictures else 0
    if num_holes or num_marks:
        num_places = num_holes or num_marks
        if num_places != len(pictures):
            what = 'parts {"type": "image"}' if num_holes else f"times {MARKER}"
            raise DataError(
                f"the row has {len(pictures)} pictures and its prompt {num_places} {what}; write one for each picture"
            )
        left = iter(pictures)
        return [_fill(message, left, split=not num_holes) for message in messages]
    if not pictures:
        return messages
    is_first = [message.get("role", message.get("from", "user")) in _SPEAKERS for message in messages]
    if True not in is_first:
        raise DataError(f"the row has {len(pictures)} pictures and its prompt no user message; add one to show them")
    at, key = is_first.index(True), _key(messages[is_first.index(True)])
    shown = {**messages[at], key: [*pictures, *_parts_of(messages[at])]}
    return [*messages[:at], shown, *messages[at + 1 :]]


def _key(message: Mapping[str, Any]) -> str:
    return "value" if "content" not in message and "value" in message else "content"


def _parts_of(message: Mapping[str, Any]) -> list[Any]:
    content = message.get(_key(message))
    return content if isinstance(content, list) else [content] if content is not None else []


def _texts_of(message: Mapping[str, Any]) -> list[str]:
    return [text for part in _parts_of(message) if (text := _text_of(part)) is not None]


def _text_of(part: Any) -> str | None:
    text = part.get("text") if isinstance(part, Mapping) else part
    return text if isinstance(text, str) else None


def _fill(message: Row, pictures: Iterator[ImagePart], *, split: bool) -> Row:
    """Return a message with the next pictures at its places: marks in its texts, or parts."""
    parts: list[Any] = []
    for part in _parts_of(message):
        text = _text_of(part)
        if split and text is not None and MARKER in text:
            before, *pieces = text.split(MARKER)
            parts.append(before)
            for piece in pieces:
                parts += [next(pictures), piece]
        else:
            parts.append(next(pictures) if not split and _is_hole(part) else part)
    is_shown = any(isinstance(part, ImagePart) for part in parts)
    return {**message, _key(message): [part for part in parts if part != ""]} if is_shown else message
