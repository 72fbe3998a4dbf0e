"""The server, driven over real sockets: what it answers, and that no caller can break it for the others."""

from __future__ import annotations

import gc
import http.client
import json
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from stoker.emulator.errors import ApiError
from stoker.emulator.http import Reply, Request, Server, json_reply, listen_on_loopback


def app(request: Request) -> Reply:
    """Tells what it was asked, unless the path says otherwise."""
    if request.path == "/refused":
        raise ApiError(409, "alreadyExists", "there is one already")
    if request.path == "/broken":
        raise KeyError("nobody thought of this")
    if request.path == "/wrong":
        raise ValueError("nor of this")
    if request.path == "/nothing":
        return Reply(204, b"not sent")
    if request.path == "/cut":
        return Reply(0)
    if request.path == "/header":
        return Reply(200, b"", {"X-Told": request.query["value"]})
    if request.path == "/half":
        return Reply(200, b"half", {"Content-Length": "8"}, rest=iter_broken())
    told = {"method": request.method, "path": request.path, "query": dict(request.query)}
    return json_reply(
        {**told, "body": bytes(request.content).decode("latin-1"), "headers": dict(request.headers)}
    )


def iter_broken() -> Iterator[bytes]:
    raise KeyError("in the middle")
    yield b"never"


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


@pytest.fixture
def port(server: Server) -> int:
    listening = listen_on_loopback()
    server.listen(listening, app)
    return int(listening.getsockname()[1])


@contextmanager
def raw(port: int) -> Iterator[socket.socket]:
    with closing(socket.create_connection(("127.0.0.1", port), timeout=20)) as made:
        yield made


def exchange(port: int, data: bytes) -> bytes:
    """Send this and nothing more; all that comes back."""
    with raw(port) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def bodies(answer: bytes) -> list[dict[str, object]]:
    """Of several replies in a row."""
    found = []
    while answer:
        head, _, answer = answer.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        found.append(json.loads(answer[:length]))
        answer = answer[length:]
    return found


