"""The same program with the same seed draws the same numbers; two seeds, and two draws, differ."""

import asyncio

import pytest

from turnwise_sandbox.supervisor import LocalSandbox
from turnwise_sandbox.types import Limits, Program

LIMITS = Limits(wall_s=30.0)
SOURCES = {
    "random": "import random\nprint(random.random(), random.sample(range(99), 5))",
    "unseeded generator of its own": "import random\nprint(random.Random().random())",
    "numpy legacy": "import numpy as np\nprint(np.random.rand(3), np.random.randint(1 << 30))",
    "numpy generator": (
        "import numpy as np\nprint(np.random.default_rng().random(3), np.random.default_rng().integers(1 << 30))"
    ),
    "numpy imported late": "np = __import__('num' + 'py')\nprint(np.random.rand(), np.random.default_rng().random())",
    "uuid": "import uuid\nprint(uuid.uuid4())",
    "os": "import os\nprint(os.urandom(16))",
    "secrets": (
        "import secrets\nprint(secrets.token_hex(8), secrets.randbelow(1 << 40), secrets.choice(range(1 << 30)))"
    ),
    "system random": "import random\nprint(random.SystemRandom().random())",
    "shuffled": "import random\nx = list(range(50))\nrandom.shuffle(x)\nprint(x)",
}
SAME_FOR_ALL = {
    "hash": "print(hash('a'), hash(b'b'), [x for x in {'a', 'b', 'c', 'd', 'e'}])",
    "seeded by hand": "import random\nrandom.seed(3)\nprint(random.random())",
    "seeded generator": "import numpy as np\nprint(np.random.default_rng(3).random(), np.random.RandomState(3).rand())",
}


def outputs(sandbox, run, code, seeds, **options):
    async def work():
        answers = await asyncio.gather(
            *(sandbox.run(Program(code=code, seed=seed, **options), LIMITS) for seed in seeds)
        )
        assert all(answer.ok for answer in answers), answers[0].text()
        return [answer.stdout for answer in answers]

    return run(work())


@pytest.mark.parametrize("name", SOURCES)
def test_a_seed_decides(sandbox, run, name):
    same, repeated, other, negative, large = outputs(sandbox, run, SOURCES[name], [7, 7, 8, -7, 2**40 + 7])
    assert same == repeated
    assert len({same, other, negative, large}) == 4


@pytest.mark.parametrize("name", SAME_FOR_ALL)
def test_what_no_seed_should_change(sandbox, run, name):
    assert len(set(outputs(sandbox, run, SAME_FOR_ALL[name], [1, 1, 2, 3]))) == 1


def test_two_draws_differ(sandbox, run):
    code = """
import os, random, uuid
import numpy as np
draw_new = lambda: np.random.default_rng().random()
for draw in (uuid.uuid4, lambda: os.urandom(8), random.random, np.random.rand, draw_new):
    print(len({draw() for _ in range(9)}), end=" ")
"""
    assert outputs(sandbox, run, code, [0]) == [b"9 9 9 9 9 "]


def test_a_seed_gives_the_numbers_python_gives(sandbox, run):
    import random

    assert outputs(sandbox, run, "import random\nprint(random.random())", [5]) == [
        f"{random.Random(5).random()}\n".encode()
    ]


@pytest.mark.parametrize(
    "draw",
    [
        "import numpy as np; draw = np.random.rand",
        "from numpy.random import rand as draw",
        "from numpy.random.mtrand import rand as draw",
        "import numpy.random.mtrand as m; draw = m._rand.random_sample",
        "import sys; draw = sys.modules['numpy.random.mtrand'].rand",
        "import numpy as np; draw = vars(np.random)['rand']",
        "import numpy as np; np.random.other = 3; draw = lambda: np.random.get_state() and np.random.rand()",
    ],
)
def test_numpy_is_seeded_however_a_program_reaches_it(sandbox, run, draw):
    import numpy as np

    expected = np.random.RandomState(5).rand()
    assert outputs(sandbox, run, f"{draw}\nprint(repr(float(draw())))", [5], profile="numpy_random") == [
        f"{float(expected)!r}\n".encode()
    ]


def test_a_seed_of_the_program_s_own_wins(sandbox, run):
    code = "import numpy as np\nnp.random.seed(3)\nprint(np.random.rand(), type(np.random) is type(np))"
    first, other = outputs(sandbox, run, code, [1, 2], profile="numpy_random")
    assert first == other
    assert first.endswith(b"True\n")


def test_the_profile_does_not_change_the_numbers(sandbox, run):
    code = (
        "import random, os, numpy as np\nprint(random.random(), os.urandom(4), np.random.rand(), "
        "np.random.default_rng().random())"
    )
    first, *others = (
        outputs(sandbox, run, code, [5], profile=profile) for profile in ("auto", "std", "numpy", "numpy_random")
    )
    assert others == [first] * 3


def test_what_a_program_leaves_does_not_change_the_numbers_of_the_next(run):
    """The cell wipes the folder, and forks the next program afterwards."""
    code = "import os, random, uuid\nprint(os.urandom(4), random.Random().random(), uuid.uuid4())"

    async def work():
        async with LocalSandbox(num_slots=1) as own:
            fresh = [(await own.run(Program(code=code, seed=seed), LIMITS)).stdout for seed in (1, 2)]
            await own.run(Program(code="import os\nos.makedirs('a/b')\nopen('a/b/c', 'w').write('x')"), LIMITS)
            return fresh, [(await own.run(Program(code=code, seed=seed), LIMITS)).stdout for seed in (1, 2)]

    fresh, later = run(work())
    assert fresh[0] != fresh[1]
    assert later == fresh


def test_a_session_follows_its_seed(sandbox, run):
    async def draw(seed):
        session = await sandbox.open(seed=seed, profile="numpy_random")
        try:
            await session.run("import random, os, numpy as np")
            return [
                (
                    await session.run(
                        "random.random(), os.urandom(2), np.random.rand(), np.random.default_rng().random()"
                    )
                ).value
                for _ in range(2)
            ]
        finally:
            await session.close()

    async def work():
        return [await draw(seed) for seed in (1, 1, 2)]

    first, repeated, other = run(work())
    assert first == repeated
    assert len({*first, *other}) == 4
