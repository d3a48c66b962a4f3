"""What the agent is told in a generated world."""

from __future__ import annotations

from turnwise_rewards.grounding.world.arguments import Rule
from turnwise_rewards.grounding.world.pages import RULES
from turnwise_rewards.grounding.world.reports import name_fact
from turnwise_synthesis.research.outline import Outline

FULL = (
    "Research this question and write a report: what is the {question}?\n"
    "The report has a section per subject, which states the facts listed for it: {outline}.\n"
    "Search the pages, and open them where a search shows only titles. Note every claim with its page as soon as you "
    "have read it: your context is limited, and when it is full you go on with your notes alone. Write each section "
    "with write_section when its facts are noted. A line of it has the form\n"
    "author of Blue Lantern : Mira Tolen [doc 17]\n"
    "and cites one page that you have read and that says so. Where two pages disagree, {rule}. Then name the other one "
    "in a line of its own:\n"
    "author of Blue Lantern : not Orin Vale [doc 4]\n"
    "Every other line, every repetition and every other citation counts against you. When all sections are written, "
    "give the answer to the question inside <answer> and </answer>; if it is wrong, the report earns nothing.\n"
)


def write_prompt(outline: Outline, rule: Rule, style: str) -> str:
    """Write the first message; in the style "terse" a record of what is asked, of which contexts show parts."""
    question = name_fact(outline.question)
    if style == "terse":
        return f"{question} {rule} | {outline.write()}\n"
    return FULL.format(question=question, outline=outline.write(), rule=RULES[rule])
