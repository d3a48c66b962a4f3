"""How a text names the pictures of a message."""

from turnwise.core.messages import ImagePart, Message, TextPart, to_plain_text


def test_a_text_names_every_picture_in_its_place() -> None:
    part = ImagePart(digest="0123456789abcdef" * 4, width=64, height=48, label="no part of the content")
    message = Message(role="tool", content=(TextPart(text="before "), part, TextPart(text=" after"), part))
    assert to_plain_text(message) == "before [picture 64x48 0123456789ab] after[picture 64x48 0123456789ab]"
    assert message.text == "before  after"
