"""Runs one test, or a script, under pdb, and reads pdb's commands from a descriptor.

It is started with a JSON object as its argument: `target` (a test's id or a script), `commands` and `ready`
(descriptors: it reads commands from the first, and writes a byte to the second when it waits for one), `plugins` and
`options` of pytest.
"""

import importlib
import json
import os
import pdb
import sys
import traceback
import types
from typing import Any


class Commands:
    """The input that pdb reads."""

    def __init__(self, commands: int, ready: int) -> None:
        self.file = os.fdopen(commands, encoding="utf-8", errors="replace")
        self.ready = ready

    def readline(self) -> str:
        """Signal that a command is awaited, and wait. After the end of the commands the program ends."""
        sys.stdout.flush()
        os.write(self.ready, b"\n")
        line = self.file.readline()
        if not line:
            os._exit(0)
        return line


def main(request: dict[str, Any]) -> None:
    """Run the target."""
    commands = Commands(request["commands"], request["ready"])
    for descriptor in (request["commands"], request["ready"]):
        os.set_inheritable(descriptor, False)

    class Debugger(pdb.Pdb):
        """A pdb that reads from the descriptor and from no user files."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            options |= {"stdin": commands, "stdout": sys.stdout, "readrc": False, "nosigint": True}
            super().__init__(*arguments, **options)

        def lookupmodule(self, filename: str) -> "str | None":
            """Find a file also by its path from the working folder."""
            return os.path.abspath(filename) if os.path.isfile(filename) else super().lookupmodule(filename)

    target = request["target"]
    if "::" not in target:
        run_script(Debugger(), target)
        return
    module = types.ModuleType("turnwise_debugger")
    vars(module)["Debugger"] = Debugger
    sys.modules[module.__name__] = module
    arguments = ["--rootdir=.", "-p", "no:cacheprovider", "-o", "addopts=", "-qq", "--tb=short", "--color=no", "-s"]
    arguments += ["--no-summary", "--trace", "--pdb", f"--pdbcls={module.__name__}:Debugger", *request["options"]]
    arguments += [part for name in request["plugins"] for part in ("-p", name)]
    sys.argv = ["pytest"]
    importlib.import_module("pytest").main([*arguments, target])


def run_script(debugger: pdb.Pdb, path: str) -> None:
    """Run a script from its first line; after an exception, debug where it was raised."""
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    sys.argv, sys.path[:0] = [path], [os.path.dirname(os.path.abspath(path))]
    try:
        debugger.run(code, {"__name__": "__main__", "__file__": path, "__builtins__": __builtins__})
    except Exception as problem:  # noqa: BLE001 - whatever the script raises is looked at
        sys.stdout.write("".join(traceback.format_exception_only(problem)))
        debugger.reset()
        debugger.interaction(None, problem.__traceback__)


main(json.loads(sys.argv[1]))
