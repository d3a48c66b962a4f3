"""Audit a run: re-read what it stored and prove that it trained exactly what it sampled.

Every finished group is checked, including those that wait to be trained. What belongs to a step is checked for finished
steps; what comes after the last one may be in flight and is left alone. Each check counts what it checked and, with the
reason, what it could not check.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.audit.accounts import (
    Advantages,
    check_account,
    check_fates,
    check_steps,
    check_totals,
    choose_accounts,
)
from turnwise.audit.breaches import CHECKS, Breach, Tallies, Tally
from turnwise.audit.checkpoints import check_checkpoints
from turnwise.audit.documents import check_documents
from turnwise.audit.draws import DrawCheck
from turnwise.audit.logprobs import LogprobCheck
from turnwise.audit.materials import AuditMaterials
from turnwise.audit.opinions import ask_opinions
from turnwise.audit.pictures import PictureCheck
from turnwise.audit.recheck import Rechecked, recheck_trajectory
from turnwise.audit.recredit import check_advantages
from turnwise.audit.replay import list_episodes, recheck_episode
from turnwise.audit.stored_arrays import check_masks
from turnwise.audit.stored_groups import check_group, check_tasks
from turnwise.audit.stored_turns import check_endings, check_turns, has_order
from turnwise.config.roles import find_binding, find_learner, list_learners
from turnwise.core.episodes import AskingEnvironment
from turnwise.core.errors import StoreError, TurnwiseError
from turnwise.core.paths import Path as TrainingPath
from turnwise.core.paths import split_paths
from turnwise.core.protocols import Environment, Renderer
from turnwise.core.roles import learns, split_all, split_roles
from turnwise.core.seeds import derive_seed
from turnwise.core.types import DropReason, Invalid, Task, Trajectory, TrajectoryGroup
from turnwise.rollout.attempt import environment_seed
from turnwise.store.advantages import load_advantages
from turnwise.store.checkpoint_folder import list_checkpoints
from turnwise.store.data_files import compare_taught, find_changes, list_used, read_records
from turnwise.store.groups import GroupStore, digest_files
from turnwise.store.journal import JOURNAL, DrawRecord, JournalState, read_journal
from turnwise.store.ledger import GroupAccount, load_accounts
from turnwise.store.run_folder import RunFolder, read_lines
from turnwise.store.trajectories import build_groups, list_placed, parse_arrays, parse_rows

MAX_OPEN = 32
"""Maximum number of environments open at once."""
NUM_TOGETHER = 64
"""Number of groups that trained in no step and are checked together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """The result of an audit."""

    run: Path
    steps: int
    """Number of finished steps."""
    tallies: Mapping[str, Tally]
    facts: Mapping[str, float]
    """Figures besides the verdict: draws by fate, the bound on log-probabilities and the differences seen."""

    @property
    def breaches(self) -> list[Breach]:
        """All breaches, in the order of the checks."""
        return [breach for tally in self.tallies.values() for breach in tally.breaches]

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "run": str(self.run),
            "steps": self.steps,
            "ok": not self.breaches,
            "facts": dict(self.facts),
            "checks": [
                {
                    "name": name,
                    "proves": CHECKS[name][1],
                    "unit": CHECKS[name][0],
                    "checked": tally.checked,
                    "not_checked": dict(tally.not_checked),
                    "breaches": [str(breach) for breach in tally.breaches],
                }
                for name, tally in self.tallies.items()
            ],
        }


def run_audit(run: Path, materials: AuditMaterials, *, replay_tools: bool = False) -> AuditReport:
    """Audit a finished or running run. `replay_tools` runs every recorded tool call again.

    Raises StoreError when the folder holds no run, one of another format, or its metrics cannot be read; everything
    else that is wrong is a breach.
    """
    return _Audit(run, materials, replay_tools=replay_tools).run()


