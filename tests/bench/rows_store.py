"""Rows about the store: operations per second, and a thousand waiting clients released by one key."""

import contextlib
import os
import pathlib
import subprocess

from bench.measure import Figure, Server, at_least, median, say

ECHO_BAR = 0.6
ECHO_BAR_CLIENTS = 64
TORCH_BAR = 2.0
CLIENTS = (1, 16, 64, 256)
OPERATIONS = ("get", "set", "wait_get", "get16")
BARRED = ("get", "set")
RELEASE_CLIENTS = 1000
RELEASE_LIMIT_MS = 1000
TORCH_STORE = pathlib.Path(__file__).with_name("torch_store.py")


# The newest PyTorch's server looks up the name of every peer that connects, and serves nobody meanwhile.
# Where names come from DNS that alone takes seconds for the clients of one measurement, so its servers
# get a view of the machine in which names come from /etc/hosts only.
FILES_ONLY = """
umask 077; conf=$(mktemp); echo 'hosts: files' > "$conf"
mount --bind "$conf" /etc/nsswitch.conf; rm "$conf"; exec "$@"
"""


def _without_dns():
    """The words before a command that keep it from asking DNS; none where namespaces are forbidden."""
    prefix = ["unshare", "--map-root-user", "--mount", "sh", "-ec", FILES_ONLY, "sh"]
    try:
        works = subprocess.run([*prefix, "true"], capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        works = False
    return prefix if works else []


def _cpus():
    """(the servers' CPU, the load's CPU): apart where there are two, so that neither migrates."""
    cpus = sorted(os.sched_getaffinity(0))
    return cpus[0], cpus[-1]


@contextlib.contextmanager
def _servers(bench, with_echo, with_dns):
    """{name: (Server, protocol)} of all there are, running together: an idle one costs nothing."""
    wanted = {}
    if with_echo:
        wanted["echo"] = ([bench.tool("echo_server")], "echo")
    wanted["distrund"] = ([bench.distrund, "--host", "127.0.0.1", "--port", 0], "g4")
    if bench.peers.torch_python:
        argv = [bench.peers.torch_python, TORCH_STORE]
        for backend in ("libuv", "legacy"):
            wanted[f"torch {backend}"] = ([*_without_dns(), *argv, backend], "g4")
        if with_dns and _without_dns():
            wanted["torch libuv, DNS"] = ([*argv, "libuv"], "g4")
    if bench.peers.debian_torch:
        wanted["torch 1.13"] = (["/usr/bin/python3", TORCH_STORE, "legacy"], "g0")
    with contextlib.ExitStack() as stack:
        running = {}
        for name, (argv, protocol) in wanted.items():
            try:
                running[name] = (stack.enter_context(Server(argv, _cpus()[0])), protocol)
            except RuntimeError as problem:
                if name in ("echo", "distrund"):
                    raise
                bench.peers.missing[name] = str(problem)
        yield running


def _load(bench, server, protocol, operation, clients, seconds):
    """(numbers that store_load printed, the server's CPU seconds meanwhile). A server that cannot be
    measured has done nothing but errors: the others' figures are still wanted."""
    argv = [bench.tool("store_load"), server.port, protocol, operation, clients, seconds]
    before = server.cpu_s()
    try:
        done = subprocess.run(
            [str(word) for word in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            check=True, timeout=seconds + 30, preexec_fn=lambda: os.sched_setaffinity(0, {_cpus()[1]}),
        )  # fmt: skip
    except subprocess.SubprocessError as error:
        reason = getattr(error, "stderr", None) or str(error)
        say(f"{operation} with {clients} clients: {reason.strip()}")
        # As if it had taken the whole time; a release has more figures.
        return [0, seconds, clients] if operation != "release" else [0, clients, 0, 0, 1e3 * seconds], 0
    return [float(word) for word in done.stdout.split()], server.cpu_s() - before


def store(bench):
    """Operations per second of a closed loop of K clients, against echo and PyTorch's servers."""
    rounds = bench.rounds(5, 3)
    seconds = 0.2 if bench.quick else 0.5
    rates = {}
    costs = {}
    errors = {}
    with _servers(bench, with_echo=True, with_dns=False) as servers:
        for turn in range(rounds):
            say(f"store: round {turn + 1} of {rounds}: {', '.join(servers)}")
            for operation in OPERATIONS:
                for clients in CLIENTS:
                    for name, (server, protocol) in servers.items():
                        (done, elapsed, bad), cpu = _load(
                            bench, server, protocol, operation, clients, seconds
                        )
                        key = (operation, clients, name)
                        rates.setdefault(key, []).append(done / elapsed)
                        costs.setdefault(key, []).append(1e6 * cpu / max(1, done))
                        errors[key] = errors.get(key, 0) + int(bad)
    bench.keep("store ops/s", {"/".join(map(str, key)): values for key, values in rates.items()})
    bench.keep("store server CPU us/op", {"/".join(map(str, key)): values for key, values in costs.items()})
    figures = []
    for operation in OPERATIONS:
        for clients in CLIENTS:
            figures += _compare(operation, clients, rates, costs, errors)
    return figures


def _compare(operation, clients, rates, costs, errors):
    def rate(name):
        return median(rates[operation, clients, name])

    def cost(name):
        return f"{median(costs[operation, clients, name]):.1f}"

    def bad(name):
        count = errors[operation, clients, name]
        return f"; {name}: {count} errors" if count else ""

    row = f"store {operation} K={clients}"
    names = [name for some_op, some_clients, name in rates if (some_op, some_clients) == (operation, clients)]
    torches = sorted((name for name in names if name.startswith("torch")), key=rate)
    ours = rate("distrund")
    note = f"server CPU us/op: {cost('distrund')} against {cost('echo')}{bad('distrund')}{bad('echo')}"
    ratio, holds = at_least(ours, rate("echo"), ECHO_BAR)
    barred = clients == ECHO_BAR_CLIENTS and operation in BARRED
    figures = [
        Figure(row, ours, "op/s", "echo", rate("echo"), ratio, f">= {ECHO_BAR}x" if barred else "",
               (holds and not errors[operation, clients, "distrund"]) if barred else None, note)
    ]  # fmt: skip
    if torches:
        best = torches[-1]
        ratio, holds = at_least(ours, rate(best), TORCH_BAR)
        barred = operation in BARRED
        others = "".join(f"; {name} {rate(name):,.0f}" for name in torches[:-1])
        # Where even echo does not reach the bar, no server can: the kernel's share is the larger one.
        ceiling = f"echo itself {rate('echo') / rate(best):.2f}x" if rate(best) else f"{best} did not serve"
        note = f"{ceiling}; server CPU us/op: {cost('distrund')} against {cost(best)}{others}{bad(best)}"
        figures.append(
            Figure(row, ours, "op/s", best, rate(best), ratio, f">= {TORCH_BAR:g}x" if barred else "",
                   holds if barred else None, note)
        )  # fmt: skip
    return figures


def release(bench):
    """1,000 clients connect, wait on one key and are released by one SET."""
    rounds = bench.rounds(9, 3)
    results = {}
    with _servers(bench, with_echo=False, with_dns=not bench.quick) as servers:
        for turn in range(rounds):
            say(f"release: round {turn + 1} of {rounds}")
            for name, (server, protocol) in servers.items():
                if turn > 0 and name.endswith("DNS"):
                    continue  # Once is enough to tell, and takes a minute.
                numbers, _ = _load(bench, server, protocol, "release", RELEASE_CLIENTS, 20)
                results.setdefault(name, []).append(numbers)
    bench.keep("release (released errors connect release total)", results)

    def total(name):
        return median([numbers[4] for numbers in results[name]])

    ours = results["distrund"]
    errors = int(sum(numbers[1] for numbers in ours))
    slowest = max(numbers[4] for numbers in ours)
    note = f"{errors} errors; slowest {slowest:.0f} ms; SET to last release {median([n[3] for n in ours]):.1f} ms"
    figures = [
        Figure(f"release {RELEASE_CLIENTS}", total("distrund"), "ms", bar=f"< {RELEASE_LIMIT_MS} ms",
               holds=errors == 0 and slowest < RELEASE_LIMIT_MS, note=note)
    ]  # fmt: skip
    for name in results:
        if name != "distrund":
            theirs = results[name]
            note = f"{name}: {int(sum(n[1] for n in theirs))} errors, release {median([n[3] for n in theirs]):.1f} ms"
            ratio = total("distrund") / total(name)
            figures.append(
                Figure(f"release {RELEASE_CLIENTS}", total("distrund"), "ms", name, total(name), ratio, note=note)
            )
    return figures
