#!/usr/bin/env python3
"""Records what a PyTorch client and PyTorch's own server say to each other, as golden files for our codec.

    record_store.py OUTPUT_DIR [--backend legacy|libuv] [--version 1.13.1]

Writes OUTPUT_DIR/torch-<version>-<topic>.txt in the format of tests/runtime/wire/golden/README.md: `A>S hex` from
connection A to the server, `S>A hex` back, B for the second connection, `# comment` above what it explains.

Line boundaries are not protocol boundaries, and neither are the segments that were seen. PING's nonce is the
client's process id, so that line differs from one recording to the next. LIST_KEYS answers in no given order.
"""

import argparse
import datetime
import multiprocessing
import os
import pathlib
import re
import socket
import sys
import threading
import time

os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:2")  # PyTorch looks up the name of every peer

from store_servers import OwnServer

try:
    import torch
    import torch.distributed as dist
except ImportError as missing:
    print(f"skipped: {sys.executable} has no usable torch: {missing}")
    sys.exit(77)

QUIET_S = 0.08
BYTES_A_LINE = 32
TOPICS = {}


class Tap:
    """A proxy in front of one server that remembers every byte, in order, with who sent it."""

    def __init__(self, server):
        self.server = server
        self.lines = []  # comments as str, traffic as [who, bytearray]
        self.names = {}
        self.lock = threading.Lock()
        self.last = time.monotonic()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            upstream = socket.create_connection((self.server.host, self.server.port))
            for end in (client, upstream):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.pump, args=(client, upstream, client, "{}>S"), daemon=True).start()
            threading.Thread(target=self.pump, args=(upstream, client, client, "S>{}"), daemon=True).start()

    def pump(self, source, sink, client, form):
        try:
            while data := source.recv(65536):
                self.heard(client, form, data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the other direction ended it

    def heard(self, client, form, data):
        with self.lock:  # named in the order of speaking: 1.13 opens connections that stay silent
            who = form.format(self.names.setdefault(id(client), chr(ord("A") + len(self.names))))
            self.last = time.monotonic()
            if self.lines and not isinstance(self.lines[-1], str) and self.lines[-1][0] == who:
                self.lines[-1][1].extend(data)
            else:
                self.lines.append([who, bytearray(data)])

    def note(self, text):
        time.sleep(QUIET_S)  # what needs no answer may still be on its way
        while time.monotonic() - self.last < QUIET_S:
            time.sleep(QUIET_S / 4)
        with self.lock:
            self.lines.append(text)
            return len(self.lines) - 1

    def replace(self, place, text):
        self.lines[place] = text

    def text(self):
        out = []
        for line in self.lines:
            if isinstance(line, str):
                out.append(f"# {line}\n")
                continue
            who, data = line
            out += [
                f"{who} {data[at:at + BYTES_A_LINE].hex(' ')}\n" for at in range(0, len(data), BYTES_A_LINE)
            ]
        return "".join(out)


def serve_tap(pipe, backend):
    server = OwnServer(dist, backend)
    tap = Tap(server)
    pipe.send(tap.port)
    while True:
        method, *args = pipe.recv()
        pipe.send(getattr(tap, method)(*args))


class Recorder:
    """A tap and its server in a process of their own: some calls of the client hold Python's lock while they wait."""

    def __init__(self, backend):
        newer = hasattr(dist.TCPStore, "libuvBackend")
        self.options = {"use_libuv": backend == "libuv"} if newer else {}
        self.pipe, far_end = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        self.process = context.Process(target=serve_tap, args=(far_end, backend), daemon=True)
        self.process.start()
        self.port = self.pipe.recv()

    def ask(self, method, *args):
        self.pipe.send((method, *args))
        return self.pipe.recv()

    def note(self, text):
        return self.ask("note", text)

    def client(self, world_size=None, wait_for_workers=False):
        seconds = datetime.timedelta(seconds=20)
        return dist.TCPStore(
            "127.0.0.1", self.port, world_size, False, seconds, wait_for_workers, **self.options
        )


def topic(name, needs=None):
    def register(function):
        TOPICS[name] = needs, function
        return function

    return register


def attempt(tap, text, call):
    """Notes a call and what it gave, in that order: the answer is known only after the bytes."""
    place = tap.note(text)
    try:
        outcome = repr(call())
    except Exception as error:  # what the client makes of it belongs into the file
        outcome = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    if outcome != "None":
        tap.ask("replace", place, f"{text} -> {outcome[:160]}")


def ms(count):
    return datetime.timedelta(milliseconds=count)


def later(call):
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    time.sleep(2 * QUIET_S)
    return thread


@topic("hello")
def _(tap):
    tap.note("a client without a world size")
    first = tap.client()
    tap.note("a client with world_size 2, which counts itself in")
    second = tap.client(2, wait_for_workers=True)
    attempt(tap, "num_keys()", second.num_keys)
    return first, second


@topic("set_get")
def _(tap):
    store = tap.client()
    for key, value in (("k", "v1"), ("k", ""), ("", "x"), ("ключ", "é")):
        attempt(tap, f"set({key!r}, {value!r})", lambda: store.set(key, value))
        attempt(tap, f"get({key!r})", lambda: store.get(key))


@topic("add")
def _(tap):
    store = tap.client()
    for delta in (5, -7, 0, 2**62):
        attempt(tap, f"add('n', {delta})", lambda: store.add("n", delta))
    attempt(tap, "get('n')", lambda: store.get("n"))


@topic("compare_set")
def _(tap):
    store = tap.client()
    for expected, desired in (
        ("wrong", "new"),
        ("", "new"),
        ("wrong", "newer"),
        ("new", "newer"),
        ("newer", ""),
    ):
        attempt(
            tap,
            f"compare_set('cs', {expected!r}, {desired!r})",
            lambda: store.compare_set("cs", expected, desired),
        )


@topic("delete_num_keys")
def _(tap):
    store = tap.client()
    attempt(tap, "num_keys()", store.num_keys)
    attempt(tap, "set('k', 'v')", lambda: store.set("k", "v"))
    attempt(tap, "num_keys()", store.num_keys)
    attempt(tap, "delete_key('k')", lambda: store.delete_key("k"))
    attempt(tap, "delete_key('k')", lambda: store.delete_key("k"))


@topic("check", needs="check")
def _(tap):
    store = tap.client()
    attempt(tap, "set('k', 'v')", lambda: store.set("k", "v"))
    for keys in (["k"], ["missing"], ["k", "missing"], []):
        attempt(tap, f"check({keys})", lambda: store.check(keys))


@topic("append", needs="append")
def _(tap):
    store = tap.client()
    attempt(tap, "append('a', 'po')", lambda: store.append("a", "po"))
    attempt(tap, "append('a', 'tato')", lambda: store.append("a", "tato"))
    attempt(tap, "get('a')", lambda: store.get("a"))


@topic("multi", needs="multi_get")
def _(tap):
    store = tap.client()
    attempt(tap, "multi_set(['a', 'b'], ['1', ''])", lambda: store.multi_set(["a", "b"], ["1", ""]))
    attempt(tap, "multi_get(['b', 'a'])", lambda: store.multi_get(["b", "a"]))
    attempt(tap, "multi_set([], [])", lambda: store.multi_set([], []))
    attempt(tap, "multi_get([])", lambda: store.multi_get([]))


@topic("wait")
def _(tap):
    waiting, writing = tap.client(), tap.client()
    attempt(tap, "set('a', '1')", lambda: writing.set("a", "1"))
    attempt(tap, "wait(['a']): there already", lambda: waiting.wait(["a"]))
    tap.note("wait(['b', 'a', 'c']), which another connection ends by set('b') and add('c')")
    waiter = later(lambda: waiting.wait(["b", "a", "c"]))
    writing.set("b", "2")
    time.sleep(QUIET_S)
    writing.add("c", 3)
    waiter.join()


@topic("wait_timeout")
def _(tap):
    store = tap.client()
    attempt(tap, "wait(['never'], 0.3 s)", lambda: store.wait(["never"], ms(300)))
    attempt(tap, "set('k', 'v') on the same connection", lambda: store.set("k", "v"))
    attempt(tap, "get('k')", lambda: store.get("k"))


@topic("queue", needs="queue_push")
def _(tap):
    store, other = tap.client(), tap.client()
    attempt(tap, "queue_len('q')", lambda: store.queue_len("q"))
    attempt(tap, "queue_push('q', '1')", lambda: store.queue_push("q", "1"))
    attempt(tap, "queue_push('q', '')", lambda: store.queue_push("q", ""))
    attempt(tap, "queue_len('q')", lambda: store.queue_len("q"))
    attempt(tap, "check(['q'])", lambda: store.check(["q"]))
    attempt(tap, "queue_pop('q')", lambda: store.queue_pop("q"))
    attempt(tap, "queue_pop('q', block=False)", lambda: store.queue_pop("q", False))
    attempt(tap, "queue_pop('q', block=False)", lambda: store.queue_pop("q", False))
    tap.note("queue_pop('q') blocks until another connection pushes")
    popper = later(lambda: store.queue_pop("q"))
    other.queue_push("q", "late")
    popper.join()
    store.set_timeout(ms(200))
    attempt(tap, "queue_pop('q') with a store timeout of 0.2 s", lambda: store.queue_pop("q"))


@topic("list_keys", needs="list_keys")
def _(tap):
    store = tap.client(1, wait_for_workers=True)
    attempt(tap, "list_keys() of a store that only has init/", store.list_keys)
    attempt(tap, "set('k', 'v')", lambda: store.set("k", "v"))
    attempt(tap, "list_keys()", store.list_keys)


@topic("barrier", needs="barrier")
def _(tap):
    first, second = tap.client(), tap.client()
    tap.note("barrier('b', 2) from two connections")
    waiter = later(lambda: first.barrier("b", 2))
    second.barrier("b", 2)
    waiter.join()
    attempt(
        tap,
        "barrier('b', 2) alone: the key keeps its count, so who comes later passes",
        lambda: first.barrier("b", 2),
    )
    attempt(tap, "barrier('late', 2, 0.2 s) alone", lambda: first.barrier("late", 2, ms(200)))
    attempt(
        tap,
        "barrier('late', 2): the arrival before the timeout still counts",
        lambda: second.barrier("late", 2),
    )
    attempt(tap, "num_keys()", first.num_keys)
    attempt(tap, "barrier('one', 1)", lambda: first.barrier("one", 1))
    attempt(tap, "get('one')", lambda: first.get("one"))
    prefixed = dist.PrefixStore("p", first)
    attempt(tap, "PrefixStore('p').barrier('one', 1)", lambda: prefixed.barrier("one", 1))


def main():
    parser = argparse.ArgumentParser(description="Record a PyTorch client and server as golden files")
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--backend", choices=["legacy", "libuv"], default="libuv")
    parser.add_argument(
        "--version", help="the version to write, where torch itself states another (Debian's 1.13.1)"
    )
    args = parser.parse_args()
    newer = hasattr(dist.TCPStore, "libuvBackend")
    backend = args.backend if newer else "legacy"
    version = args.version or re.match(r"[\d.]+\d", torch.__version__).group()
    args.output.mkdir(parents=True, exist_ok=True)
    for name, (needs, record) in TOPICS.items():
        if needs and not hasattr(dist.TCPStore, needs):
            print(f"skipped {name}: torch {torch.__version__} has no {needs}")
            continue
        tap = Recorder(backend)
        kept = record(tap)
        tap.note("end")
        head = f"# PyTorch {version}, its client and its {backend} server; recorded by tests/interop/record_store.py.\n"
        path = args.output / f"torch-{version}-{name}.txt"
        path.write_text(head + tap.ask("text").removesuffix("# end\n"), encoding="utf-8")
        print(path)
        tap.process.kill()
        del kept
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # 1.13 ends by an exception when a watching connection goes before its client
