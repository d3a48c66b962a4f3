"""An OpenAI-style API on loopback whose replies are a function of the prompt."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = str | tuple[int, str]
"""The text of a message, or a status and the whole body of an answer."""


@contextlib.contextmanager
def chat_server(reply: Callable[[str], Reply]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The API's root, and what it was sent: path, headers and body of each request."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = reply(self.path)
            status, text = answer if isinstance(answer, tuple) else (200, "{}")
            self._answer(status, text)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            requests.append({"path": self.path, "key": self.headers["authorization"], **body})
            answer = reply(body["messages"][-1]["content"])
            status, text = answer if isinstance(answer, tuple) else (200, chat_completion(answer))
            self._answer(status, text)

        def _answer(self, status: int, text: str) -> None:
            self.send_response(status)
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
