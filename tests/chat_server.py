"""An OpenAI-style API on loopback whose replies are a function of the prompt."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = str | tuple[int, str] | tuple[int, str, dict[str, str]]
"""The text of a message, or a status and the whole body of an answer, and its further headers."""


@contextlib.contextmanager
def chat_server(reply: Callable[[str], Reply]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The API's root, and what it was sent: path, headers and body of each request."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = reply(self.path)
            self._answer(*(answer if isinstance(answer, tuple) else (200, "{}")))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            key = self.headers["authorization"] or self.headers["x-api-key"]
            requests.append({"path": self.path, "key": key, **body})
            answer = reply(body["messages"][-1]["content"])
            self._answer(*(answer if isinstance(answer, tuple) else (200, chat_completion(answer))))

        def _answer(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def chat_completion(text: str | None) -> str:
    """The body of an answer."""
    return json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]})
