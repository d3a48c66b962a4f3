"""The command line in the process of the tests: a process of its own imports torch and transformers for seconds."""

import contextlib
import io
import signal
import sys
import traceback
from pathlib import Path
from subprocess import CompletedProcess
from unittest import mock

from turnwise.cli.main import main
from turnwise.core.errors import TurnwiseError


def run_command(*arguments: str | Path, cwd: Path | None = None) -> CompletedProcess[str]:
    """Run `turnwise ARGUMENTS` and return its exit code and what it printed, as a process would."""
    command = ["turnwise", *map(str, arguments)]
    out, err = io.StringIO(), io.StringIO()
    code = 0
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with (
        mock.patch.object(sys, "argv", command),
        mock.patch.object(sys, "path", [*sys.path]),  # `main` adds the current folder, and replaces the hook
        mock.patch.object(sys, "unraisablehook", sys.unraisablehook),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except TurnwiseError:  # with `--debug`
            traceback.print_exc()
            code = 1
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return CompletedProcess(command, code, out.getvalue(), err.getvalue())
