"""Places of pictures in the token ledger."""

from dataclasses import replace

import pytest

from turnwise.batching.samples import to_samples
from turnwise.core.keys import Span
from turnwise.core.sampled import digest_tokens
from turnwise.core.types import Sample
from turnwise.store.ledger import GroupAccount, account_group
from turnwise.store.token_account import LedgerError
from turnwise.testing.builders import make_group, make_trajectory, make_turn


def test_a_picture_trains_at_the_place_where_it_was_sampled() -> None:
    # O | C, O O | C C: the picture is token 1 of the second context, so token 1 + 1 + 1 = 3 of the path.
    picture = Span(start=1, length=1, digest="a" * 64)
    trajectory = make_trajectory(make_turn([9], [1]), make_turn([7, 8], [2, 3], parent=0, images=(picture,)))
    [plain] = to_samples(trajectory)
    sample = replace(plain, images=(picture.shift(2),))

    def account(given: Sample) -> GroupAccount:
        return account_group(make_group(trajectory), [given], step=1, version=0, max_staleness=0)

    assert account(sample).trained == 3
    other = replace(picture, digest="b" * 64)
    for images, words in (
        ((), "has 0 places of pictures, but its turns 1"),
        (
            (picture.shift(3),),
            "shows picture aaaaaaaaaaaa at tokens 4 to 4, but turn 1 had aaaaaaaaaaaa at tokens 3 to 3",
        ),
        ((other.shift(2),), "shows picture bbbbbbbbbbbb at tokens 3 to 3, but turn 1 had aaaaaaaaaaaa"),
        ((picture.shift(2), picture.shift(4)), "has 2 places of pictures, but its turns 1"),
    ):
        with pytest.raises(LedgerError, match=words):
            account(replace(sample, images=images))


def test_the_digest_of_what_was_sampled_knows_every_place_of_a_picture() -> None:
    span = Span(start=0, length=2, digest="a" * 64)
    others = [replace(span, digest="b" * 64), replace(span, length=1), replace(span, offset=1), span.shift(1)]
    variants = [(), (span,), (span, span), *((each,) for each in [*others, replace(span, grid=(1, 1, 2))])]
    digests = {digest_tokens(make_trajectory(make_turn([5, 6, 7], [1], images=images))) for images in variants}
    assert len(digests) == len(variants)
