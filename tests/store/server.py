"""A real S3 server in a process of its own, and a proxy before it that can go wrong in every way."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

BUCKET = "bucket"


@dataclass(frozen=True)
class Fault:
    """What becomes of one request."""

    lands: bool = True
    """Whether the server gets it."""
    status: int | None = None
    """What is answered instead of the server's own answer; 0 closes the connection without any."""
    part: int | None = None
    """How much of the body is answered before the connection closes."""
    delay: float = 0
    """Seconds before the answer."""


@dataclass(frozen=True)
class Request:
    """What a fault is chosen by."""

    method: str
    path: str


@dataclass
class Weather:
    """Decides about each request; a test sets `forecast`, and may look at what came."""

    forecast: Callable[[Request], Fault | None] = lambda request: None
    rewrite: Callable[[str], str] = lambda path: path
    seen: list[Request] = field(default_factory=list)

    def clear(self) -> None:
        self.forecast, self.rewrite = Weather.forecast, Weather.rewrite
        self.seen.clear()


def first(number: int, method: str, fault: Fault) -> Callable[[Request], Fault | None]:
    """This fault for the first requests with the method, and none for others."""
    lock, left = Lock(), [number]

    def forecast(request: Request) -> Fault | None:
        with lock:
            if request.method != method or not left[0]:
                return None
            left[0] -= 1
            return fault

    return forecast


@contextmanager
def s3_server() -> Iterator[str]:
    """The address of an empty server that has the bucket."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _make_bucket(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _make_bucket(port: int, process: subprocess.Popen[bytes]) -> None:
    scope = "Credential=x/20200101/us-east-1/s3/aws4_request"
    headers = {"Authorization": f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=x"}
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("PUT", f"/{BUCKET}", headers=headers)
            assert connection.getresponse().status == 200
            return
        except ConnectionError:
            time.sleep(0.05)
        finally:
            connection.close()
    raise TimeoutError("the S3 server did not start")


@contextmanager
def proxy(target: str, weather: Weather) -> Iterator[str]:
    """The address of a proxy before the server."""

    class Bound(_Handler):
        pass

    Bound.target, Bound.weather = target.removeprefix("http://"), weather
    server = _Server(("127.0.0.1", 0), Bound)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is what some tests are about."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    target: str
    weather: Weather
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        request = Request(self.command, self.path)
        self.weather.seen.append(request)
        fault = self.weather.forecast(request) or Fault()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = self._forward(body) if fault.lands else None
        time.sleep(fault.delay)
        if fault.status == 0:
            self.close_connection = True
        elif fault.status is not None or answer is None:
            error = f"<Error><Code>Fault</Code><Message>fault {fault.status}</Message></Error>"
            self._answer(fault.status or 500, {}, error.encode())
        else:
            self._answer(answer[0].status, dict(answer[0].getheaders()), answer[1], fault.part)

    do_GET = do_POST = do_HEAD = do_DELETE = do_PUT  # noqa: N815

    def _forward(self, body: bytes) -> tuple[HTTPResponse, bytes]:
        connection = HTTPConnection(self.target, timeout=30)
        try:
            connection.request(self.command, self.weather.rewrite(self.path), body, dict(self.headers))
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: dict[str, str], body: bytes, part: int | None = None) -> None:
        self.send_response_only(status)
        own = ("content-length", "connection", "transfer-encoding")
        for name, value in headers.items():
            if name.lower() not in own:
                self.send_header(name, value)
        length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(body if part is None else body[:part])
        self.close_connection = part is not None

    def log_message(self, format: str, *args: object) -> None:
        pass
