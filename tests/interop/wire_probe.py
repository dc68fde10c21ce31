#!/usr/bin/env python3
"""Raw bytes against a TCPStore server: what it makes of edges that no client of PyTorch reaches.

    wire_probe.py --server 'CMD ARGS…' | HOST:PORT     what a distrun server must do (no torch needed)
    wire_probe.py --server libuv | legacy              the same questions to PyTorch's servers, which differ in places

One line per question. Where the expectation for PyTorch's servers is another one than ours, the case says so; why we
differ is in docs/tcpstore.md. Exit status: 0, 1 if an answer was unexpected, 77 if torch is needed and missing.
"""

import argparse
import os
import re
import socket
import struct
import sys
import time

from store_servers import CommandServer, GivenServer, OwnServer

CLOSED = "closed"
SILENT = "silent"
SILENCE_S = 0.25
CASES = []
HELLO = bytes.fromhex("00ce f785 3c")
(VALIDATE, SET, COMPARE_SET, GET, ADD, CHECK, WAIT, NUM_KEYS, DELETE, APPEND, MULTI_GET, MULTI_SET, CANCEL_WAIT, PING,
 PUSH, POP, LEN, LIST_KEYS, BARRIER) = range(19)  # fmt: skip


def blob(value):
    value = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(value)) + value


def keys(*names):
    return struct.pack("<Q", len(names)) + b"".join(map(blob, names))


def i64(value):
    return struct.pack("<q", value)


def op(number, *parts):
    return bytes([number]) + b"".join(part if isinstance(part, bytes) else blob(part) for part in parts)


