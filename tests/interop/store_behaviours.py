#!/usr/bin/env python3
"""The behaviours that PyTorch's own store tests assert, with a real PyTorch client, one line of output each.

    store_behaviours.py --server legacy             against PyTorch's poll-loop server (checks this suite)
    store_behaviours.py --server libuv              against PyTorch's event-loop server (the same)
    store_behaviours.py --server 'CMD ARGS…'        against a server that the command starts, fresh for each behaviour
    store_behaviours.py --server HOST:PORT          against a server that runs already

The numbers are those of PyTorch's tests as listed in README.md. "ok" and "FAIL" were tried; "skip" is what this
torch or this server cannot do; "n/a" looks at Python objects or at other stores only, and no server is involved.
Exit status: 0, 1 if anything failed, 77 if this Python has no torch.
"""

import argparse
import contextlib
import datetime
import faulthandler
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

os.environ.setdefault(
    "RES_OPTIONS", "timeout:1 attempts:2"
)  # before anything resolves a name; see CONNECT_MS

from store_servers import CommandServer, GivenServer, OwnServer

try:
    import torch
    import torch.distributed as dist
except ImportError as missing:
    print(f"skipped: {sys.executable} has no usable torch: {missing}")
    sys.exit(77)

VERSION = tuple(int(part) for part in re.match(r"(\d+)\.(\d+)", torch.__version__).groups())
OLD = VERSION < (2, 0)
StoreError = getattr(dist, "DistStoreError", RuntimeError)
NetworkError = getattr(dist, "DistNetworkError", RuntimeError)
QueueEmptyError = getattr(dist, "QueueEmptyError", RuntimeError)
SECONDS_EACH = 40
# PyTorch looks the name of ::ffff:127.0.0.1 up for each connection; a lost DNS packet must not fail a test.
CONNECT_MS = 20_000
BEHAVIOURS = []


class Skip(Exception):
    """This torch, or this server, cannot do it; the text says why."""


def behaviour(number, title, needs=None, own_only=None):
    """Registers a behaviour. `needs`: a method that the client must have; `own_only`: why no other server is asked."""

    def register(function):
        BEHAVIOURS.append((number, title, needs, own_only, function))
        return function

    return register


def not_applicable(number, why):
    BEHAVIOURS.append((number, why, None, None, None))


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def equal(got, wanted, what="got"):
    check(got == wanted, f"{what}: {got!r}, expected {wanted!r}")


@contextlib.contextmanager
def raises(kind, pattern, within_s=None):
    began = time.monotonic()
    try:
        yield
    except kind as error:
        check(
            re.search(pattern, str(error)),
            f"{type(error).__name__} says {str(error)[:300]!r}, expected /{pattern}/",
        )
        took = time.monotonic() - began
        check(within_s is None or took < within_s, f"took {took:.2f} s, expected less than {within_s} s")
        return
    raise AssertionError(f"no {kind.__name__} was raised")


@contextlib.contextmanager
def environment(**changes):
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def ms(count):
    return datetime.timedelta(milliseconds=count)


class Bench:
    """One behaviour's server and the clients it makes."""

    def __init__(self, server, kind, shared):
        self.server, self.kind, self.shared = server, kind, shared
        self.host, self.port = server.host, server.port
        self.own = kind in ("legacy", "libuv")

    def client(self, world_size=None, timeout=ms(5000), wait_for_workers=False, **options):
        if self.kind == "legacy" and not OLD:
            options["use_libuv"] = False
        store = dist.TCPStore(
            self.host, self.port, world_size, False, ms(CONNECT_MS), wait_for_workers, **options
        )
        store.set_timeout(timeout)
        return store

    def stores(self, timeout=ms(5000)):
        """The two stores of the common suite that speak to a server."""
        stamp = f"{time.monotonic_ns()}"
        plain = self.client(timeout=timeout)
        yield "TCPStore", dist.PrefixStore(stamp, plain) if self.shared else plain
        yield "PrefixStore", dist.PrefixStore(f"prefix{stamp}", self.client(timeout=timeout))

    def counting_client(self):
        """A client that has counted itself in, and how many keys the server had then."""
        store = self.client(1, wait_for_workers=True)
        base = store.num_keys()
        if not self.shared:
            equal(base, 1, "keys of a fresh store (init/)")
        return store, base


