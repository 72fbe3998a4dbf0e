"""Requests and replies over HTTP/1.1, on sockets of loopback or inside a VM. Nothing of Google here."""

from __future__ import annotations

import errno
import json
import mmap
import re
import selectors
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from stoker.emulator.errors import ApiError, bug, invalid

LARGEST = 1 << 36
"""Bytes of one request's body."""
_LARGEST_OF_CHUNKS = 1 << 30  # they are kept in memory
_LONGEST_LINE = 4096
LARGE = 1 << 23
"""Bytes of a body from which on it is kept in a file rather than in memory."""


@dataclass(frozen=True)
class Request:
    """What somebody asks for. Names of headers are in small letters."""

    method: str
    path: str  # as it was sent: parts are decoded one by one, since names may have a slash
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    extra: Mapping[str, Any] = field(default_factory=dict)  # what our own layers found out: the caller
    large: mmap.mmap | None = None  # a large body, in a file that goes with it; `body` is empty then
    pairs: tuple[tuple[str, str], ...] = ()  # the query again, for names that come several times

    @property
    def content(self) -> bytes | mmap.mmap:
        """The body, large or not."""
        return self.body if self.large is None else self.large

    @property
    def parts(self) -> list[str]:
        """The path's parts, decoded."""
        return [unquote(part) for part in self.path.strip("/").split("/")]

    @property
    def small(self) -> bytes:
        """The body of what is no upload. Raises ApiError if it is large."""
        if self.large is not None:
            raise too_large()
        return self.body

    def json(self) -> dict[str, Any]:
        """The body as an object; empty if there is none."""
        if not self.small.strip():
            return {}
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):  # nonsense, or too deep
            raise invalid("Invalid JSON payload received. Parse error.") from None
        if not isinstance(found, dict):
            raise invalid("Invalid JSON payload received. Root element must be a message.")
        return found