def fine(port: int) -> bool:
    """Whether it still answers somebody else."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as client:
        client.request("GET", "/still")
        return client.getresponse().status == 200


# What it answers


def test_a_connection_is_kept(port: int) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as client:
        for number in range(20):
            client.request("PUT", f"/a%2Fb/{number}?x=1&y=", body=bytes([number]) * number)
            if number == 0:
                first = client.sock
            told = json.loads(client.getresponse().read())
            assert told["path"] == f"/a%2Fb/{number}"
            assert told["query"] == {"x": "1", "y": ""}
            assert told["body"] == chr(number) * number
            assert client.sock is first


def test_parts_of_a_path_are_decoded_one_by_one() -> None:
    assert Request("GET", "/b/one%2Ftwo/%C3%A4", {}, {}).parts == ["b", "one/two", "ä"]


def test_requests_one_behind_the_other(port: int) -> None:
    wanted = b"".join(b"PUT /%d HTTP/1.1\r\nContent-Length: 1\r\n\r\nx" % n for n in range(5))
    assert [one["path"] for one in bodies(exchange(port, wanted))] == [f"/{n}" for n in range(5)]


def test_a_body_in_chunks(port: int) -> None:
    data = b"3;name=x\r\nabc\r\nA\r\n0123456789\r\n0\r\nX-More: 1\r\n\r\n"
    wanted = b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + data + b"GET /b HTTP/1.1\r\n\r\n"
    first, second = bodies(exchange(port, wanted))
    assert (first["body"], second["path"]) == ("abc0123456789", "/b")


def test_a_head_has_no_body(port: int) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as client:
        client.request("GET", "/x")
        whole = client.getresponse().read()
        client.request("HEAD", "/x")
        reply = client.getresponse()
        assert int(reply.headers["content-length"]) == len(whole) + len("HEAD") - len("GET")
        assert reply.read() == b""
        client.request("GET", "/x")  # nothing of it came late
        assert client.getresponse().read() == whole


def test_a_204_has_no_body(port: int) -> None:
    answer = exchange(port, b"GET /nothing HTTP/1.1\r\n\r\nGET /x HTTP/1.1\r\n\r\n")
    assert b"not sent" not in answer
    assert answer.count(b"HTTP/1.1 ") == 2


def test_whoever_waits_for_leave_to_send_gets_it(port: int) -> None:
    with raw(port) as connection:
        connection.sendall(b"PUT /x HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 100")
        connection.sendall(b"ab")
        assert b'"body": "ab"' in connection.recv(65536)


def test_headers_are_utf8_and_one_line(port: int) -> None:
    answer = exchange(port, "GET /x HTTP/1.1\r\nX-Name: Zoë\r\n\r\n".encode())
    assert bodies(answer)[0]["headers"] == {"x-name": "Zoë"}
    answer = exchange(port, b"GET /header?value=Zo%C3%AB%0D%0AX-Evil:%201 HTTP/1.1\r\n\r\n")
    assert "X-Told: Zoë  X-Evil: 1\r\n".encode() in answer


def test_a_large_body(port: int) -> None:
    data = random.Random(1).randbytes(20 << 20)
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as client:
        client.request("PUT", "/large", body=data)
        assert json.loads(client.getresponse().read())["body"] == data.decode("latin-1")


# What goes wrong


def test_an_error_of_the_app_is_answered(port: int) -> None:
    answer = exchange(port, b"GET /refused HTTP/1.1\r\n\r\nGET /x HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 409")
    assert bodies(answer)[1]["path"] == "/x"


@pytest.mark.parametrize("path", [b"/broken", b"/wrong"])
def test_a_bug_of_the_app_is_answered_and_the_connection_goes_on(
    path: bytes, port: int, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = exchange(port, b"GET %s HTTP/1.1\r\n\r\nGET /x HTTP/1.1\r\n\r\n" % path)
    assert answer.startswith(b"HTTP/1.1 500")
    assert b"Error" in answer
    assert bodies(answer)[1]["path"] == "/x"
    assert capfd.readouterr().err == ""


def test_a_reply_that_breaks_off_is_cut(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert not exchange(port, b"GET /half HTTP/1.1\r\n\r\nGET /x HTTP/1.1\r\n\r\n").endswith(b"}")
    assert fine(port)
    assert capfd.readouterr().err == ""


def test_no_answer_at_all(port: int) -> None:
    assert exchange(port, b"GET /cut HTTP/1.1\r\n\r\nGET /x HTTP/1.1\r\n\r\n") == b""


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /x HTTP/9.9\r\n\r\n", 505),
        (b"GET http://[ HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /x HTTP/1.1\r\nA: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /x HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
        (b"PUT /x HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"PUT /x HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400),
        (b"PUT /x HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\n", 400),
        (b"PUT /x HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n", 400),
        (b"PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n7fffffffffff\r\n", 400),
        (b"PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabcde\r\n0\r\n\r\n", 400),
    ],
)
def test_nonsense_is_refused_and_the_connection_ends(
    sent: bytes, status: int, port: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with raw(port) as connection:
        with suppress(OSError):  # it may have closed before it read all of it
            connection.sendall(sent)
        answer = b""
        with suppress(OSError):
            answer = b"".join(iter(lambda: connection.recv(65536), b""))  # ends, though we did not close
    assert f" {status} ".encode() in answer.split(b"\r\n")[0]
    assert fine(port)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "sent",
    [
        b"PUT /x HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf",
        b"PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nhalf",
        b"PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ],
)
def test_half_a_body_is_no_request(sent: bytes, server: Server) -> None:
    asked: list[Request] = []

    def remember(request: Request) -> Reply:
        asked.append(request)
        return Reply()

    listening = listen_on_loopback()
    server.listen(listening, remember)
    exchange(listening.getsockname()[1], sent)
    assert asked == []


def test_slow_callers_are_in_nobodys_way(server: Server, port: int) -> None:
    slow = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(100)]
    for connection in slow:
        connection.sendall(b"GET /x HTTP/1.1\r\nX-")
    assert fine(port)
    server.close()  # does not wait for them
    for connection in slow:
        assert connection.recv(100) == b""
        connection.close()


def test_callers_that_vanish_leave_nothing(server: Server, port: int) -> None:
    before = None
    for _ in range(3):
        for number in range(100):
            connection = socket.create_connection(("127.0.0.1", port), timeout=20)
            connection.sendall(
                b"GET /x HTTP/1.1\r\n\r\nPUT /y HTTP/1.1\r\nContent-Length: 5\r\n\r\nab"[: number + 1]
            )
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
            connection.close()
        assert fine(port)
        wait_until(lambda: not talking())
        before = before or sockets()
        assert sockets() <= before


def talking() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if "_talk" in one.name]


def sockets() -> int:
    gc.collect()
    return sum(1 for name in os.listdir("/proc/self/fd") if is_socket(name))  # noqa: PTH208  (numbers)


def is_socket(name: str) -> bool:
    with suppress(OSError):
        return os.readlink(f"/proc/self/fd/{name}").startswith("socket:")  # noqa: PTH115  (no file)
    return False


def wait_until(condition: object) -> None:
    assert callable(condition)
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("it never happened")


# Beginning and ending


def test_all_sockets_are_closed_in_the_end() -> None:
    before, threads = sockets(), threading.active_count()
    server = Server()
    ports = []
    for _ in range(10):
        listening = listen_on_loopback()
        server.listen(listening, app)
        ports.append(listening.getsockname()[1])
    open_ = [socket.create_connection(("127.0.0.1", port), timeout=20) for port in ports for _ in range(5)]
    for connection in open_:
        connection.sendall(b"GET /x HTTP/1.1\r\n\r\n")
        assert connection.recv(5) == b"HTTP/"
    server.close()
    server.close()
    for connection in open_:
        connection.close()
    assert (sockets(), threading.active_count()) == (before, threads)
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=20)


def test_sockets_come_and_go_while_others_call(server: Server, port: int) -> None:
    """Nobody's request fails but those to sockets that are left."""
    failed: list[object] = []
    is_over = threading.Event()

    def call() -> None:
        while not is_over.is_set():
            try:
                if not fine(port):
                    failed.append("not fine")
            except OSError as error:
                failed.append(error)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for _ in range(200):
        listening = listen_on_loopback()
        server.listen(listening, app)
        with raw(listening.getsockname()[1]) as connection:
            connection.sendall(b"GET /x HTTP/1.1\r\n\r\n")
            assert connection.recv(5) == b"HTTP/"
            server.leave(listening)
            server.leave(listening)
            with suppress(ConnectionResetError):
                while connection.recv(65536):
                    pass
    is_over.set()
    for caller in callers:
        caller.join()
    assert failed == []


