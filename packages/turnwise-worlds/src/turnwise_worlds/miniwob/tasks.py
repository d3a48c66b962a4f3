"""The tasks of MiniWoB++, alone and in groups."""

from __future__ import annotations

from collections.abc import Iterable

GROUPS: dict[str, tuple[str, ...]] = {
    "tiny": (
        "choose-list",
        "click-dialog-2",
        "click-tab",
        "enter-password",
        "enter-text",
        "focus-text-2",
        "login-user",
    ),
    "names": ("click-button", "click-color", "click-link"),
    "clicking": (
        "click-button",
        "click-color",
        "click-dialog",
        "click-dialog-2",
        "click-link",
        "click-tab",
        "click-test",
        "click-test-2",
        "click-widget",
        "focus-text",
        "focus-text-2",
    ),
    "forms": (
        "choose-list",
        "click-checkboxes",
        "click-option",
        "enter-password",
        "enter-text",
        "login-user",
    ),
}
"""Tasks that belong together. A model of 0.3 million parameters learns those of "tiny"; those of "names" ask for the
number beside a name, which it does not learn in as many episodes."""

_NAMES = """
ascending-numbers bisect-angle book-flight-nodelay book-flight button-delay buy-ticket chase-circle choose-date-easy
choose-date-medium choose-date-nodelay choose-date choose-list circle-center click-button-sequence click-button
click-checkboxes-large click-checkboxes-soft click-checkboxes-transfer click-checkboxes click-collapsible-2-nodelay
click-collapsible-2 click-collapsible-nodelay click-collapsible click-color click-dialog-2 click-dialog click-link
click-menu-2 click-menu click-option click-pie-nodelay click-pie click-scroll-list click-shades click-shape
click-tab-2-easy click-tab-2-hard click-tab-2-medium click-tab-2 click-tab click-test-2 click-test-transfer click-test
click-widget copy-paste-2 copy-paste count-shape count-sides daily-calendar drag-box drag-circle drag-cube
drag-items-grid drag-items drag-shapes-2 drag-shapes drag-single-shape drag-sort-numbers draw-circle draw-line
email-inbox-delete email-inbox-forward-nl-turk email-inbox-forward-nl email-inbox-forward email-inbox-important
email-inbox-nl-turk email-inbox-noscroll email-inbox-reply email-inbox-star-reply email-inbox enter-date
enter-password enter-text-2 enter-text-dynamic enter-text enter-time find-greatest find-midpoint find-word
focus-text-2 focus-text form-sequence-2 form-sequence-3 form-sequence generate-number grid-coordinate guess-number
highlight-text-2 highlight-text hot-cold hover-shape identify-shape login-user-popup login-user moving-items
multi-layouts multi-orderings navigate-tree number-checkboxes odd-or-even order-food phone-book read-table-2
read-table resize-textarea right-angle scroll-text-2 scroll-text search-engine sign-agreement simon-says
simple-algebra simple-arithmetic social-media-all social-media-some social-media stock-market terminal text-editor
text-transform tic-tac-toe unicode-test use-autocomplete-nodelay use-autocomplete use-colorwheel-2 use-colorwheel
use-slider-2 use-slider use-spinner visual-addition
"""
TASKS = frozenset(_NAMES.split())
"""Every page of the package."""


def expand(names: Iterable[str]) -> tuple[str, ...]:
    """Return the tasks of a list of tasks and groups, each once. Raises ValueError naming an unknown one."""
    found: dict[str, None] = {}
    for name in names:
        if name not in GROUPS and name not in TASKS:
            raise ValueError(f"tasks={name!r} is neither a task of MiniWoB++ nor a group ({', '.join(GROUPS)})")
        found.update(dict.fromkeys(GROUPS.get(name, (name,))))
    return tuple(found)
