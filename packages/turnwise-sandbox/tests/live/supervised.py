"""A process with a busy sandbox: `python supervised.py LEVEL` prints "ready", then runs programs until it is killed."""

import asyncio
import sys
from pathlib import Path

from turnwise_sandbox.supervisor import LocalSandbox
from turnwise_sandbox.trees import Tree
from turnwise_sandbox.types import Limits, Program

TREE = Tree(layers=(Path(__file__).parent, {"planted": b"bug"}))

PROGRAMS = [
    "print(1)",
    "import time\ntime.sleep(0.05)",
    "import os\nfor _ in range(5):\n  if os.fork() == 0:\n    os.setsid()\n    import time; time.sleep(30)",
    "x = 0\nwhile x < 10**6: x += 1",
    "import subprocess\nsubprocess.run(['sleep', '0.02'])",
    "open('f', 'wb').write(bytes(1 << 20))",
]


async def main() -> None:
    async with LocalSandbox(num_slots=2, level=sys.argv[1]) as sandbox:
        session = await sandbox.open()
        await session.run("import subprocess\nchild = subprocess.Popen(['sleep', '60'])")
        branch = await session.fork()
        await branch.run("import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()")
        shell = await sandbox.open("bash")
        await shell.run("sleep 60 &")
        in_tree = await sandbox.open("bash", tree=TREE)
        await in_tree.run("echo edited > planted; sleep 60 &")
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        work = [*((code, None) for code in PROGRAMS), ("open('new', 'w').write('x')", TREE)]
        while True:
            await asyncio.gather(*(sandbox.run(Program(code=code, tree=tree), Limits(wall_s=1)) for code, tree in work))


if __name__ == "__main__":
    asyncio.run(main())
