"""An engine: the paged one, which refuses requests after the first so many."""

from transformers import PreTrainedModel

from turnwise.config.engine_kinds.kind import EngineKind, EngineOptions
from turnwise.core.errors import EngineError
from turnwise.core.types import Completion, IntArray, SamplingParams, Session
from turnwise.engines.guided import GrammarCompiler
from turnwise.engines.paged.engine import PagedEngine
from turnwise.engines.settings import Decode, EngineSettings
from turnwise.hosts.host import Host


class Options(EngineOptions):
    """What `engine.options` may hold; anything else is refused by name."""

    max_requests: int = 1_000_000


class BoundedEngine(PagedEngine):
    """Counts its requests. An engine of another kind implements `turnwise.core.protocols.Engine` instead."""

    num_left = 0

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        """Sample one completion. Raises EngineError when no request is left."""
        if self.num_left == 0:
            raise EngineError("all requests are used up; raise engine.options.max_requests")
        self.num_left -= 1
        return await super().generate(prompt_ids, params, session=session)


def build(
    model: PreTrainedModel,
    *,
    common: EngineSettings,
    options: Options,
    grammars: GrammarCompiler | None,
    decode: Decode | None,
    host: Host | None,
) -> BoundedEngine:
    """An engine that samples from `model`."""
    engine = BoundedEngine(model, **common.limits, num_threads=common.num_threads, grammars=grammars, decode=decode)
    engine.num_left = options.max_requests
    return engine


BOUNDED = EngineKind(name="bounded", options=Options, build=build, records_experts=True)
