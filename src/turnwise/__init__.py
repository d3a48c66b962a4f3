"""Turnwise: reinforcement learning for language-model agents on multi-turn, tool-using tasks.

    import turnwise as tw
    run = tw.train(Guess, sft__steps=100)      # a class is an environment; `examples/facade.py`
    run.trajectories(step=3)                   # tables of what a run left; `tw.load_run(path)`

The other names below are the pieces: types, rendering, models, engines, rollouts, credit, losses, training, publishing
weights. `examples/rl_loop.py` puts them together.

Importing this package is cheap: a name is imported when it is first read, and torch, transformers and every optional
extra where they are used.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # `__init__.pyi` lists the names
