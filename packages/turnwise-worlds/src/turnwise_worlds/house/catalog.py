"""What a house is made of: kinds of places and things, where things belong, and what can be done with them.

The names are ALFWorld's. A kind is one word, so that a tokenizer trained on these texts has one token for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

OPENABLE = frozenset({"fridge", "microwave", "drawer", "cabinet"})
PLACES = (
    *("bed", "cabinet", "countertop", "desk", "diningtable", "drawer", "dresser", "fridge"),
    *("garbagecan", "microwave", "shelf", "sidetable", "sinkbasin", "sofa"),
)
"""Kinds of places, in the order in which an opening lists them."""
LAMP = "desklamp"
"""The thing that is used and cannot be taken."""
BELONGS: Mapping[str, Sequence[str]] = {
    "alarmclock": ("sidetable",),
    "apple": ("fridge",),
    "book": ("shelf",),
    "bread": ("countertop",),
    "cd": ("desk",),
    "cloth": ("sinkbasin",),
    "creditcard": ("dresser",),
    "cup": ("cabinet",),
    "egg": ("fridge",),
    "fork": ("drawer",),
    "keychain": ("dresser",),
    "knife": ("drawer",),
    "laptop": ("desk",),
    "lettuce": ("fridge",),
    "mug": ("cabinet",),
    "newspaper": ("sofa",),
    "pen": ("desk",),
    "pillow": ("bed",),
    "plate": ("diningtable",),
    "potato": ("countertop",),
    "remotecontrol": ("sofa",),
    "soapbar": ("sinkbasin",),
    "spoon": ("drawer",),
    "statue": ("shelf",),
    "tissuebox": ("garbagecan",),
    "tomato": ("fridge",),
    "vase": ("shelf",),
    "watch": ("dresser",),
    LAMP: ("desk", "sidetable"),
}
"""Kinds of places at which a kind of thing belongs."""
HEATABLE = frozenset({"apple", "bread", "cup", "egg", "mug", "plate", "potato", "tomato"})
COOLABLE = frozenset({*HEATABLE, "lettuce"})
CLEANABLE = frozenset({*HEATABLE, "cloth", "fork", "knife", "lettuce", "soapbar", "spoon"}) - {"bread"}
CHANGES: Mapping[str, tuple[str, frozenset[str], str]] = {
    "heat": ("microwave", HEATABLE, "hot"),
    "cool": ("fridge", COOLABLE, "cold"),
    "clean": ("sinkbasin", CLEANABLE, "clean"),
}
"""By verb: the kind of place at which it is done, the things that allow it, and what they are afterwards."""


def kind_of(name: str) -> str:
    """Return the kind in a name: `fridge` of `fridge 1`."""
    return name.partition(" ")[0]