def test_a_request_may_leave_its_own_socket(server: Server) -> None:
    listening = listen_on_loopback()

    def last(request: Request) -> Reply:
        server.leave(listening)
        return Reply()

    server.listen(listening, last)
    exchange(listening.getsockname()[1], b"GET /x HTTP/1.1\r\n\r\n")
    wait_until(lambda: listening.fileno() == -1)


def test_a_long_answer_is_not_cut_by_another_caller(server: Server) -> None:
    release = threading.Event()

    def patient(request: Request) -> Reply:
        release.wait(60)
        return Reply(200, b"late")

    listening = listen_on_loopback()
    server.listen(listening, patient)
    port = listening.getsockname()[1]
    with raw(port) as connection:
        connection.sendall(b"GET /x HTTP/1.1\r\n\r\n")
        exchange_cut = socket.create_connection(("127.0.0.1", port), timeout=20)
        exchange_cut.close()
        release.set()
        assert connection.recv(65536).endswith(b"late")


def test_nothing_listens_beyond_loopback() -> None:
    listening = listen_on_loopback()
    assert listening.getsockname()[0] == "127.0.0.1"
    listening.close()


def test_a_port_in_use_is_an_error_and_leaves_no_socket() -> None:
    with closing(listen_on_loopback()) as listening:
        before = sockets()
        with pytest.raises(OSError, match="in use"):
            listen_on_loopback(listening.getsockname()[1])
        assert sockets() == before


EXHAUSTED = """
import os, resource, socket, sys, time
from stoker.emulator.http import Reply, Server, listen_on_loopback
server, listening = Server(), listen_on_loopback()
server.listen(listening, lambda request: Reply())
client = socket.socket()
resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError:
    pass
client.connect(listening.getsockname())
client.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
used, began = time.process_time(), time.monotonic()
time.sleep(1)
share = (time.process_time() - used) / (time.monotonic() - began)
for one in held:
    os.close(one)
client.settimeout(20)
answer = client.recv(100)
client.close()
server.close()
print(answer[:12].decode(), "busy" if share > 0.1 else "calm")
"""


def test_it_recovers_when_no_more_files_can_be_open() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXHAUSTED], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("HTTP/1.1 200 calm\n", "")
