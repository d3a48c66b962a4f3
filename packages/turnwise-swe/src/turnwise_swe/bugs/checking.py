"""Check instances: without a change they must fail, and with the gold patch they must be resolved."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from turnwise.core.errors import SandboxError
from turnwise_sandbox import errors as sandbox_errors
from turnwise_sandbox.supervisor import LocalSandbox
from turnwise_sandbox.types import Sandbox
from turnwise_swe.repositories.grading import grade_changes, grade_patch
from turnwise_swe.repositories.instance import Instance
from turnwise_swe.repositories.library import default_library, load_repository
from turnwise_swe.repositories.repository import Repository


async def check_instances(instances: Sequence[Instance], *, num_slots: int) -> dict[str, str]:
    """Id to problem of each faulty instance. Raises ConfigError if a repository is missing, DataError if an instance
    does not fit it, SandboxError if the sandbox does not start."""
    repositories = {key: load_repository(key, default_library()) for key in {item.repository for item in instances}}
    slots = asyncio.Semaphore(num_slots)
    try:
        async with LocalSandbox(num_slots=num_slots) as sandbox:
            problems = await asyncio.gather(
                *(check_instance(sandbox, repositories[item.repository], item, slots) for item in instances)
            )
    except sandbox_errors.SandboxError as cause:
        raise SandboxError(str(cause)) from cause
    return {item.instance_id: problem for item, problem in zip(instances, problems, strict=True) if problem}


async def check_instance(sandbox: Sandbox, repository: Repository, instance: Instance, slots: asyncio.Semaphore) -> str:
    """What is wrong with an instance; "" if it is fine."""
    async with slots:
        untouched = await grade_changes(sandbox, repository, instance, {})
        gold = await grade_patch(sandbox, repository, instance, instance.gold)
    if untouched.ending != "unresolved":
        return f"without a change the grade is {untouched.ending!r}, not 'unresolved' {untouched.reason}".rstrip()
    if untouched.resolution is not None and (untouched.resolution.fixed or untouched.resolution.broken):
        tests = (*untouched.resolution.fixed, *untouched.resolution.broken)
        return f"without a change {tests[0]} is in the wrong list"
    if gold.ending != "resolved":
        return f"with the gold patch the grade is {gold.ending!r}, not 'resolved' {gold.reason}".rstrip()
    return ""
