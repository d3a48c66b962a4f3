"""The server in the jail: pages of a folder, or of a site that answers outside the jail.

Which site a request is for is said by a cookie that only the browser context of that site has.
"""

from __future__ import annotations

import asyncio
import mimetypes
import secrets
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from turnwise_worlds.browser.wire import Asked, Replied

COOKIE = "turnwise_site"
_HEAD_BYTES = 64 << 10
_BODY_BYTES = 1 << 20
_IDLE_S = 600.0
Answer = Callable[[Asked], Awaitable[Replied]]


class SiteServer:
    """Serves every site of one browser at one address of the loopback."""

    def __init__(self, max_page_bytes: int, report_size: Callable[[str], None]) -> None:
        """`report_size` is told the site whose page has more than `max_page_bytes`, which gets status 413."""
        self._sites: dict[str, Path | Answer] = {}
        self._max_page_bytes = max_page_bytes
        self._report_size = report_size
        self.origin = ""
        """Such as "http://127.0.0.1:40123", once started."""

    async def start(self) -> None:
        """Listen on a free port of the loopback."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_HEAD_BYTES)
        self.origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    def add(self, site: Path | Answer) -> str:
        """Serve a folder, or what `site` answers; returns the value of the cookie."""
        key = secrets.token_hex(16)
        self._sites[key] = site
        return key

    def remove(self, key: str) -> None:
        """Serve this site no longer."""
        self._sites.pop(key, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await asyncio.wait_for(self._answer_one(reader, writer), _IDLE_S):
                pass
        except (OSError, EOFError, ValueError, TimeoutError, asyncio.LimitOverrunError):
            pass  # a request that cannot be read, or a browser that went away
        finally:
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False if there is none."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        size = int(headers.get("content-length", 0))
        if size > _BODY_BYTES:
            return False
        body = await reader.readexactly(size)
        key = _find_cookie(headers.get("cookie", ""))
        status, kind, content, location = await self._find(key, method, target, body)
        if status == 413 or len(content) > self._max_page_bytes:
            self._report_size(key)
            status, kind, content = 413, "text/plain", b""
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(content)}",
            "Cache-Control: max-age=3600" if location is None else "Cache-Control: no-store",
        ]
        if location:
            lines.append(f"Location: {location}")
        writer.write("\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else content))
        await writer.drain()
        return True

    async def _find(self, key: str, method: str, target: str, body: bytes) -> tuple[int, str, bytes, str | None]:
        """Return status, type, content and where else to look, None for a file of a folder."""
        site = self._sites.get(key)
        if site is None:
            return 403, "text/plain", b"", ""
        if isinstance(site, Path):
            return (*_read_file(site, unquote(urlsplit(target).path)), None)
        pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=1000)
        reply = await site(Asked(method=method, target=target, fields=tuple(pairs)))
        return reply.status, "text/html; charset=utf-8", reply.html.encode("utf-8", "replace"), reply.location


def _find_cookie(text: str) -> str:
    pairs: Mapping[str, str] = dict(part.strip().partition("=")[::2] for part in text.split(";"))
    return pairs.get(COOKIE, "")


def _read_file(folder: Path, path: str) -> tuple[int, str, bytes]:
    wanted = (folder / path.lstrip("/")).resolve() if "\0" not in path else folder
    if not wanted.is_relative_to(folder) or not wanted.is_file():
        return 404, "text/plain", b""
    kind = mimetypes.guess_type(wanted.name)[0] or "application/octet-stream"
    is_text = kind.startswith("text/") or kind.endswith(("javascript", "json"))
    return 200, f"{kind}; charset=utf-8" if is_text else kind, wanted.read_bytes()
