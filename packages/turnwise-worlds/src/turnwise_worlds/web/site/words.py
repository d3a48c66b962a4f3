"""The words that sites are made of. A small tokenizer holds each as one token."""

from __future__ import annotations

CATEGORIES = ("mug", "lamp", "chair", "shirt", "bag", "clock", "brush", "rug", "pen", "bowl", "scarf", "shelf")
ATTRIBUTES = ("soft", "hard", "light", "heavy", "warm", "cool", "smooth", "rough", "wide", "narrow", "plain", "shiny")
COLOURS = ("red", "green", "blue", "yellow", "pink", "black", "white", "brown")
SIZES = ("small", "medium", "large")
NAMES = (
    *("kalo", "rosu", "tefa", "mirel", "doban", "siva", "nuri", "palto", "gemi", "lodra", "bexa", "corin"),
    *("fenu", "harga", "jilo", "kespa", "lumo", "mavi", "norta", "ostra", "pirel", "quani", "rugo", "selba"),
    *("tovi", "ulmar", "vendo", "wilka", "xanto", "yoria", "zebri", "andar", "belmo", "catri", "dusha", "elgo"),
)
"""Names of products, people and towns, drawn anew for every site, so that they can only be read, never known."""
RELATIONS = ("founder", "mayor", "twin", "teacher", "rival")
"""Relations between the wiki's articles."""
FAVOURITE = "favourite"
"""The relation between an article and a product."""
PRICES = (10, 20, 30, 40, 50, 60, 70, 80, 90)
"""Prices in terse shops."""
MONTHS = ("January", "March", "May", "July", "August", "October", "December")