class Peer:
    def __init__(self, server, hello=HELLO):
        self.socket = socket.create_connection((server.host, server.port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hello:
            self.socket.sendall(hello)

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            pass  # the next read tells that it was closed

    def read(self, count, patience_s=5.0):
        """`count` bytes, or CLOSED, or SILENT."""
        self.socket.settimeout(patience_s)
        data = b""
        try:
            while len(data) < count:
                more = self.socket.recv(count - len(data))
                if not more:
                    return CLOSED
                data += more
        except socket.timeout:
            return SILENT if not data else data
        except OSError:
            return CLOSED
        return data

    def quiet(self):
        return self.read(1, SILENCE_S)

    def wait_for(self, request):
        """Sends what is answered later, and returns once the server has read it."""
        self.send(request + op(PING, b"here"))
        got = self.read(4)
        if got != b"here":
            raise AssertionError(f"{got!r} in place of a pong")

    def ask(self, request, count):
        self.send(request)
        return self.read(count)

    def alive(self):
        return self.ask(op(PING, b"ok??"), 4) == b"ok??"


def case(title, ours, **pytorch):
    """What a question must give: on our server, and where it differs on `libuv` or `legacy`."""

    def register(function):
        CASES.append((title, ours, pytorch, function))
        return function

    return register


@case("PING gives its four bytes back", b"\1\2\3\4")
def _(new):
    return new().ask(op(PING, b"\1\2\3\4"), 4)


@case("a VALIDATE that arrives in two pieces is accepted", b"\1\2\3\4", libuv=CLOSED)
def _(new):
    peer = new(hello=HELLO[:1])
    time.sleep(0.1)
    peer.send(HELLO[1:])
    return peer.ask(op(PING, b"\1\2\3\4"), 4)


@case("a second VALIDATE closes the connection", CLOSED)
def _(new):
    return new().ask(HELLO, 1)


@case("a wrong magic number closes the connection", CLOSED, libuv=SILENT)
def _(new):
    return new(hello=b"").ask(bytes(range(9)) + b"\xff" * 8, 1)


@case("HTTP closes the connection or is answered as HTTP", True, libuv=False)
def _(new):
    got = new(hello=b"").ask(b"GET / HTTP/1.0\r\n\r\n", 5)
    return got in (CLOSED, b"HTTP/")


@case("request number 19 closes the connection", CLOSED)
def _(new):
    return new().ask(b"\x13", 1)


@case("request number 255 closes the connection", CLOSED)
def _(new):
    return new().ask(b"\xff", 1)


@case("a bad request ends only its own connection", True)
def _(new):
    good, bad = new(), new()
    bad.ask(b"\xff", 1)
    return good.alive()


@case("GET of a missing key: an empty value", i64(0), legacy=CLOSED)
def _(new):
    return new().ask(op(GET, "/get.missing"), 8)


@case("MULTI_GET with a missing key: an empty value in its place", blob("v") + i64(0), legacy=CLOSED)
def _(new):
    peer = new()
    peer.send(op(SET, "/multi.a", "v"))
    return peer.ask(op(MULTI_GET, keys("/multi.a", "/multi.missing")), 17)


@case("ADD to ' 12abc' counts on from 12", i64(13) + blob("13"))
def _(new):
    peer = new()
    return peer.ask(op(SET, "/add.text", " 12abc") + op(ADD, "/add.text", i64(1)) + op(GET, "/add.text"), 18)


@case("ADD to 'abc' closes the connection and leaves the value", (CLOSED, blob("abc")))
def _(new):
    first = new().ask(op(SET, "/add.abc", "abc") + op(ADD, "/add.abc", i64(1)), 8)
    return first, new().ask(op(GET, "/add.abc"), 11)


@case("ADD to an empty value closes the connection", CLOSED)
def _(new):
    return new().ask(op(SET, "/add.empty", "") + op(ADD, "/add.empty", i64(1)), 8)


@case("ADD beyond the largest integer wraps", i64(-(2**63)))
def _(new):
    return new().ask(op(SET, "/add.max", str(2**63 - 1)) + op(ADD, "/add.max", i64(1)), 8)


@case("CHECK and WAIT of no keys are satisfied", b"\0\0")
def _(new):
    return new().ask(op(CHECK, keys()) + op(WAIT, keys()), 2)


@case("CANCEL_WAIT is answered even when nothing waits", b"\1")
def _(new):
    return new().ask(op(CANCEL_WAIT), 1)


@case("who waits is still answered other questions, and then woken", (b"wait", SILENT, b"\0"))
def _(new):
    waiting, writing = new(), new()
    pong = waiting.ask(op(WAIT, keys("/wake.a")) + op(PING, b"wait"), 4)
    quiet = waiting.quiet()
    writing.send(op(SET, "/wake.a", "1"))
    return pong, quiet, waiting.read(1)


@case("after CANCEL_WAIT a write wakes nobody", (b"\1", SILENT))
def _(new):
    waiting, writing = new(), new()
    answer = waiting.ask(op(WAIT, keys("/cancel.a")) + op(CANCEL_WAIT), 1)
    writing.send(op(SET, "/cancel.a", "1"))
    return answer, waiting.quiet()


@case("a key named twice is paid by one write", b"\0")
def _(new):
    waiting = new()
    waiting.wait_for(op(WAIT, keys("/twice", "/twice")))
    new().send(op(SET, "/twice", "1"))
    return waiting.read(1)


@case("a key that was written and deleted again counts as seen", (SILENT, b"\0"))
def _(new):
    waiting, writing = new(), new()
    waiting.wait_for(op(WAIT, keys("/seen.a", "/seen.b")))
    writing.ask(op(SET, "/seen.a", "1") + op(DELETE, "/seen.a"), 8)
    quiet = waiting.quiet()
    writing.send(op(SET, "/seen.b", "1"))
    return quiet, waiting.read(1)


def wakes(new, number, *parts, before=b"", patience_s=5.0):
    waiting, writing = new(), new()
    key = f"/wakes.{time.monotonic_ns()}"
    waiting.wait_for(op(WAIT, keys(key)))
    writing.send(before + op(number, key, *parts))
    return waiting.read(1, patience_s)


@case("ADD wakes", b"\0")
def _(new):
    return wakes(new, ADD, i64(1))


@case("APPEND wakes", b"\0")
def _(new):
    return wakes(new, APPEND, "v")


@case("COMPARE_SET that stored wakes", b"\0", legacy=SILENT)
def _(new):
    return wakes(new, COMPARE_SET, "", "v")


@case("COMPARE_SET that stored nothing does not wake", SILENT, libuv=b"\0")
def _(new):
    return wakes(new, COMPARE_SET, "other", "v", patience_s=0.6)


@case("DELETE of a missing key does not wake", SILENT)
def _(new):
    return wakes(new, DELETE, patience_s=0.6)


@case("a key of 8,192 bytes passes, one of 8,193 closes", (i64(0), CLOSED), legacy=(i64(0), i64(0)))
def _(new):
    return tuple(new().ask(op(DELETE, "k" * size), 8) for size in (8192, 8193))


@case("a value announced as 8,388,609 bytes closes at once", CLOSED, legacy=SILENT)
def _(new):
    peer = new()
    peer.send(op(SET, "/huge") + struct.pack("<Q", 8_388_609))
    return peer.read(1)


@case("131,073 keys close the connection", CLOSED, legacy=SILENT)
def _(new):
    peer = new()
    peer.send(op(CHECK) + struct.pack("<Q", 131_073))
    return peer.read(1)


@case("a length of 2^63 closes the connection", CLOSED)
def _(new):
    return new().ask(op(GET) + struct.pack("<Q", 2**63), 1)


@case("a request byte by byte", i64(0))
def _(new):
    peer = new()
    for byte in op(DELETE, "/slow"):
        peer.send(bytes([byte]))
        time.sleep(0.002)
    return peer.read(8)


@case("a half request of one client holds up nobody", b"ok??", legacy=SILENT)
def _(new):
    slow, other = new(), new()
    slow.send(op(SET, "/half")[:5])
    time.sleep(0.1)
    other.send(op(PING, b"ok??"))
    answer = other.read(4)
    slow.socket.close()
    return answer


@case("many requests in one piece are answered in order", i64(1) + i64(3) + b"\0" + blob("3") + i64(1))
def _(new):
    batch = (
        op(ADD, "/batch", i64(1))
        + op(ADD, "/batch", i64(2))
        + op(CHECK, keys("/batch"))
        + op(GET, "/batch")
        + op(DELETE, "/batch")
    )
    return new().ask(batch, 34)


@case("an empty value comes without delay", True, legacy=False)
def _(new):
    peer = new()
    peer.send(op(SET, "/nothing", ""))
    for _ in range(10):  # the machine may be busy elsewhere for a while
        began = time.monotonic()
        got = peer.ask(op(GET, "/nothing"), 8)
        if got == i64(0) and time.monotonic() - began < 0.1:
            return True
    return False


@case("POP of an unknown queue: length 0, no value", i64(0) + b"ok??", legacy=CLOSED)
def _(new):
    return new().ask(op(POP, "/q.none") + op(PING, b"ok??"), 12)


@case("POP says the length before it takes", i64(2) + blob("a") + i64(1), legacy=CLOSED)
def _(new):
    return new().ask(
        op(PUSH, "/q.two", "a") + op(PUSH, "/q.two", "b") + op(POP, "/q.two") + op(LEN, "/q.two"), 25
    )


@case("a PUSH wakes one waiter", (b"\0", SILENT), legacy=(SILENT, SILENT))
def _(new):
    first, second = new(), new()
    for waiting in (first, second):
        waiting.wait_for(op(WAIT, keys("/q.wake")))
    new().send(op(PUSH, "/q.wake", "x"))
    return first.read(1), second.quiet()


@case("a barrier of two opens for both with the second", (SILENT, b"\0", b"\0"))
def _(new):
    first, second = new(), new()
    first.send(op(BARRIER, "/bar", i64(2)))
    quiet = first.quiet()
    answer = second.ask(op(BARRIER, "/bar", i64(2)), 1)
    return quiet, answer, first.read(1)


@case("a barrier's arrival outlives its timeout", (b"\1", b"\0"))
def _(new):
    first, second = new(), new()
    canceled = first.ask(op(BARRIER, "/bar.late", i64(2)) + op(CANCEL_WAIT), 1)
    return canceled, second.ask(op(BARRIER, "/bar.late", i64(2)), 1)


@case("a barrier on a key that is no number closes the connection", CLOSED)
def _(new):
    return new().ask(op(SET, "/bar.text", "abc") + op(BARRIER, "/bar.text", i64(2)), 1)


@case("LIST_KEYS tells raw keys, init/ too, and no queues", True)
def _(new):
    peer = new()
    peer.ask(
        (
            op(ADD, "init/", i64(1)) + op(PUSH, "/listed.queue", "x")
            if peer.queues
            else op(ADD, "init/", i64(1))
        ),
        8,
    )
    peer.send(op(SET, "/listed", "1") + op(LIST_KEYS))
    count = struct.unpack("<q", peer.read(8))[0]
    names = [peer.read(struct.unpack("<Q", peer.read(8))[0]) for _ in range(count)]
    return b"init/" in names and b"/listed" in names and b"/listed.queue" not in names


def main():
    parser = argparse.ArgumentParser(description="Raw questions to a TCPStore server")
    parser.add_argument(
        "--server",
        required=True,
        help="libuv, legacy, HOST:PORT, or a command that prints 'listening on ADDR:PORT'",
    )
    args = parser.parse_args()
    kind = args.server if args.server in ("libuv", "legacy") else "ours"
    if kind != "ours":
        try:
            import torch
            import torch.distributed as dist
        except ImportError as missing:
            print(f"skipped: {sys.executable} has no usable torch: {missing}")
            return 77
        if not hasattr(dist.TCPStore, "barrier"):
            print(f"skipped: torch {torch.__version__} is older than the requests asked about")
            return 77
    failed = 0
    for title, ours, pytorch, question in CASES:
        if kind != "ours":
            server = OwnServer(dist, kind)
        elif re.fullmatch(r"\S+:\d+", args.server):
            server = GivenServer(args.server)
        else:
            server = CommandServer(args.server)

        def new(hello=HELLO):
            peer = Peer(server, hello)
            peer.queues = kind != "legacy"
            return peer

        wanted = pytorch.get(kind, ours)
        try:
            got = question(new)
            server.close()
        except Exception as error:  # one question must not hide the others
            got = f"{type(error).__name__}: {error}"
        differs = f" (ours: {ours!r})" if kind in pytorch else ""
        if got == wanted:
            print(f"ok   {title}{differs}", flush=True)
        else:
            failed += 1
            print(f"FAIL {title}: {got!r}, expected {wanted!r}{differs}", flush=True)
    print(f"{len(CASES) - failed} ok, {failed} FAIL")
    return 1 if failed else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # PyTorch's legacy server may be stuck in a read that a question left open
