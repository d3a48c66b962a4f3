"""Names of entities: combinations of words from small lists, each name belonging to one split.

The two splits share words but no names: a policy that learned the training names has seen every word of the held-out
names, but none of these names.
"""

from __future__ import annotations

import hashlib
from random import Random
from typing import Literal

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Split

EntityType = Literal["person", "place", "organisation", "work"]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_FIRST = _words(
    "Mira Orin Lena Tavi Sela Bram Ines Koro Dara Emil Faye Gant Hana Ivo Jora Kian Lior Maro Nela Odin Petra Quin "
    "Rhea Sven Tamsin Uma Vera Wes Xena Yara Zeno Alba Boris Cleo Dorin Elsa Finn Greta Hugo Isla Juno Karel Luna Milo "
    "Nora Oskar Pia Rolf Sana Timo Ulla Vito Wanda Yuri Zora Anton Bela Ciro Della Edda Floris Gilda Henk Irma"
)
_LAST = _words(
    "Tolen Vale Harrow Brandt Quill Sorrel Marsh Tindal Okoro Pell Ravn Stroud Teller Umber Voss Wyatt Ziegler Arden "
    "Bexley Corvin Drake Easton Falk Grier Hale Ingram Jansen Keller Lowell Mercer Nash Ormond Penn Reyes Sutter "
    "Thorne Ulrich Varga Weller Yates Abel Bishop Carver Dunn Ellery Frost Gable Holt Ives Jarvis Kemp Lund Moss Novak "
    "Otto Price Rowe Shaw Tait Upton Vance Webb York Zell"
)
_PLACE_FIRST = _words("Port Upper Lower East West North South Old New Mount Lake Fort Saint Little Great Inner")
_PLACE_LAST = _words(
    "Vessa Ardun Belmar Corrin Dravik Elmor Fenwick Gorsa Hallin Istra Jorvik Kessel Lomar Morrin Nerida Oltan Prava "
    "Quorin Rasmel Sarno Tyrell Ulmen Verdan Wexford Yorrin Zamora Astel Brenna Calder Dorne Esker Farrow Glenna "
    "Hestia Irwell Jasper Kirna Lorne Mavra Nolan Orsay Pellin Quade Rindal Stavan Torvik Umbra Valen Wrenna Xanthe "
    "Yarrow Zelda Almere Borga Cresta Dunmor Elara Fosse Grandin Hovel Ilmar Jutta Korsa Lindal"
)
_ORGANISATION_LAST = _words(
    "Institute Guild Society Trust Works Company Union League Press House Bureau Academy Council Studio Foundation "
    "Group Archive Museum Theatre Library Bank Clinic School Laboratory Workshop Orchestra Mill Brewery Foundry "
    "Observatory Shipyard Garden"
)
_WORK_FIRST = _words(
    "Blue Silent Golden Broken Hidden Crimson Winter Empty Distant Burning Hollow Silver Wild Pale Iron Gentle Amber "
    "Bitter Bright Cold Copper Dark Deep Early Faint Green Grey Heavy Ivory Jade Late Light Lonely Lost Narrow Noble "
    "Open Plain Proud Quiet Rapid Red Restless Salt Scarlet Secret Sleeping Slow Small Solemn Stone Strange Sudden "
    "Sunken Tall Tender Thin Velvet Violet Wandering Warm White Wise Young"
)
_WORK_LAST = _words(
    "Lantern River Mirror Orchard Harbor Letter Bridge Tower Window Forest Compass Feather Anchor Candle Shadow Meadow "
    "Crown Ladder Island Kettle Thread Valley Bell Bottle Branch Button Canyon Castle Cedar Circle Cloud Desert Door "
    "Drum Engine Falcon Field Flame Flute Fountain Gate Glass Hammer Horse Key Kite Leaf Maple Moon Needle Ocean Paper "
    "Pearl Rain Ring Road Sail Shell Song Spark Star Storm Table Wheel"
)

WORDS: dict[EntityType, tuple[tuple[str, ...], ...]] = {
    "person": (_FIRST, _LAST),
    "place": (_PLACE_FIRST, _PLACE_LAST),
    "organisation": (_LAST, _ORGANISATION_LAST),
    "work": (_WORK_FIRST, _WORK_LAST),
}
"""The words of a name, in order. If two words do not give enough names, words from `_MIDDLE` are inserted between
them."""
MAX_WORDS = max(len(words) for lists in WORDS.values() for words in lists)
"""Length of the longest list."""
_MIDDLE: dict[EntityType, tuple[str, ...]] = {
    "person": _FIRST,
    "place": _LAST,
    "organisation": _PLACE_LAST,
    "work": _WORK_FIRST,
}


def split_of(name: str) -> Split:
    """Return the one split whose worlds may use this name, by a fair coin toss with a hash of the name."""
    return "train" if hashlib.blake2b(name.encode(), digest_size=1).digest()[0] < 128 else "heldout"


def choose_names(
    kind: EntityType, count: int, split: Split, rng: Random, used: set[str], num_words: int = MAX_WORDS
) -> list[str]:
    """Choose `count` new names of one split, and add them to `used`.

    Only the first `num_words` words of each list are used: fewer words are a smaller vocabulary to learn. Names have
    two words while enough of these exist, and more words otherwise, so that at most half of the possible names are
    used. Raises ConfigError if even four words do not give enough names.
    """
    first, last = (words[:num_words] for words in WORDS[kind])
    middle = _MIDDLE[kind][:num_words]
    num_middle = 0
    while 4 * (count + len(used)) > len(first) * len(middle) ** num_middle * len(last):
        num_middle += 1
    if num_middle > 2:
        raise ConfigError(
            f"a world with {count} entities of type {kind} needs more names than exist; lower num_passages or "
            "num_entities"
        )
    names: list[str] = []
    while len(names) < count:
        name = " ".join((rng.choice(first), *(rng.choice(middle) for _ in range(num_middle)), rng.choice(last)))
        if name not in used and split_of(name) == split:
            used.add(name)
            names.append(name)
    return names
