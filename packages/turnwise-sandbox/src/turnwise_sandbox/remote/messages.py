"""The bodies of HTTP requests and answers, in Turnwise's dialect and in SandboxFusion's `/run_code`.

Turnwise's dialect sends bytes as base64 and refuses unknown fields; SandboxFusion's sends text and ignores them."""

from __future__ import annotations

import base64
import binascii
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from turnwise_sandbox.foreign import encode_code
from turnwise_sandbox.types import Execution, Limit, Limits, Network, Profile, Program

Language = Literal["python", "bash"]
_KILLED = 9
"""The signal that `/run_code` reports for a program ended by a limit."""


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")


class RunBody(_Body):
    """`POST /run`."""

    code: bytes
    language: Language
    stdin: bytes
    files: dict[str, bytes]
    outputs: tuple[str, ...]
    seed: int
    profile: Profile
    network: Network
    limits: Limits

    @classmethod
    def of(cls, program: Program, limits: Limits) -> RunBody:
        """The request for one program."""
        return cls(
            code=encode_code(program.code),
            language=program.language,
            stdin=program.stdin,
            files=dict(program.files),
            outputs=program.outputs,
            seed=program.seed,
            profile=program.profile,
            network=program.network,
            limits=limits,
        )

    def to_program(self) -> Program:
        """The requested program."""
        return Program(**{name: getattr(self, name) for name in RunBody.model_fields if name != "limits"})


class SessionBody(_Body):
    """`POST /sessions`."""

    language: Language
    limits: Limits
    seed: int
    profile: Profile
    network: Network


class CellBody(_Body):
    """`POST /sessions/{id}/run`."""

    code: bytes
    timeout_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class SessionAnswer(_Body):
    """The answer to opening or forking a session."""

    id: str


class ExecutionAnswer(_Body):
    """The answer to running something."""

    execution: Execution


class ErrorAnswer(BaseModel):
    """The body of every answer with a status other than 200 and 204."""

    error: str


# ------------------------------------------------------------------------------------------------ SandboxFusion


class _FusionBody(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class FusionRequest(_FusionBody):
    """`POST /run_code`. `compile_timeout` is accepted and ignored, because neither language is compiled."""

    code: str
    language: Language
    compile_timeout: float = 10.0
    run_timeout: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    memory_limit_MB: int = -1
    stdin: str | None = None
    files: dict[str, str | None] = {}
    fetch_files: list[str] = []

    @classmethod
    def of(cls, program: Program, limits: Limits) -> FusionRequest:
        """The request for one program. Code and stdin are sent as text; bytes that are not UTF-8 become U+FFFD."""
        return cls(
            code=encode_code(program.code).decode("utf-8", "replace"),
            language=program.language,
            run_timeout=limits.wall_s,
            memory_limit_MB=max(1, limits.memory_bytes >> 20),
            stdin=program.stdin.decode("utf-8", "replace"),
            files={path: base64.b64encode(content).decode() for path, content in program.files.items()},
            fetch_files=list(program.outputs),
        )

    def to_program(self) -> Program:
        """The requested program. Raises ValueError if a file is not base64."""
        files = {path: _decode(content, path) for path, content in self.files.items() if content is not None}
        stdin = (self.stdin or "").encode("utf-8", "surrogatepass")
        return Program(
            code=self.code, language=self.language, stdin=stdin, files=files, outputs=tuple(self.fetch_files)
        )


class FusionResult(_FusionBody):
    """How one command ended."""

    status: Literal["Finished", "Error", "TimeLimitExceeded"]
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None


class FusionResponse(_FusionBody):
    """The answer of `/run_code`."""

    status: Literal["Success", "Failed", "SandboxError"]
    message: str = ""
    compile_result: FusionResult | None = None
    run_result: FusionResult | None = None
    executor_pod_name: str | None = None
    files: dict[str, str] = {}

    @classmethod
    def of(cls, execution: Execution) -> FusionResponse:
        """The answer for an execution. The wall and the processor limit are a timeout; a signal is a negative return
        code."""
        timed_out = execution.limit in ("wall", "cpu")
        status = execution.exit_code if execution.exit_code is not None else -(execution.signal or _KILLED)
        return cls(
            status="Success" if execution.ok else "Failed",
            message="" if execution.limit is None else f"hit the {execution.limit} limit",
            run_result=FusionResult(
                status="TimeLimitExceeded" if timed_out else "Finished",
                execution_time=execution.wall_s,
                return_code=None if timed_out else status,
                stdout=execution.stdout.decode("utf-8", "replace"),
                stderr=execution.stderr.decode("utf-8", "replace"),
            ),
            files={path: base64.b64encode(content).decode() for path, content in execution.files.items()},
        )

    def to_execution(self, limits: Limits, level: str) -> Execution:
        """The execution behind an answer. Output is cut at `limits.output_bytes`.

        Raises ValueError if there is no `run_result`, if the server failed, or if a file is not base64.
        """
        compiled = self.compile_result
        if compiled is not None and (compiled.status != "Finished" or compiled.return_code != 0):
            return Execution(
                stdout=b"", stderr=_encode(compiled.stderr), exit_code=compiled.return_code or 1, level=level
            )
        result = self.run_result
        if self.status == "SandboxError" or result is None or result.status == "Error":
            raise ValueError(f"the server failed: {self.message[:500] or 'no message'}")
        stdout, stderr = _encode(result.stdout), _encode(result.stderr)
        dropped = [max(0, len(stream) - limits.output_bytes) for stream in (stdout, stderr)]
        limit: Limit | None = "wall" if result.status == "TimeLimitExceeded" else "output" if any(dropped) else None
        code = result.return_code
        return Execution(
            stdout=stdout[: limits.output_bytes],
            stderr=stderr[: limits.output_bytes],
            exit_code=None if limit == "wall" or code is None or code < 0 else code,
            signal=-code if limit != "wall" and code is not None and code < 0 else None,
            limit=limit,
            files={path: _decode(content, path) for path, content in self.files.items()},
            stdout_dropped=dropped[0],
            stderr_dropped=dropped[1],
            wall_s=result.execution_time or 0.0,
            level=level,
        )


def _encode(text: str | None) -> bytes:
    return (text or "").encode("utf-8", "surrogatepass")


def _decode(content: str, path: str) -> bytes:
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error:
        raise ValueError(f"file {path!r} is not base64") from None
