"""The sessions of a gateway, by name and by key."""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnwise.core.episodes import ANY_REQUESTS, RequestRule
from turnwise.core.types import Scored
from turnwise.gateway.protocols.fields import Fields
from turnwise.gateway.refusals import Refusal
from turnwise.gateway.sampling import Limits, SamplingRule
from turnwise.gateway.session import Policy, Session
from turnwise.gateway.times import Times

MAX_SHARED_REPLIES = 2_000
"""Replies after which the callers of an open gateway get a fresh session, which renders earlier conversations again."""
KEPT_NAMES = 10_000
"""Number of finished sessions whose names are remembered, so that a late call is told why it is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a program needs to reach its session."""

    name: str
    key: str
    path: str
    """The session's path below the server's URL; a client that cannot set it is recognised by the key."""


class Gateway:
    """Opens, finds and ends sessions. A key belongs to one session, and opens no other."""

    def __init__(
        self,
        policy: Policy,
        limits: Limits,
        rule: SamplingRule,
        *,
        requests: RequestRule = ANY_REQUESTS,
        is_open: bool = False,
        key: str | None = None,
        max_sessions: int = 1024,
        max_waiting: int = 1024,
        idle_s: float = math.inf,
    ) -> None:
        """`policy`, `limits`, `rule` and `requests` are those of sessions that state none of their own.

        With `is_open` anybody gets a session, one for each key that comes; `key` is then the only one that does, None
        for any. `max_waiting` limits the calls of all sessions at once. A session that is unused for `idle_s` may end
        when another one needs its place.
        """
        self.policy, self._limits, self._rule, self._requests = policy, limits, rule, requests
        self._is_open, self._key = is_open, key
        self._max_sessions, self._max_waiting, self._idle_s = max_sessions, max_waiting, idle_s
        self.sessions: dict[str, Session] = {}
        self._keys: dict[str, str] = {}
        self._finished: dict[str, None] = {}
        self._past: Counter[str] = Counter()
        self._past_times = Times()

    def open(
        self,
        *,
        name: str | None = None,
        policy: Policy | None = None,
        limits: Limits | None = None,
        rule: SamplingRule | None = None,
        requests: RequestRule | None = None,
        seed: tuple[int | str, ...] = (),
        group: str | None = None,
    ) -> Access:
        """Open a session; an engine keeps those of one `group` together. Raises Refusal if the name is taken or there
        is no room."""
        name = name or secrets.token_hex(8)
        if name in self.names:
            raise Refusal(f"the session {name[:60]!r} exists; choose another name", status=409, field="name")
        if len(self.sessions) >= self._max_sessions:
            raise Refusal(
                f"{len(self.sessions)} sessions are open, the most at once; end some", status=429, retry_after_s=5.0
            )
        self.sessions[name] = Session(
            name,
            policy or self.policy,
            limits or self._limits,
            rule or self._rule,
            salt=secrets.token_bytes(32),
            seed=seed,
            requests=requests or self._requests,
            group=group,
        )
        key = f"tw-{secrets.token_urlsafe(24)}"
        self._keys[key] = name
        return Access(name=name, key=key, path=f"/sessions/{name}")

    @property
    def names(self) -> set[str]:
        """Names that a new session cannot have."""
        return {*self.sessions, *self._finished}

    def find(self, name: str | None, key: str | None) -> Session:
        """Return the session of a call: that of its path, or of its key. Raises Refusal."""
        owner = self._keys.get(key or "")
        if name is None and owner is None and self._is_open:
            return self._find_shared(key)
        if owner is None:
            stated = "this key opens no session" if key else "send the session's key as a Bearer token or x-api-key"
            raise Refusal(stated, status=401, code="invalid_api_key")
        if name is not None and name != owner:
            if name not in self.sessions and name not in self._finished:
                raise self._unknown(name)
            raise Refusal("this key belongs to another session", status=403, code="invalid_api_key")
        session = self.sessions.get(owner)
        if session is None:
            raise Refusal("the session is over; open another", status=403, code="session_over")
        return session

    def check_room(self) -> None:
        """Raise Refusal if as many calls are being answered as may be."""
        waiting = sum(session.num_open for session in self.sessions.values())
        if waiting >= self._max_waiting:
            raise Refusal(
                f"{waiting} calls are being answered, the most at once",
                status=429,
                code="too_many_calls",
                retry_after_s=1.0,
            )

    def check_opener(self, key: str | None) -> None:
        """Raise Refusal if a key may not open sessions."""
        if not self._is_open:
            raise Refusal("sessions are opened by the run that owns this gateway", status=403, code="not_allowed")
        if self._key is not None and not secrets.compare_digest((key or "").encode(), self._key.encode()):
            raise Refusal("this is not the server's key", status=401, code="invalid_api_key")

    async def end(self, name: str) -> Session | None:
        """End a session; returns it, None if there is none with the name."""
        session = self.sessions.pop(name, None)
        if session is None:
            return None
        await session.close()
        self._past.update(session.counts)
        self._past_times.merge(session.times)
        self._finished[name] = None
        for old in list(self._finished)[:-KEPT_NAMES]:
            del self._finished[old]
            self._keys = {key: owner for key, owner in self._keys.items() if owner != old}
        return session

    async def close(self) -> None:
        """End every session."""
        for name in list(self.sessions):
            await self.end(name)

    async def sweep(self) -> None:
        """End sessions that have been unused for `idle_s`."""
        oldest = time.monotonic() - self._idle_s
        for name, session in list(self.sessions.items()):
            if not session.num_open and session.used < oldest:
                await self.end(name)

    def reward(self, session: Session, body: Mapping[str, Any]) -> dict[str, Any]:
        """Store a reward for a session, or for the reply or call with the id "reply". The last one counts. Raises
        Refusal."""
        if not session.takes_rewards:
            raise Refusal(
                "this session's program runs the model's commands, so its rewards are not posted",
                status=403,
                code="not_allowed",
            )
        fields = Fields(body)
        value = fields.number("reward", low=-math.inf, high=math.inf)
        if value is None or not math.isfinite(value):
            raise fields.refuse("reward", "must be a finite number")
        parts = fields.object("parts")
        scored = Scored.of(value, {key: parts.number(key, low=-1e300, high=1e300) or 0.0 for key in parts.value})
        issued = fields.text("reply", "")
        if issued and scored.parts:
            raise fields.refuse("parts", "belong to the reward of the session; leave them out with reply")
        if not issued:
            session.reward = scored
            return {"session": session.name, "reward": value}
        node = session.find_reply(issued)
        if node is None:
            raise Refusal(f"{issued[:60]!r} is no reply or call of this session", status=404, field="reply")
        session.rewards[node.index] = value
        return {"session": session.name, "reply": issued, "reward": value}

    def count(self) -> dict[str, int]:
        """Return the counts of all sessions so far."""
        total = Counter(self._past)
        for session in self.sessions.values():
            total.update(session.counts)
        total["sessions"] = len(self._finished) + len(self.sessions)
        total["open_sessions"] = len(self.sessions)
        total["open_calls"] = sum(session.num_open for session in self.sessions.values())
        total["waiting_replies"] = sum(session.num_waiting for session in self.sessions.values())
        return dict(sorted(total.items()))

    def measure(self) -> Mapping[str, Mapping[str, float]]:
        """Return how long clients have waited so far, in all sessions."""
        total = Times()
        total.merge(self._past_times)
        for session in self.sessions.values():
            total.merge(session.times)
        return total.describe()

    def _find_shared(self, key: str | None) -> Session:
        """Return the session of everybody who comes with a key."""
        self.check_opener(key)
        name = "shared-" + hashlib.sha256((key or "").encode()).hexdigest()[:16]
        known = self.sessions.get(name)
        if known is not None and known.forest.num_replies >= MAX_SHARED_REPLIES:
            known.used = -math.inf  # the next sweep ends it
            self.sessions[f"{name}-{secrets.token_hex(4)}"] = self.sessions.pop(name)
        if name not in self.sessions:
            self._finished.pop(name, None)
            self._keys.pop(self.open(name=name).key)
        return self.sessions[name]

    def _unknown(self, name: str) -> Refusal:
        return Refusal(f"there is no session {name[:60]!r}", status=404, code="session_not_found")