def in_thread(function):
    result = []

    def run():
        try:
            result.append((True, function()))
        except BaseException as error:  # reported by the one who joins
            result.append((False, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def finish(timeout_s):
        thread.join(timeout_s)
        check(not thread.is_alive(), f"the thread was still busy after {timeout_s} s")
        good, value = result[0]
        if not good:
            raise value
        return value

    finish.thread = thread
    return finish


# ---- the common suite ------------------------------------------------------------------------------------------


@behaviour("1", "add counts in decimal text")
def _(bench):
    for _name, store in bench.stores():
        equal([store.add("a", n) for n in (1, 2, 3)], [1, 3, 6])
        equal(store.get("a"), b"6")
        for n in range(1, 7):
            store.add("b", n)
        equal(store.get("b"), b"21")
        equal(store.add("b", -30), -9)


@behaviour("2", "set then get returns the same bytes")
def _(bench):
    for _name, store in bench.stores():
        for key, value in (
            ("key", "value"),
            ("key0", ""),
            ("", "empty key"),
            ("ключ", "значение"),
            ("big", "x" * 1_000_000),
        ):
            store.set(key, value)
            equal(store.get(key), value.encode(), f"get({key[:8]!r})")


@behaviour("3", "num_keys counts init/ and every prefix")
def _(bench):
    for prefix in (None, "prefix"):
        store, base = bench.counting_client()
        if prefix:
            store = dist.PrefixStore(prefix, store)
        for key in ("key", "key0", "key1", "key2", "key3"):
            store.set(key, "value")
        equal(store.num_keys(), base + 5)
        for key in ("key", "key0", "key1", "key2", "key3"):
            check(store.delete_key(key), f"{key} was not deleted")
        equal(store.num_keys(), base)


@behaviour("4", "check tells what exists", needs="check")
def _(bench):
    for _name, store in bench.stores():
        store.set("there", "1")
        equal(store.check(["there"]), True)
        equal(store.check(["missing"]), False)
        equal(store.check(["there", "missing"]), False)
        equal(store.check([]), True)


@behaviour("5", "a key that begins with a dash is a key like others")
def _(bench):
    for _name, store in bench.stores():
        before = store.num_keys()
        store.set("-key3", "7")
        equal(store.get("-key3"), b"7")
        equal(store.num_keys(), before + 1)
        equal(store.delete_key("-key3"), True)
        equal(store.num_keys(), before)


@behaviour("6", "compare_set on a missing key answers the expected value")
def _(bench):
    for _name, store in bench.stores():
        equal(store.compare_set("cas", "wrong_old_value", "new"), b"wrong_old_value")
        if hasattr(store, "check"):
            equal(store.check(["cas"]), False)


@behaviour("7", "compare_set with a wrong expectation answers the present value and leaves it")
def _(bench):
    for _name, store in bench.stores():
        store.set("cas", "present")
        equal(store.compare_set("cas", "wrong_old_value", "new"), b"present")
        equal(store.get("cas"), b"present")


@behaviour("8", "compare_set with the right expectation stores and answers the new value")
def _(bench):
    for _name, store in bench.stores():
        store.set("cas", "present")
        equal(store.compare_set("cas", "present", "new"), b"new")
        equal(store.get("cas"), b"new")


@behaviour("9", "compare_set of a missing key with an empty expectation stores")
def _(bench):
    for _name, store in bench.stores():
        equal(store.compare_set("cas", "", "new"), b"new")
        equal(store.get("cas"), b"new")


@behaviour("10", "wait on a missing key times out; on a key made by add it returns")
def _(bench):
    for _name, store in bench.stores():
        with raises(RuntimeError, "[tT]ime ?out|Timeout", within_s=3):
            store.wait(["missing"], ms(250))
    for _name, store in bench.stores():
        store.add("counted", 1)
        store.wait(["counted"], ms(2000))


@behaviour("11", "append extends or creates", needs="append")
def _(bench):
    for _name, store in bench.stores():
        equal(store.has_extended_api(), True)
        store.set("on old", "po")
        store.append("on old", "tato")
        store.append("on new", "po")
        store.append("on new", "tato")
        equal(store.get("on old"), b"potato")
        equal(store.get("on new"), b"potato")


@behaviour("12", "multi_set and multi_get keep the order", needs="multi_get")
def _(bench):
    for _name, store in bench.stores():
        store.multi_set(["foo", "bar"], ["po", "tato"])
        equal([store.get("foo"), store.get("bar")], [b"po", b"tato"])
        equal(store.multi_get(["bar", "foo"]), [b"tato", b"po"])


@behaviour("13", "a clone reads what the original wrote", needs="clone")
def _(bench):
    for _name, store in bench.stores():
        copy = store.clone()
        check(isinstance(copy, dist.Store), f"clone() is a {type(copy)}")
        store.set("foo", "bar")
        equal(copy.get("foo"), b"bar")


def with_queues(bench, timeout=ms(5000)):
    for name, store in bench.stores(timeout):
        try:
            store.queue_len("probe")
        except NotImplementedError as error:
            raise Skip(f"this server has no queues: {error}") from None
        yield name, store


@behaviour("14a", "a queue counts as a key while it holds something", needs="queue_push")
def _(bench):
    for _name, store in with_queues(bench):
        equal((store.check(["q"]), store.queue_len("q")), (False, 0))
        store.queue_push("q", "1")
        store.queue_push("q", "2")
        equal((store.check(["q"]), store.queue_len("q")), (True, 2))
        store.wait(["q"], ms(2000))


@behaviour("14b", "first in, first out, and then nothing", needs="queue_push")
def _(bench):
    for _name, store in with_queues(bench):
        for value in ("1", "2", ""):
            store.queue_push("q", value)
        equal([store.queue_pop("q") for _ in range(3)], [b"1", b"2", b""])
        equal((store.check(["q"]), store.queue_len("q")), (False, 0))


@behaviour("14c", "a pop that may not block says that the queue is empty", needs="queue_push")
def _(bench):
    for _name, store in with_queues(bench):
        with raises(QueueEmptyError, "empty"):
            store.queue_pop("q", block=False)
        store.queue_push("q", "1")
        equal(store.queue_pop("q", block=False), b"1")


@behaviour("14d", "two clones exchange items by blocking pops", needs="queue_push")
def _(bench):
    for _name, store in with_queues(bench):

        def worker_a(mine=store.clone()):
            mine.queue_push("a to b", "ping")
            return mine.queue_pop("b to a")

        def worker_b(mine=store.clone()):
            got = mine.queue_pop("a to b")
            mine.queue_push("b to a", "pong")
            return got

        a, b = in_thread(worker_a), in_thread(worker_b)
        equal((a(10), b(10)), (b"pong", b"ping"))


@behaviour("14e", "a blocking pop times out with the store", needs="queue_push")
def _(bench):
    for _name, store in with_queues(bench, timeout=ms(5000)):
        store.set_timeout(ms(10))
        with raises(StoreError, "timeout", within_s=3):
            store.queue_pop("never")


# ---- FileStore, PrefixStore ------------------------------------------------------------------------------------

not_applicable("15", "FileStore: no server")
not_applicable("16", "FileStore: no server")


@behaviour("17", "underlying_store is the store passed in")
def _(bench):
    store = bench.client()
    check(dist.PrefixStore("p", store).underlying_store is store, "another object came back")


not_applicable("18", "PrefixStore without a store: refused in Python, no server")


@behaviour("19", "three prefixes deep, the last store is the TCPStore, and the inner prefix comes first")
def _(bench):
    store = bench.client()
    deep = dist.PrefixStore("3", dist.PrefixStore("2", dist.PrefixStore("1", store)))
    deep.set("key", "value")
    equal(store.get("1/2/3/key"), b"value")
    if hasattr(deep, "_underlying_non_prefix_store"):
        check(deep._underlying_non_prefix_store is store, "another object came back")


# ---- TCPStore --------------------------------------------------------------------------------------------------


@behaviour("20", "a second server on the port is refused")
def _(bench):
    with raises(NetworkError, rf"failed to listen on any local.*{bench.port}"):
        dist.TCPStore("127.0.0.1", bench.port, None, True, ms(CONNECT_MS), wait_for_workers=False)


@behaviour(
    "21", "multi_tenant shares one server in one process", own_only="both servers live in one PyTorch process"
)
def _(bench):
    first = dist.TCPStore("127.0.0.1", 0, 1, True, ms(CONNECT_MS), multi_tenant=True)
    second = dist.TCPStore("127.0.0.1", first.port, 1, True, ms(CONNECT_MS), multi_tenant=True)
    equal(first.port, second.port)
    first.set("key", "value")
    equal(second.get("key"), b"value")
    if not OLD:
        equal(first.libuvBackend, True)


@behaviour("22", "repr of a client names both ends and no server")
def _(bench):
    if OLD:
        raise Skip("1.13 has no repr of its own")
    text = repr(bench.client())
    pattern = r"TCPStore\(client=TCPClient\(SocketImpl\(fd=\d+, addr=\[.+\]:\d+, remote=\[.+\]:(\d+)\)\), server=<nullptr>\)"
    found = re.fullmatch(pattern, text)
    check(found and int(found.group(1)) == bench.port, f"repr is {text}")


GROUP_AND_RPC = """
import os, sys, torch, torch.distributed as dist
from torch.distributed import rpc
dist.init_process_group("gloo", rank=0, world_size=1)
dist.barrier()
rpc.init_rpc("w0", rank=0, world_size=1, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
    init_method="tcp://{host}:{port}", _transports=["uv"]))
assert rpc.rpc_sync("w0", torch.add, args=(torch.ones(1), 1)).item() == 2
rpc.shutdown()
dist.destroy_process_group()
"""


@behaviour("23", "a process group and RPC share one address")
def _(bench):
    variables = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
        "TP_SOCKET_IFNAME": "lo",
    }
    held = socket.socket()
    if bench.own:
        # Held until the script's end: it takes seconds to come to it, and sets SO_REUSEADDR itself.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        if bench.kind == "legacy":
            variables["USE_LIBUV"] = "0"
    else:
        port = bench.port
        variables.update(TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0")
        if OLD:
            raise Skip("1.13's tcp:// rendezvous always hosts at rank 0; it cannot be a client there")
    variables["MASTER_PORT"] = str(port)
    script = GROUP_AND_RPC.format(host="127.0.0.1", port=port)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env=variables,
        capture_output=True,
        text=True,
        timeout=SECONDS_EACH - 5,
    )
    held.close()
    check(done.returncode == 0, f"exit {done.returncode}: {done.stderr[-800:]}")


@behaviour(
    "24",
    "a bound socket can be handed over",
    own_only="the socket is handed to a server in the same PyTorch process",
)
def _(bench):
    if OLD:
        raise Skip("1.13 has no master_listen_fd")
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    store = dist.TCPStore("127.0.0.1", port, 1, True, ms(CONNECT_MS), master_listen_fd=listener.detach())
    store.set("key", "value")
    equal(store.get("key"), b"value")


@behaviour("25", "num_keys and delete_key, and a deleted key is waited for again")
def _(bench):
    store, base = bench.counting_client()
    store.set_timeout(ms(2000))
    for n in range(4):
        store.set(f"key{n}", f"value{n}")
    equal(store.num_keys(), base + 4)
    equal(store.delete_key("key3"), True)
    equal(store.delete_key("key3"), False)
    equal(store.num_keys(), base + 3)
    with raises(RuntimeError, "[tT]imeout", within_s=5):
        store.get("key3")
    store.delete_key("key0")
    store.delete_key("key2")
    equal(store.num_keys(), base + 1)
    store.set("key4", "value4")
    equal(store.num_keys(), base + 2)
    equal((store.get("key1"), store.get("key4")), (b"value1", b"value4"))
    store.delete_key("key1")
    store.delete_key("key4")


@behaviour("26", "five clients one after another, with and without a world size")
def _(bench):
    bench.client().set("shared", "from the first")
    for world_size in (6, None):
        for n in range(5):
            store = bench.client(world_size)
            equal(store.get("shared"), b"from the first")
            store.set(f"of {n}", "old")
            equal(store.compare_set(f"of {n}", "old", "new"), b"new")
            del store


@behaviour("27", "append, multi_set and multi_get of a TCPStore", needs="multi_set")
def _(bench):
    store = bench.client()
    store.set("foo", "po")
    store.append("foo", "tato")
    store.append("bar", "po")
    store.append("bar", "tato")
    equal((store.get("foo"), store.get("bar")), (b"potato", b"potato"))
    store.multi_set(["a", "b", "c"], ["1", "", "3"])
    equal(store.multi_get(["c", "b", "a"]), [b"3", b"", b"1"])
    with raises(Exception, "multi_?set|vector|size|same", within_s=5):
        store.multi_set(["a", "b"], ["1"])


@behaviour(
    "28",
    "a master says how many clients are missing",
    own_only="the waiting is done by PyTorch's hosting process",
)
def _(bench):
    if OLD:
        dist.TCPStore("127.0.0.1", 0, 2, True, ms(1000))
        return  # 1.13 gives up without a word
    with raises(StoreError, r"Timed out after \d+ seconds waiting for clients\. \d/2 clients joined\."):
        dist.TCPStore("127.0.0.1", 0, 2, True, ms(1000))
    dist.TCPStore("127.0.0.1", 0, 2, True, ms(1000), wait_for_workers=False)


@behaviour("29", "a world size of 0 is refused")
def _(bench):
    if OLD:
        raise Skip("1.13 does not check it")
    with raises(ValueError, "TCPStore world size cannot be 0"):
        bench.client(0)


@behaviour("30", "a second master becomes a client when the agent's store has the port")
def _(bench):
    if OLD:
        raise Skip("1.13 knows this rule only in its env:// rendezvous, see 38")
    with raises(NetworkError, "failed to listen"):
        dist.TCPStore(bench.host, bench.port, None, True, ms(CONNECT_MS), wait_for_workers=False)
    with environment(TORCHELASTIC_USE_AGENT_STORE="1", MASTER_PORT=str(bench.port)):
        store = dist.TCPStore(bench.host, bench.port, None, True, ms(CONNECT_MS), wait_for_workers=False)
    equal(store.port, bench.port)
    store.set("key", "value")
    equal(bench.client().get("key"), b"value")


# ---- client protocol, rendezvous -------------------------------------------------------------------------------


@behaviour("31", "the first bytes of a client")
def _(bench):
    if OLD:
        raise Skip("1.13 has no handshake")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        port = listener.getsockname()[1]
        client = in_thread(
            lambda: dist.TCPStore("127.0.0.1", port, 2, False, ms(CONNECT_MS), wait_for_workers=False)
        )
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(10)
            hello = b""
            while len(hello) < 10:
                hello += peer.recv(10 - len(hello))
            equal(hello[:6], bytes.fromhex("00ce f785 3c0d"), "VALIDATE and PING")
            equal(struct.unpack("=I", hello[6:])[0], os.getpid(), "the nonce")
            peer.sendall(hello[6:])
            client(10)


for python_only in ("32", "33", "34", "35", "36"):
    not_applicable(python_only, "stores written in Python: no server")
not_applicable("37", "refused by the URL handler in Python, no server")


@behaviour("38", "env:// of one process gives a usable store and group")
def _(bench):
    if bench.own:
        variables = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    else:  # what a launcher's worker does: the store is the agent's
        variables = dict(MASTER_ADDR=bench.host, MASTER_PORT=str(bench.port), RANK="0", WORLD_SIZE="1")
        variables.update(TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0")
    with environment(**variables):
        store, rank, size = next(dist.rendezvous("env://", timeout=ms(CONNECT_MS)))
        equal((rank, size), (0, 1))
        store.set("key", "value")
        equal(store.get("key"), b"value")
        if not bench.own:
            with environment(GLOO_SOCKET_IFNAME="lo"):
                dist.init_process_group("gloo", timeout=ms(10_000))
                total = torch.ones(3)
                dist.all_reduce(total)
                dist.barrier()
                dist.destroy_process_group()


not_applicable("39", "file://: no server")


@behaviour("40", "tcp:// of one process works; missing parts are named")
def _(bench):
    for url, missing in (
        ("tcp://127.0.0.1?rank=0&world_size=1", "port number missing"),
        (f"tcp://127.0.0.1:{bench.port}?world_size=1", "rank parameter missing"),
        (f"tcp://127.0.0.1:{bench.port}?rank=0", "size parameter missing"),
    ):
        with raises(ValueError, missing):
            next(dist.rendezvous(url))
    # Rank 1 is a client of whoever hosts.
    store, rank, size = next(
        dist.rendezvous(f"tcp://{bench.host}:{bench.port}?rank=1&world_size=2", timeout=ms(CONNECT_MS))
    )
    equal((rank, size), (1, 2))
    store.set("key", "value")
    equal(store.get("key"), b"value")


@behaviour("41", "a host that cannot be resolved: a network error after the timeout")
def _(bench):
    kind, text = (
        (TimeoutError, "timed out")
        if OLD
        else (NetworkError, "client socket has timed out after .*no such host")
    )
    with raises(kind, text, within_s=15):
        dist.TCPStore("no such host", bench.port, 2, False, ms(1000), wait_for_workers=False)


@behaviour("42", "the store's own timeout bounds a get, and the message names the key")
def _(bench):
    store = bench.client(timeout=ms(5000))
    store.set_timeout(ms(100))
    text = "Socket Timeout" if OLD else "wait timeout after 100ms, keys: /nonexistent key"
    with raises(RuntimeError if OLD else StoreError, text, within_s=3):
        store.get("nonexistent key")


@behaviour("43", "a timeout does not break the client")
def _(bench):
    store = bench.client()
    store.set_timeout(ms(100))
    with raises(RuntimeError, "[tT]imeout"):
        store.get("nonexistent key")
    if OLD:
        pass  # 1.13 gets out of step if the key appears later; nothing a server could mend
    else:
        bench.client().set("nonexistent key", "now there")
    store.set_timeout(ms(3000))
    store.set("key", "value")
    equal(store.get("key"), b"value")
    equal(store.add("n", 5), 5)


@behaviour("44", "use_libuv=1 in the URL", own_only="chooses the backend of PyTorch's own server")
def _(bench):
    if OLD:
        raise Skip("1.13 has one backend")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    store = next(dist.rendezvous(f"tcp://127.0.0.1:{port}?rank=0&world_size=1&use_libuv=1"))[0]
    equal(store.libuvBackend, True)


# ---- threads and signals ---------------------------------------------------------------------------------------


@behaviour("45", "a wait in one thread sees the set of another")
def _(bench):
    for prefix in ("", "prefix45"):
        waiting, setting = (
            dist.PrefixStore(prefix, bench.client()) if prefix else bench.client() for _ in range(2)
        )
        waiter = in_thread(lambda store=waiting: (store.wait(["later"], ms(5000)), store.get("later"))[1])
        time.sleep(0.2)
        check(waiter.thread.is_alive(), "wait returned before the key was set")
        setting.set("later", "value")
        equal(waiter(5), b"value")
        setting.delete_key("later")


@behaviour("46", "a signal does not end a wait")
def _(bench):
    waiting, setting = bench.client(), bench.client()
    caught = []
    before = signal.signal(signal.SIGUSR1, lambda *_: caught.append(1))
    try:
        waiter = in_thread(lambda: waiting.wait(["signal46"], ms(8000)))
        for _ in range(3):
            time.sleep(0.2)
            signal.pthread_kill(waiter.thread.ident, signal.SIGUSR1)
        time.sleep(0.3)
        check(waiter.thread.is_alive(), "the signal ended the wait")
        setting.set("signal46", "1")
        waiter(5)
        check(caught, "the signal never arrived")
    finally:
        signal.signal(signal.SIGUSR1, before)


@behaviour(
    "47", "use_libuv=0 gives the legacy server", own_only="chooses the backend of PyTorch's own server"
)
def _(bench):
    if OLD:
        raise Skip("1.13 has one backend")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    store = next(dist.rendezvous(f"tcp://127.0.0.1:{port}?rank=0&world_size=1&use_libuv=0"))[0]
    equal(store.libuvBackend, False)


# ---- what PyTorch's C++ tests add, and what is newer than its Python tests -------------------------------------


@behaviour("c++ helper", "eight threads add, set, get, wait and delete at once")
def _(bench):
    rounds, threads = 50, 8
    stamp = f"stress{time.monotonic_ns()}"

    def work(n):
        store = dist.PrefixStore(stamp, bench.client())
        for r in range(rounds):
            store.add("counter", 1)
            store.set(f"{n}.{r}", f"{n * r}")
            store.wait([f"{n}.{r}"], ms(5000))
            equal(store.get(f"{n}.{r}"), f"{n * r}".encode())
            if r % 2:
                equal(store.delete_key(f"{n}.{r}"), True)

    for finish in [in_thread(lambda n=n: work(n)) for n in range(threads)]:
        finish(20)
    equal(dist.PrefixStore(stamp, bench.client()).get("counter"), str(rounds * threads).encode())


not_applicable("c++ watch", "watching keys (1.13) has no Python call; the wire tests cover it")


@behaviour("c++ shutdown", "a get fails, and does not hang, when the server has gone")
def _(bench):
    if bench.shared:
        raise Skip("the server is not ours to end")
    store = bench.client()
    store.set("key", "value")
    equal(store.get("key"), b"value")
    bench.server.close()
    with raises(RuntimeError, ".", within_s=8):
        store.get("key")


@behaviour("wake", "five waiters on several keys are all released by their last key")
def _(bench):
    keys = [f"wake{n}" for n in range(3)]
    waiters = [in_thread(lambda store=bench.client(): store.wait(keys, ms(8000))) for _ in range(5)]
    writer = bench.client()
    for key in keys:
        time.sleep(0.1)
        check(all(waiter.thread.is_alive() for waiter in waiters), f"somebody woke before {key}")
        writer.set(key, "1")
    for waiter in waiters:
        waiter(5)


@behaviour("list_keys", "every key but init/, without queues", needs="list_keys")
def _(bench):
    if bench.shared:
        raise Skip("other keys are there already")
    store, _ = bench.counting_client()
    store.set("a", "1")
    dist.PrefixStore("p", store).set("b", "2")
    equal(sorted(store.list_keys()), ["a", "p/b"])
    equal(dist.PrefixStore("p", store).list_keys(), ["b"])


@behaviour("barrier", "nobody leaves before everybody came, round after round", needs="barrier")
def _(bench):
    for make in (bench.client, lambda: dist.PrefixStore("bar", bench.client())):
        first, second, third = make(), make(), make()
        for turn in range(2):
            key = f"barrier{turn}"
            waiters = [in_thread(lambda s=s, key=key: s.barrier(key, 3, ms(8000))) for s in (first, second)]
            time.sleep(0.2)
            check(all(waiter.thread.is_alive() for waiter in waiters), "a barrier of 3 opened for 2")
            third.barrier(key, 3, ms(8000))
            for waiter in waiters:
                waiter(5)
        with raises(StoreError, "timeout", within_s=5):
            first.barrier("lonely", 3, ms(200))
        first.set("key", "value")
        equal(first.get("key"), b"value")


@behaviour(
    "sizes", "a key of 8,192 and a value of 8,388,608 bytes pass; one byte more ends that connection only"
)
def _(bench):
    store = bench.client()
    if bench.kind == "legacy":
        raise Skip("the legacy server has no limits")
    store.set("k" * 8191, "v" * 8_388_608)  # the client adds a slash
    equal(len(store.get("k" * 8191)), 8_388_608)
    store.delete_key("k" * 8191)
    for key, value in (("k" * 8192, "v"), ("k", "v" * 8_388_609)):
        victim = bench.client()
        with raises(RuntimeError, "."):
            victim.set(key, value)
            victim.num_keys()
    equal(store.add("still there", 1), 1)


# ---- the runner ------------------------------------------------------------------------------------------------


def make_bench(server):
    if server in ("legacy", "libuv"):
        return lambda: Bench(OwnServer(dist, server), server, shared=False)
    if re.fullmatch(r"\S+:\d+", server):
        return lambda: Bench(GivenServer(server), "given", shared=True)
    return lambda: Bench(CommandServer(server), "command", shared=False)


def run_one(entry, fresh_bench, own):
    number, title, needs, own_only, function = entry
    if function is None:
        return "n/a", title
    if own_only and not own:
        return "n/a", f"{title}: {own_only}"
    if needs and not hasattr(dist.TCPStore, needs):
        return "skip", f"{title}: torch {torch.__version__} has no {needs}"
    faulthandler.dump_traceback_later(SECONDS_EACH, exit=True)
    bench = None
    try:
        bench = fresh_bench()
        function(bench)
        bench.server.close()
        return "ok", title
    except Skip as why:
        return "skip", f"{title}: {why}"
    except Exception as error:  # one behaviour must not hide the others
        return "FAIL", f"{title}: {type(error).__name__}: {error}"
    finally:
        faulthandler.cancel_dump_traceback_later()
        if bench is not None:
            with contextlib.suppress(Exception):
                bench.server.close()


def main():
    parser = argparse.ArgumentParser(description="PyTorch's store behaviours with a PyTorch client")
    parser.add_argument(
        "--server",
        required=True,
        help="legacy, libuv, HOST:PORT, or a command that prints 'listening on ADDR:PORT'",
    )
    parser.add_argument("--only", help="comma list of numbers to run")
    args = parser.parse_args()
    own = args.server in ("legacy", "libuv")
    if args.server == "libuv" and OLD:
        print(f"skipped: torch {torch.__version__} has no libuv server")
        return 77
    fresh_bench = make_bench(args.server)
    counts = {"ok": 0, "FAIL": 0, "skip": 0, "n/a": 0}
    print(f"torch {torch.__version__} client, server: {args.server}", flush=True)
    for entry in BEHAVIOURS:
        if args.only and entry[0] not in args.only.split(","):
            continue
        began = time.monotonic()
        verdict, text = run_one(entry, fresh_bench, own)
        counts[verdict] += 1
        print(f"{verdict:4} {entry[0]:12} {text}  ({time.monotonic() - began:.2f} s)", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if counts["FAIL"] or not counts["ok"] else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # a store thread that a failed behaviour left behind must not hold the exit up
