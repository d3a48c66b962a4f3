"""Confirm an edit of whole files in a fresh process: combinations, and changes that a model undoes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from turnwise.repositories.outcome import Outcome
from turnwise.synthesis.bugs.confirming import confirm, list_tests
from turnwise.synthesis.bugs.edits.source import compiles
from turnwise.synthesis.bugs.instances import build_instance, count_lines
from turnwise.synthesis.bugs.ledger import Entry
from turnwise.synthesis.bugs.making import Maker, judge_confirmation


async def try_files(
    maker: Maker,
    after: Mapping[str, bytes],
    *,
    candidate_id: str,
    kinds: Sequence[str],
    places: Sequence[str],
    is_needed: Callable[[Mapping[str, Outcome]], bool] = bool,
) -> Entry:
    """Confirm files with their new contents, keep the instance if it is a bug, and write its line of the ledger.

    Args:
        after: Path to new content; each path is one of the maker's sources.
        candidate_id: `kind.digest`.
        kinds: The kind, and those of its parts.
        places: The edited functions, as "path::qualified name".
        is_needed: Says of the failing tests whether the bug is worth keeping.

    Raises SandboxError if the sandbox fails.
    """
    repository = maker.repository
    selections = [maker.index.select(place, seed=maker.seed) for place in places]
    entering = maker.index.in_order(test for selection in selections for test in selection.entering)
    others = maker.index.in_order(test for selection in selections for test in selection.neighbours)
    neighbours = tuple(test for test in others if test not in set(entering))
    confirmed = await confirm(maker.sandbox, repository, after, (*entering, *neighbours))
    lists = list_tests(confirmed, entering, neighbours)
    fate = judge_confirmation(confirmed, bool(lists.pass_to_pass), failed_before=False)
    whole = all(compiles(content, path) for path, content in after.items())
    if fate == "kept" and not (whole and is_needed(confirmed.failing)):
        fate = "not_needed"
    instance_id = f"{repository.name}-{repository.version}.{candidate_id[:-6]}" if fate == "kept" else ""
    if instance_id:
        nodes = [maker.sources[path].scopes[name] for path, name in (place.split("::") for place in places)]
        instance = build_instance(
            repository,
            instance_id=instance_id,
            before={path: maker.sources[path].content for path in after},
            after=after,
            kinds=kinds,
            places=places,
            num_lines=sum(map(count_lines, nodes)),
            failing=confirmed.failing,
            pass_to_pass=lists.pass_to_pass,
            seed=maker.seed,
        )
        maker.keep(instance)
    entry = Entry(
        repository=repository.key,
        candidate_id=candidate_id,
        kind=kinds[0],
        place=" + ".join(places),
        fate=fate,
        confirming_cpu_s=round(confirmed.cpu_s, 4),
        instance_id=instance_id,
    )
    maker.ledger.write([entry])
    return entry
