"""Confirm an edit of whole files in a fresh process: combinations, and past changes that a model undoes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from turnwise.core.seeds import rng
from turnwise_swe.bugs.confirming import Bug, confirm, list_tests
from turnwise_swe.bugs.edits.source import compiles
from turnwise_swe.bugs.instances import build_instance, count_lines
from turnwise_swe.bugs.ledger import Entry
from turnwise_swe.bugs.making import Maker, judge_confirmation
from turnwise_swe.bugs.selection import Selection


async def try_files(
    maker: Maker,
    after: Mapping[str, bytes],
    *,
    candidate_id: str,
    kinds: Sequence[str],
    places: Sequence[str],
    selection: Selection,
    is_needed: Callable[[Collection[str]], bool] = bool,
) -> Entry:
    """Confirm files with their new contents, keep the instance if it is a bug, and write its ledger line.

    Args:
        after: Path to new content; each path is one of the maker's sources.
        candidate_id: `kind.digest`.
        kinds: The kind, and the kinds of its parts.
        places: The edited functions, as "path::qualified name".
        selection: The tests to run.
        is_needed: Decides from the failing tests whether the bug is worth keeping.

    Raises SandboxError if the sandbox fails.
    """
    repository = maker.repository
    [confirmed], cpu_s = await confirm(maker.sandbox, repository, [Bug(files=after, tests=selection.tests)])
    lists = list_tests(confirmed, selection, rng(maker.seed, "list", candidate_id))
    fate = judge_confirmation(confirmed, bool(lists.pass_to_pass), failed_before=False)
    whole = all(compiles(content, path) for path, content in after.items())
    if fate == "kept" and not (whole and is_needed(lists.fail_to_pass)):
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
            failing={test: confirmed.failing[test] for test in lists.fail_to_pass},
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
        confirming_cpu_s=confirmed.cpu_s,
        instance_id=instance_id,
    )
    maker.ledger.write([entry, maker.cost_of(confirming_cpu_s=cpu_s)])
    return entry
