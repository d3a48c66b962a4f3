"""Pages as accessibility trees: what is read of HTML, and how it is written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise_worlds.web.actions import Click
from turnwise_worlds.web.named import find_named
from turnwise_worlds.web.page import Node, options_of
from turnwise_worlds.web.site.markup import bullets, button, choice, form, link, tag, text_field, ticked
from turnwise_worlds.web.snapshot import extract, format_aria, format_page, format_short
from turnwise_worlds.web.yaml_text import quote_key, quote_value

PAGE = """<!DOCTYPE html><html><head><title> A  page </title><style>p {}</style></head><body><nav><ul><li>
<a href="/a">One <b>two</b></a></li></ul></nav><h2>Head</h2><p>Text <em>with</em> more</p><ul></ul>
<form action="/go" method="post"><input type="hidden" name="id" value="7"><label for="q">Query</label>
<input id="q" name="q" value="25"><fieldset><legend>colour</legend>
<input type="radio" name="c" value="r" id="r" checked> <label for="r">red</label></fieldset>
<select name="s"><option>yes</option><option selected>no</option></select>
<button name="do" value="x">Go: now</button></form></body></html>"""
ARIA = """\
- navigation:
  - list:
    - listitem:
      - link "One two":
        - /url: /a
- heading "Head" [level=2]
- paragraph:
  - text: Text
  - emphasis: with
  - text: more
- list
- text: Query
- textbox "Query": "25"
- group "colour":
  - text: colour
  - radio "red" [checked]
  - text: red
- combobox:
  - option "yes"
  - option "no" [selected]
- 'button "Go: now"'"""
NUMBERED = """\
[1] link One two
heading Head
Text
with
more
Query
[2] textbox Query: 25
group colour
colour
[3] radio red checked
red
[4] combobox: no
option yes
option no
[5] button Go: now"""


def test_a_page_by_hand() -> None:
    page = extract(PAGE)
    assert page.title == "A page"
    assert format_aria(page) == ARIA
    assert format_page(page) == NUMBERED
    assert format_short(page) == " One two Text with more Query Query 25 colour red on red no Go: now"
    assert page.forms[0].hidden == (("id", "7"),)
    assert (page.forms[0].action, page.forms[0].method) == ("/go", "POST")
    assert options_of(page, 4) == ["yes", "no"]


def test_filling_changes_what_is_shown() -> None:
    page = extract(PAGE).fill(2, "").fill(4, "yes")
    assert '- textbox "Query"\n' in format_aria(page)
    assert '- option "yes" [selected]\n  - option "no"\n' in format_aria(page)
    boxes = str(ticked("radio", "a", "x", "a")) + ticked("radio", "b", "x", "b") + ticked("checkbox", "c", "y", "c")
    page = extract(form("get", "/", ticked("radio", "z", "x", "z")) + boxes)
    for number, values in (
        (2, ["", "on", "", ""]),
        (3, ["", "", "on", ""]),
        (4, ["", "", "on", "on"]),
        (4, ["", "", "on", ""]),
    ):
        page = page.tick(number)  # the first radio button is in a form of its own, another group
        assert [node.value for node in page.nodes if node.number] == values
    with pytest.raises(ValueError, match="no element 9"):
        page.tick(9)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("25", '"25"'),
        ("-5", '"-5"'),
        ("0x1f", '"0x1f"'),
        ("$25", "$25"),
        ("Yes", '"Yes"'),
        ("a: b", '"a: b"'),
        ("a:b", "a:b"),
        ("a #b", '"a #b"'),
        ('"x"', '"\\"x\\""'),
        ("[1]", '"[1]"'),
        ("a\tb", "a\tb"),
        ("\x01", '"\\x01"'),
        ("{}", '"{}"'),
        ("", '""'),
    ],
)
def test_values_that_yaml_reads_as_something_else_are_quoted(text: str, value: str) -> None:
    assert quote_value(text) == value


yaml = pytest.importorskip("yaml")
OTHER_RULES = ("~", "=", "<<")
"""What YAML reads as something else, and Playwright leaves as it is."""
LINES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp", "Cs")), min_size=1).filter(
    lambda text: text == " ".join(text.split())
)


@given(text=LINES)
def test_quoted_texts_are_read_back(text: str) -> None:
    if text.isprintable() and text not in OTHER_RULES:
        assert yaml.safe_load(f"- text: {quote_value(text)}") == [{"text": text}]
        assert yaml.safe_load(f"- {quote_key(f'link {json.dumps(text, ensure_ascii=False)}')}: x") == [
            {f"link {json.dumps(text, ensure_ascii=False)}": "x"}
        ]


@given(texts=st.lists(LINES, min_size=6, max_size=6))
def test_what_the_site_writes_is_read_again(texts: list[str]) -> None:
    first, second, third, fourth, fifth, sixth = texts
    page = extract(
        tag("body", bullets(link(first, "/x?a=1&b=2")))
        + form("post", "/y", text_field(second, "q", third), button(fourth), k=fifth)
        + choice("c", "c", (sixth,), sixth)
    )
    named = {node.role: node for node in page.nodes if node.number}
    assert (named["link"].name, named["link"].target) == (first, "/x?a=1&b=2")
    assert (named["textbox"].name, named["textbox"].value) == (second, third)
    assert named["button"].name == fourth
    assert page.forms[0].hidden == (("k", fifth),)
    assert (named["combobox"].value, named["combobox"].name) == (sixth, "c")
    assert [node.number for node in page.nodes if node.number] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ('Say "hello"', '- button "Say \\"hello\\""'),
        ("Save: all", "- 'button \"Save: all\"'"),
        ("it's: a", "- 'button \"it''s: a\"'"),
        ("-", '- button "-"'),
        ("@header", '- button "@header"'),
        ("back\\slash", '- button "back\\\\slash"'),
    ],
)
def test_names_that_need_quotes_keep_their_numbers(name: str, line: str) -> None:
    page = extract(button("Plain") + tag("button", name))
    assert format_aria(page) == f'- button "Plain"\n{line}'
    assert find_named(page, name) == Click(2)


def test_texts_that_yaml_reads_as_lists_are_quoted() -> None:
    assert format_aria(extract("<h3>Title</h3> -")) == '- heading "Title" [level=3]\n- text: "-"'
    labelled = extract('<h1 aria-label="@header - label">@header</h1>')
    assert format_aria(labelled) == '- heading "@header - label" [level=1]: "@header"'


@given(
    html=st.text()
    | st.lists(st.sampled_from(("<p>", "</p>", "<a href=x>", "<ul>", "</div>", "<", "&#0;", "x"))).map("".join)
)
def test_any_text_is_a_page(html: str) -> None:
    assert all(isinstance(node, Node) for node in extract(html).nodes)
