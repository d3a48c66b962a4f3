"""One game: each move is requested in its own conversation, which contains all that the mover knows.

Because a move's context is exactly its information set, the policy over information sets can be read exactly from the
model. All moves of a player belong to one trajectory, and its reward is the player's return.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.core.episodes import Ask, Asked, EpisodeEnd, EpisodeSpec, RoleSpec
from turnwise.core.errors import EnvironmentFault
from turnwise.core.types import Message, Reward, Scored, StopReason, Task, text_message
from turnwise.rewards.answers import extract_answer
from turnwise_worlds.games.game import Game, Returns, forfeit, write_prompt
from turnwise_worlds.games.negotiation import Negotiation, compute_nash_share, is_pareto_optimal
from turnwise_worlds.games.solve import list_best_moves

ROLES = ("player0", "player1")
"""Roles of players 0 and 1 if both players are roles."""
OPPONENTS = (("agent", "opponent"), ("opponent", "agent"))
"""Roles of players 0 and 1, by which player the task assigns to the agent."""


def build_prompt(game: Game[Any], state: Any) -> tuple[Message, ...]:
    """Build the opening of the conversation in which the mover is asked."""
    return (text_message("user", write_prompt(game, state)),)


class GameEnvironment:
    """Implements `AskingEnvironment`. The task determines the deal; nothing else is random.

    A reply that is not a legal move, or that a limit cut off, ends the game with the worst return (`forfeit`).
    """

    def __init__(self, game: Game[Any], roles: tuple[str, str] = ROLES, *, prosocial: float = 0.0) -> None:
        """`roles` are those of players 0 and 1. `prosocial` is the weight of the other player's return in a player's
        reward, added to the player's own."""
        specs = tuple(RoleSpec(name=name) for name in sorted(roles))
        self.spec = EpisodeSpec(roles=specs, max_replies=game.max_moves, can_replay=True)
        self._roles = roles
        self._game = game
        self._prosocial = prosocial
        self._num_moves = 0
        """Number of moves requested."""
        self._broken = False
        """Whether the mover gave no legal move."""
        self._best: tuple[list[bool], list[bool]] = ([], [])
        """For each player, whether perfect play may make each of the legal moves it made, if that is known."""

    async def begin(self, task: Task, seed: int) -> Asked:
        """Ask player 0 for the first move."""
        self._state = self._game.deals()[int(task.payload["deal"])]
        return self._ask()

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """Make a move and request the next one."""
        game, mover = self._game, self._game.mover(self._state)
        if mover is None or conversation != self._name(mover, self._num_moves - 1):
            raise EnvironmentFault(f"GameEnvironment got a reply in {conversation!r}, where it had not asked for one")
        move = extract_answer(reply.text)
        if move not in game.moves(self._state):
            self._broken = True
            return Asked(asks=())
        best = list_best_moves(game).get(write_prompt(game, self._state))
        if best is not None:
            self._best[mover].append(move in best)
        self._state = game.play(self._state, move)
        return Asked(asks=()) if game.mover(self._state) is None else self._ask()

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """Return both players' rewards: their returns, with `prosocial` plus a share of the other's.

        Parts: "win"; "illegal", whether this player broke off the game; "optimal", the share of this player's moves
        that are perfect play, in games of perfect information (1 without a move, 0 with an illegal one); "pareto" and
        "nash" for a negotiation. "success" means that all moves were optimal, that the division is Pareto-optimal, or a
        win.
        """
        game, mover = self._game, self._game.mover(self._state)
        if mover is not None and not self._broken and end.stop is StopReason.DONE:
            raise EnvironmentFault(f"the episode is over, but the game of {game.name} is not")
        returns = game.returns(self._state) if mover is None else forfeit(game, mover)
        names = [role.name for role in self.spec.roles]
        return {name: self._score_player(self._roles.index(name), returns, mover) for name in names}

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def state_hash(self) -> str:
        """Return a hash that is equal for equal positions."""
        return repr(self._state)

    def _score_player(self, player: int, returns: Returns, breaker: int | None) -> Scored:
        win, illegal = returns[player] > returns[1 - player], breaker == player
        parts = {"success": float(win), "win": float(win), "illegal": float(illegal)}
        if list_best_moves(self._game):
            best = self._best[player]
            parts["optimal"] = 0.0 if illegal else sum(best) / len(best) if best else 1.0
            parts["success"] = float(parts["optimal"] == 1.0)
        if isinstance(self._game, Negotiation):
            parts["pareto"] = float(breaker is None and is_pareto_optimal(self._state, returns))
            parts["nash"] = 0.0 if breaker is not None else compute_nash_share(self._state, returns)
            parts["success"] = parts["pareto"]
        total = returns[player] + self._prosocial * returns[1 - player]
        return Scored.of(total, parts)

    def _ask(self) -> Asked:
        mover = self._game.mover(self._state)
        assert mover is not None
        name = self._name(mover, self._num_moves)
        self._num_moves += 1
        prompt = build_prompt(self._game, self._state)
        return Asked(asks=(Ask(role=self._roles[mover], conversation=name, messages=prompt),))

    def _name(self, mover: int, move: int) -> str:
        return f"{self._roles[mover]}/{move}"