class _Audit:
    """The material of an audit, and its tallies."""

    def __init__(self, run: Path, materials: AuditMaterials, *, replay_tools: bool) -> None:
        self._run = run
        self._materials = materials
        self._replay_tools = replay_tools
        self._tallies = Tallies()
        # In this order a running run only adds to what was read before: a stored draw is in the journal, a
        # finished step in the ledger.
        self._store = GroupStore(run)
        self._stored_draws = self._store.list_draws()
        folder = RunFolder.open(run)
        rows = folder.read_metrics()
        self._metrics = {int(row["step"]): row for row in rows if row["phase"] == "train"}
        self._document_metrics = {int(row["step"]): row for row in rows if row["phase"] == "cpt"}
        self._journal = self._read_journal()
        self._accounts = self._read_accounts()
        self._checkpoints = check_checkpoints(run, self._journal, materials, self._tallies)
        self._pictures = PictureCheck(materials.pictures, self._tallies)
        self._logprobs = LogprobCheck(materials, self._checkpoints, self._tallies)
        self._task_ids: dict[int, str] = {}

    def run(self) -> AuditReport:
        """Run every check, and return the report."""
        self._check_data()
        if self._materials.documents is not None:
            check_documents(
                self._run,
                self._materials.documents,
                self._document_metrics,
                is_over=bool(list_checkpoints(self._run)),
                tallies=self._tallies,
            )
        journal = self._journal
        if journal is not None:
            self._check_journal(journal)
            self._check_draws(journal)
            for step, records in self._list_batches(journal):
                self._check_batch(step, records)
            self._tallies.take(check_tasks(self._task_ids, journal.draws))
            for step, metrics in sorted(self._metrics.items()):
                if self._accounts is not None:
                    accounts = [account for account in self._accounts.values() if account.step == step]
                    epochs = self._materials.settings.epochs
                    self._tallies.take(check_totals(step, accounts, metrics, epochs=epochs))
        facts = self._logprobs.finish() | self._count_fates()
        return AuditReport(run=self._run, steps=len(self._metrics), tallies=self._tallies.by_check, facts=facts)

    @property
    def _last_step(self) -> int:
        return max(self._metrics, default=0)

    def _breach(self, check: str, text: str, record: DrawRecord | None = None, *, step: int | None = None) -> None:
        if record is not None:
            breach = Breach(check=check, text=text, step=record.step, draw=record.draw)
        else:
            breach = Breach(check=check, text=text, step=step)
        self._tallies.take([breach])

    def _read_journal(self) -> JournalState | None:
        try:
            return read_journal(self._run)
        except StoreError as cause:
            self._breach("journal", str(cause))
            return None

    def _read_accounts(self) -> dict[tuple[int, str], GroupAccount] | None:
        """Accounts by draw and role."""
        try:
            return {(account.draw, account.role): account for account in load_accounts(self._run)}
        except StoreError as cause:
            self._breach("ledger", str(cause))
            return None

    def _check_data(self) -> None:
        """Compare the files of tasks and warm-up with those that the run recorded."""
        now = self._materials.data_files
        try:
            before = read_records(self._run)
        except StoreError as cause:
            self._breach("data", str(cause))
            return
        if before is None:
            self._tallies.skip("data", "files of a run that kept no digests of them", len(now))
            return
        changes, gone = compare_taught(before)
        self._tallies.skip("data", "files of conversations that the warm-up learned from and that are gone", len(gone))
        self._tallies["data"].checked += len(now) + len(list_used(before, "warm-up")) - len(gone)
        for text in [*find_changes(list_used(before, "tasks"), now), *changes]:
            self._breach("data", text)

    def _count_fates(self) -> dict[str, float]:
        journal = self._journal
        if journal is None:
            return {}
        fates = Counter(record.fate for record in journal.draws.values())
        facts = {"draws": float(fates.total())} | {f"draws_{fate}": float(count) for fate, count in fates.items()}
        return facts | ({"tasks_left_out": float(len(journal.left_out))} if journal.left_out else {})

    def _check_journal(self, journal: JournalState) -> None:
        """Compare the journal with metrics, ledger and the names of stored files."""
        self._tallies["journal"].checked += len(journal.draws)
        self._tallies.take(check_steps(journal, sorted(self._metrics)))
        if self._accounts is not None:
            accounts = choose_accounts(self._accounts.values())
            self._tallies.take(check_fates(journal, accounts, last_step=self._last_step))
        for draw in self._stored_draws:
            if draw not in journal.draws:
                self._breach("journal", f"the store has a group of draw {draw}, which the journal never opened")
        silent = [r for r in journal.dropped if r.digest is None]
        self._tallies.skip("journal", "draws that were dropped before anything of them was stored", len(silent))

    def _check_draws(self, journal: JournalState) -> None:
        """Let the recipe's sampler choose every task again."""
        curriculum = self._materials.build_curriculum()
        if curriculum is None:
            self._tallies.skip("curriculum", "draws in the order of the split", len(journal.draws))
            return
        check = DrawCheck(
            curriculum,
            self._materials.family,
            self._store.load,
            self._tallies,
            first_task=self._materials.first_task,
        )
        check.run(read_lines(self._run / JOURNAL))

    def _list_batches(self, journal: JournalState) -> Iterator[tuple[int | None, list[DrawRecord]]]:
        """Check the finished groups: those of each finished step in the order in which they trained, then all
        others."""
        for step in sorted(self._metrics):
            yield step, [journal.draws[draw] for draw in journal.taken.get(step, ())]
        others = [
            record
            for record in journal.draws.values()
            if record.digest is not None and not (record.fate == "taken" and record.step in self._metrics)
        ]
        for start in range(0, len(others), NUM_TOGETHER):
            yield None, others[start : start + NUM_TOGETHER]

    def _check_batch(self, step: int | None, records: Sequence[DrawRecord]) -> None:
        """Check groups that trained in one step, or, if `step` is None, groups that trained in no step."""
        groups = [(record, group) for record in records if (group := self._load_group(record)) is not None]
        advantages = None if step is None else self._load_advantages(step)
        for record, group in groups:
            self._check_account(record, group, advantages)
            self._pictures.check(record.step, group)
        sound = [(r, group) for r, group in groups if all(has_order(t) for t, _, _ in list_placed(group))]
        if step is not None:
            if len(sound) == len(records):
                self._check_advantages(step, [group for _, group in sound], advantages)
            else:
                count = sum(len(group.trajectories) for _, group in groups)
                self._tallies.skip("advantages", "trajectories of a step with a damaged group", count)
        self._recheck(sound)
        asyncio.run(ask_opinions(sound, self._materials.family, self._tallies))
        # Other weights now bear the version number under which a lost group was sampled.
        lost = [g for r, g in sound if r.reason is DropReason.LOST_VERSION]
        tokens = sum(t.num_sampled_tokens for g in lost for t, _, _ in list_placed(g))
        self._tallies.skip("logprobs", "tokens of groups that weights lost in a crash had sampled", tokens)
        scored = [
            (record.step, trajectory)
            for record, group in sound
            if record.reason is not DropReason.LOST_VERSION
            for trajectory, place, _ in list_placed(group)
            if place != "baseline" and self._is_own(trajectory)
        ]
        self._logprobs.check((step, t) for step, t in scored if self._pictures.can_show(t))
        blind = sum(t.num_sampled_tokens for _, t in scored if not self._pictures.can_show(t))
        self._tallies.skip("logprobs", "tokens of trajectories with a picture that cannot be read", blind)
        silent = [t for _, group in sound for t, _, _ in list_placed(group) if not self._is_own(t)]
        self._tallies.skip(
            "logprobs",
            "tokens of roles that no weights of this run speak for",
            sum(t.num_sampled_tokens for t in silent),
        )
        baselines = sum(g.baseline.num_sampled_tokens for _, g in sound if g.baseline is not None)
        self._tallies.skip("logprobs", "tokens of greedy baselines", baselines)

    def _check_advantages(self, step: int, groups: Sequence[TrajectoryGroup], advantages: Advantages | None) -> None:
        """Check the advantages of the roles of each learner as it computed them, apart from those of other learners."""
        settings = self._materials.settings
        parts = [part for part in split_all(groups) if learns(part)]
        for name in ("", *list_learners(settings.roles)):
            own = None
            if advantages is not None:
                own = {id_: each for id_, each in advantages.items() if find_learner(settings.roles, id_.role) == name}
            mine = [part for part in parts if find_learner(settings.roles, part.role) == name]
            check_advantages(step, mine, own, settings.credit, self._tallies)

    def _is_own(self, trajectory: Trajectory) -> bool:
        return find_binding(self._materials.settings.roles, trajectory.id.role).is_own

    def _load_group(self, record: DrawRecord) -> TrajectoryGroup | None:
        """A complete group, after the checks that need nothing else; None if it is damaged."""
        npz, jsonl = self._store.paths(record.draw)
        try:
            data = self._store.read(record.draw)
            if (digest := digest_files(*data)) != record.digest:
                self._breach("files", f"its files have digest {digest}, {record.digest} was written", record)
            arrays, rows = parse_arrays(data[0], source=npz), parse_rows(data[1], source=jsonl)
            wrong = check_masks(record.step, rows, arrays)
            self._tallies.take(wrong)
            if any(breach.check == "files" for breach in wrong):
                return None
            groups = build_groups(rows, arrays, source=jsonl)
            if len(groups) != 1:
                raise StoreError(f"{jsonl} holds {len(groups)} groups instead of one")
            self._tallies.take(check_group(groups[0], record, rows, self._materials))
        except (StoreError, KeyError, TypeError, ValueError) as cause:
            text = str(cause) if isinstance(cause, StoreError) else f"a stored row is damaged: {cause!r}"
            self._breach("files", text, record)
            return None
        [group] = groups
        self._task_ids[record.draw] = group.task.id
        self._tallies["files"].checked += 1
        self._tallies["groups"].checked += 1
        self._tallies["masks"].checked += len(arrays["token_ids"])
        for trajectory, _, _ in list_placed(group):
            self._tallies["turns"].checked += 1
            alone = [trajectory]
            if has_order(trajectory):
                self._tallies.take(check_endings(record.step, trajectory))
                alone = [path.trajectory for path in split_paths(trajectory)]
            checked = (check_turns(record.step, path, has_others=not group.role) for path in alone)
            self._tallies.take(dict.fromkeys(breach for breaches in checked for breach in breaches))
        return group

    def _load_advantages(self, step: int) -> Advantages | None:
        try:
            return load_advantages(self._run, step)
        except StoreError as cause:
            self._breach("files", str(cause), step=step)
            return None

    def _check_account(self, record: DrawRecord, group: TrajectoryGroup, advantages: Advantages | None) -> None:
        sampled = sum(t.num_sampled_tokens for t, place, _ in list_placed(group) if place != "baseline")
        if self._accounts is None:
            self._tallies.skip("ledger", "tokens of a run without a readable ledger", sampled)
        elif record.step is None:
            self._tallies.skip("ledger", "tokens of groups that wait to be trained", sampled)
        elif record.step > self._last_step:
            self._tallies.skip("ledger", "tokens of groups after the last finished step", sampled)
        else:
            for part in split_roles(group):
                account = self._accounts.get((record.draw, part.role))
                if account is not None:
                    staleness = self._materials.max_staleness
                    self._tallies["ledger"].checked += account.sampled
                    self._tallies.take(check_account(account, part, advantages, max_staleness=staleness))
                    learner = find_learner(self._materials.settings.roles, part.role) or ""
                    if account.fate == "trained" and account.learner != learner:
                        names = f"learner {account.learner!r}, the recipe binds it to {learner!r}"
                        self._breach("ledger", f"role {part.role!r} trained {names}", record)
                elif part is not group:
                    self._breach("ledger", f"role {part.role!r} is stored and has no account", record)

    def _recheck(self, groups: Sequence[tuple[DrawRecord, TrajectoryGroup]]) -> None:
        """Check prompts, rewards and, if requested, tools, on every path."""
        if self._materials.renderer is None:
            count = sum(len(t.turns) for _, group in groups for t, _, _ in list_placed(group))
            self._tallies.skip("prompts", "turns of a run without a checkpoint", count)
        else:
            asyncio.run(self._recheck_all(self._materials.renderer, groups))

    async def _recheck_all(self, renderer: Renderer, groups: Sequence[tuple[DrawRecord, TrajectoryGroup]]) -> None:
        settings, gate = self._materials.settings, asyncio.Semaphore(MAX_OPEN)
        seed = derive_seed(settings.seed, "rollout")

        async def recheck(record: DrawRecord, group: TrajectoryGroup, path: TrainingPath) -> None:
            async with gate:
                outcome = await recheck_trajectory(
                    path.trajectory,
                    group.task,
                    family=self._materials.family,
                    renderer=renderer,
                    seed=environment_seed(seed, group.draw),
                    run_tools=self._replay_tools,
                    timeout_s=settings.trajectory_timeout_s,
                )
            self._take_outcome(record, path, outcome)

        async def replay(
            record: DrawRecord, group: TrajectoryGroup, episode: list[Trajectory], environment: AskingEnvironment
        ) -> None:
            async with gate:
                outcomes = await recheck_episode(
                    episode,
                    group.task,
                    environment=environment,
                    renderer=renderer,
                    seed=environment_seed(seed, group.draw),
                    run_tools=self._replay_tools,
                    timeout_s=settings.trajectory_timeout_s,
                )
            for trajectory in episode:
                [path] = split_paths(trajectory)
                self._take_outcome(record, path, outcomes[trajectory.id])

        work: list[Coroutine[Any, Any, None]] = []
        for record, group in groups:
            if isinstance(self._build_environment(group.task), AskingEnvironment):
                for episode in list_episodes(group):
                    environment = self._materials.family.build_environment(group.task)
                    assert isinstance(environment, AskingEnvironment)
                    work.append(replay(record, group, episode, environment))
            else:
                paths = (path for trajectory, _, _ in list_placed(group) for path in split_paths(trajectory))
                work += [recheck(record, group, path) for path in paths]
        await asyncio.gather(*work)

    def _build_environment(self, task: Task) -> Environment | AskingEnvironment | None:
        """Build an environment of the task, to see its kind; None if the family builds none."""
        try:
            return self._materials.family.build_environment(task)
        except TurnwiseError:
            return None  # the code that opens the environment reports the reason

    def _take_outcome(self, record: DrawRecord, path: TrainingPath, outcome: Rechecked) -> None:
        trajectory, tallies = path.trajectory, self._tallies
        num_turns = len(trajectory.turns) - path.num_shared
        failed = dict(outcome.not_checked)
        tallies["prompts"].checked += 0 if "prompts" in failed else num_turns
        tallies["rewards"].checked += outcome.reward_checked
        tallies["tools"].checked += outcome.num_calls
        if not self._replay_tools:
            tallies.skip("tools", "calls, as --replay-tools was not given", trajectory.num_tool_calls)
        elif isinstance(trajectory.reward, Invalid):
            tallies.skip("tools", "calls of attempts that could not be scored", trajectory.num_tool_calls)
        for check, reason in outcome.not_checked:
            tallies.skip(check, reason, num_turns if check == "prompts" else 1)
        tallies.take(
            Breach(check=check, step=record.step, trajectory=trajectory.id, text=text)
            for check, text in outcome.breaches
        )