@dataclass(frozen=True)
class Reply:
    """What is answered. A `status` of 0 means nothing at all: the connection is cut."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    rest: Iterable[bytes] = ()  # what follows the body, piece by piece; the headers tell the length of all


def json_reply(data: Mapping[str, Any], status: int = 200, **headers: str) -> Reply:
    """Data as JSON."""
    told = {"Content-Type": "application/json; charset=UTF-8", **headers}
    return Reply(status, json.dumps(data).encode(), told)


def too_large() -> ApiError:
    """A large body of what is no upload."""
    return ApiError(413, "requestTooLarge", f"The request is too large: {LARGE} bytes or more.")


App = Callable[[Request], Reply]
"""Answers requests; called from many threads at once. May raise ApiError."""

_Connections = dict[socket.socket, threading.Thread]
_PATIENCE = 5.0  # seconds for what is being answered when the server is closed
_BREATH = 0.02  # seconds


class Server:
    """Answers on any number of sockets, each with an app of its own. A thread for each connection."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._awake, self._wake = socket.socketpair()
        self._lock = threading.Lock()
        self._listening: dict[socket.socket, tuple[App, _Connections]] = {}
        self._selector.register(self._awake, selectors.EVENT_READ)
        self._is_open = True
        self._thread = threading.Thread(target=self._accept, name="emulator", daemon=True)
        self._thread.start()

    def listen(self, listening: socket.socket, app: App) -> None:
        """Answer on a socket that listens already."""
        listening.setblocking(False)
        with self._lock:
            self._listening[listening] = app, {}
            self._selector.register(listening, selectors.EVENT_READ)
            self._wake.send(b".")

    def leave(self, listening: socket.socket) -> None:
        """Answer there no more: the socket is closed, and all its connections. May be repeated."""
        self._leave(listening)

    def close(self) -> None:
        """Leave all sockets, and wait until what is being answered is done. May be repeated."""
        with self._lock:
            if not self._is_open:
                return
            self._is_open = False
            self._wake.send(b".")
        self._thread.join()
        talking = [thread for listening in list(self._listening) for thread in self._leave(listening)]
        until = time.monotonic() + _PATIENCE
        for thread in talking:
            thread.join(max(0.0, until - time.monotonic()))
        self._selector.close()
        self._awake.close()
        self._wake.close()

    def _leave(self, listening: socket.socket) -> list[threading.Thread]:
        """With the threads that may have something to end."""
        with self._lock:
            _, connections = self._listening.pop(listening, (None, {}))
            with suppress(KeyError, ValueError):
                self._selector.unregister(listening)
            listening.close()
            for connection in connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            return [thread for thread in connections.values() if thread is not threading.current_thread()]

    def _accept(self) -> None:
        while self._is_open:
            for key, _ in self._selector.select():
                if key.fileobj is self._awake:
                    self._awake.recv(100)
                elif isinstance(key.fileobj, socket.socket):
                    self._take(key.fileobj)

    def _take(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except OSError as error:  # it was closed meanwhile, or who called has gone
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(_BREATH)  # it is still ready: somebody has to close something first
            return
        connection.setblocking(True)
        with self._lock:
            app, connections = self._listening.get(listening, (None, {}))
            thread = threading.Thread(target=self._talk, args=(connection, app, connections), daemon=True)
            connections[connection] = thread
            try:
                if app is None:
                    raise RuntimeError("left meanwhile")
                thread.start()
            except RuntimeError:  # or there can be no more threads
                del connections[connection]
                connection.close()

    def _talk(self, connection: socket.socket, app: App, connections: _Connections) -> None:
        try:
            with suppress(Exception):  # who called has gone, or a reply broke off: all that is left is to cut
                _Handler(connection, app)
        finally:
            with self._lock:
                connections.pop(connection, None)
                connection.close()


class _Handler(BaseHTTPRequestHandler):
    """One connection: requests one after the other."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body of a reply in one piece
    disable_nagle_algorithm = True
    timeout = 600

    def __init__(self, connection: socket.socket, app: App) -> None:
        self.app = app
        super().__init__(connection, ("", 0), None)  # type: ignore[arg-type]  # it asks its server nothing

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        reply = self._reply()
        if not reply.status:
            self.close_connection = True
            return
        has_body = reply.status not in (204, 304)
        self.send_response_only(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, _one_line(value).encode().decode("latin-1"))
        if "Content-Length" not in reply.headers and has_body:
            self.send_header("Content-Length", str(len(reply.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD" and has_body:
            self.wfile.write(reply.body)
            for piece in reply.rest:
                self.wfile.write(piece)
        self.wfile.flush()

    def _reply(self) -> Reply:
        try:
            request = self._request()
        except ApiError as error:  # where the next request would begin, nobody knows
            self.close_connection = True
            return json_reply(error.body(), error.code)
        try:
            return self.app(request)
        except ApiError as error:
            return json_reply(error.body(), error.code)
        except Exception as error:  # the edge: whoever asked is told, and the connection goes on
            return json_reply(bug(error).body(), 500)

    def handle_expect_100(self) -> bool:
        """Say at once that the body may come."""
        is_wanted = super().handle_expect_100()
        self.wfile.flush()
        return is_wanted

    def _request(self) -> Request:
        headers = {name.lower(): _decoded(value) for name, value in self.headers.items()}
        try:
            url = urlsplit(self.path)
        except ValueError:
            raise invalid("the address makes no sense") from None
        pairs = tuple(parse_qsl(url.query, keep_blank_values=True))
        body = self._body(headers)
        small, large = (body, None) if isinstance(body, bytes) else (b"", body)
        return Request(self.command, url.path, dict(pairs), headers, small, large=large, pairs=pairs)

    def _body(self, headers: Mapping[str, str]) -> bytes | mmap.mmap:
        if "transfer-encoding" in headers:
            return self._chunks(headers["transfer-encoding"])
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > LARGEST:
            raise invalid("the length of the body is no number, or too large")
        return self._large(int(length)) if int(length) >= LARGE else self._exactly(int(length))

    def _exactly(self, length: int) -> bytes:
        data = self.rfile.read(length)
        if len(data) < length:
            raise ConnectionError("who called went away in the middle of a body")
        return data

    def _large(self, length: int) -> mmap.mmap:
        with tempfile.TemporaryFile() as file:
            for start in range(0, length, 1 << 20):
                file.write(self._exactly(min(1 << 20, length - start)))
            file.flush()
            return mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ)

    def _chunks(self, encoding: str) -> bytes:
        if encoding.lower() != "chunked":
            raise ApiError(501, "notImplemented", "of the ways to transfer a body, only chunked is known")
        data = bytearray()
        while size := self._chunk_size():
            if len(data) + size > _LARGEST_OF_CHUNKS:
                raise invalid("a body in chunks is too large")
            data += self._exactly(size)
            if self.rfile.readline(3) != b"\r\n":
                raise invalid("a chunk is longer than it says")
        while self.rfile.readline(_LONGEST_LINE).strip():  # more headers, which nobody needs
            pass
        return bytes(data)

    def _chunk_size(self) -> int:
        text = self.rfile.readline(_LONGEST_LINE).split(b";")[0].strip()
        if not re.fullmatch(rb"[0-9A-Fa-f]{1,16}", text):
            raise invalid("the length of a chunk is no number")
        return int(text, 16)


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")


def _decoded(text: str) -> str:
    """A header's value: it comes as UTF-8, though the standard library takes it for Latin-1."""
    try:
        return text.encode("latin-1").decode()
    except ValueError:
        return text


def listen_on_loopback(port: int = 0) -> socket.socket:
    """A socket that nobody beyond this machine can reach."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
        found.listen(1024)
    except (OSError, OverflowError):
        found.close()
        raise
    return found
