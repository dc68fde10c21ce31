"""Rows about collectives: all_reduce of float32 through shared memory, against Gloo, PyTorch's Gloo backend and Open MPI; over
two hosts, against Gloo."""

import os
import pathlib
import subprocess
import time

from bench import measure, rows_hosts
from bench.measure import Figure, at_least, at_most, median, say

KIB = 1024
SIZES = (8, 512, 4 * KIB, 32 * KIB, 256 * KIB, 1024 * KIB, 4096 * KIB, 16384 * KIB, 65536 * KIB)
MPI_BAR = 1.2
TORCH_REDUCE = pathlib.Path(__file__).resolve().parent / "torch_reduce.py"
COPIES_AIM = 0.7
QUIET_PERCENT = 25
# Tensors in memory that the library handed out: measured from here on, with a bar at the largest size.
REGISTERED_FROM = 1024 * KIB
REGISTERED_BAR = 3


def _gloo_bar(size):
    """How many times faster than Gloo alone."""
    if size <= 4 * KIB:
        return 50
    if size < 32 * KIB:
        return None
    return 5 if size <= 16384 * KIB else 1.5


def _size(size):
    for unit, name in ((KIB * KIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def _commands(bench, ranks):
    """{name: function from a size and seconds to an argv}."""
    pins = ("pinned", "free") if ranks == 2 else ("free",)
    commands = {}
    for pin in pins:
        commands[f"distrun {pin}"] = lambda size, seconds, pin=pin: [
            bench.tool("shm_load"), ranks, size, seconds, pin
        ]  # fmt: skip
    commands["distrun registered"] = lambda size, seconds: [
        bench.tool("shm_load"), ranks, size, seconds, pins[0], "registered"
    ]  # fmt: skip
    if ranks == 2:
        commands["copies"] = lambda size, seconds: [
            bench.tool("shm_load"), ranks, size, seconds, "pinned", "copies"
        ]  # fmt: skip
    if bench.tool("gloo_load").exists():
        # Pinned, it collapses: its thread and the rank share a CPU then.
        commands["Gloo"] = lambda size, seconds: [bench.tool("gloo_load"), ranks, size, seconds, "free"]
    if bench.tool("mpi_load").exists() and "mpirun" in bench.peers.launchers:
        mpirun = bench.peers.launchers["mpirun"](ranks)
        for pin in pins:
            bind = ["--bind-to", "core" if pin == "pinned" else "none"]
            commands[f"Open MPI {pin}"] = lambda size, seconds, bind=bind: [
                *mpirun, *bind, bench.tool("mpi_load"), size, seconds
            ]  # fmt: skip
        tcp = ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--bind-to", "none"]
        commands["Open MPI tcp"] = lambda size, seconds: [*mpirun, *tcp, bench.tool("mpi_load"), size, seconds]
    return commands


def _wait_for_quiet():
    deadline = time.monotonic() + 1
    while measure.busy_percent(0.05) > QUIET_PERCENT and time.monotonic() < deadline:
        pass


def _slice(argv):
    """The median of one run in us, or None if it failed or hung."""
    _wait_for_quiet()
    env = dict(os.environ, OMPI_MCA_btl_base_warn_component_unused="0")
    try:
        done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, timeout=60, env=env)
    except subprocess.TimeoutExpired:
        return None
    words = done.stdout.split()
    return float(words[0]) if done.returncode == 0 and len(words) == 4 else None


def collectives(bench):
    """all_reduce of float32, 2 ranks (pinned and not) and 4, in place, from 8 B to 64 MiB; and over two hosts."""
    for tool, needs in (("gloo_load", "libgloo-dev"), ("mpi_load", "libopenmpi-dev")):
        if not bench.tool(tool).exists():
            bench.peers.missing[tool] = f"was not built: {needs}"
    seconds = 0.1 if bench.quick else 0.25
    rounds = bench.rounds(7, 3)
    figures, ours = [], {}
    for ranks in (2, 4):
        commands = _commands(bench, ranks)
        for size in SIZES:
            say(f"collectives: {ranks} ranks, {_size(size)}: {', '.join(commands)}")
            took = {name: [] for name in commands}
            for _ in range(rounds):
                for name, command in commands.items():
                    if name == "distrun registered" and size < REGISTERED_FROM:
                        continue
                    took[name].append(_slice(command(size, seconds)))
            took = {name: [us for us in values if us is not None] for name, values in took.items()}
            bench.keep(f"collectives us, {ranks} ranks, {size}", took)
            figures += _compare(ranks, size, took)
            if ranks == 2:
                ours[size] = median(took["distrun free"])
    figures += _against_torch(bench, ours, 1 if bench.quick else 3, seconds)
    return figures + rows_hosts.two_hosts(bench, SIZES, _size, bench.rounds(5, 2), seconds)


def _against_torch(bench, ours, rounds, seconds):
    """Each PyTorch goes through all sizes in one start, since that costs it seconds."""
    pythons = {}
    if bench.peers.torch_python:
        pythons["newest PyTorch's Gloo"] = bench.peers.torch_python
    if bench.peers.debian_torch:
        pythons["Debian's PyTorch's Gloo"] = "/usr/bin/python3"
    figures = []
    for name, python in pythons.items():
        say(f"collectives: {name}")
        took = {size: [] for size in SIZES}
        for _ in range(rounds):
            argv = [bench.distrun, "--standalone", "--nproc-per-node", 2, "--no-python", python, TORCH_REDUCE, seconds, *SIZES]
            done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, timeout=180)
            lines = [line.split() for line in done.stdout.splitlines() if len(line.split()) == 4]
            if done.returncode != 0 or len(lines) != len(SIZES):
                raise RuntimeError(f"torch_reduce.py: {done.stderr[-2000:]}")
            for size, words in zip(SIZES, lines, strict=True):
                took[size].append(float(words[0]))
        bench.keep(f"collectives us, 2 ranks, {name}", took)
        for size in SIZES:
            theirs = median(took[size])
            figures.append(
                Figure(f"all_reduce 2 ranks {_size(size)}, free", ours[size], "us", name, theirs, theirs / ours[size],
                       note=f"{min(took[size]):.0f} to {max(took[size]):.0f}"))  # fmt: skip
    return figures


def _compare(ranks, size, took):
    def spread(name):
        return f"{name} {min(took[name]):.2f} to {max(took[name]):.2f}" if took.get(name) else f"{name}: none"

    figures = []
    row = f"all_reduce {ranks} ranks {_size(size)}"
    best = "distrun pinned" if ranks == 2 else "distrun free"
    ours = median(took[best])
    if took.get("Gloo"):
        theirs = median(took["Gloo"])
        limit = _gloo_bar(size) if ranks == 2 else None
        ratio, holds = at_least(theirs, ours, limit or 1)
        note = f"{spread(best)}; {spread('Gloo')}"
        figures.append(Figure(row, ours, "us", "Gloo", theirs, ratio, f">= {limit}x faster" if limit else "",
                              holds if limit else None, note))  # fmt: skip
    if took.get("Gloo") and took.get("distrun registered"):
        ours, theirs = median(took["distrun registered"]), median(took["Gloo"])
        limit = REGISTERED_BAR if ranks == 2 and size == SIZES[-1] else None
        ratio, holds = at_least(theirs, ours, limit or 1)
        figures.append(Figure(f"{row}, registered buffers", ours, "us", "Gloo", theirs, ratio,
                              f">= {limit}x faster" if limit else "", holds if limit else None,
                              spread("distrun registered")))  # fmt: skip
    for pin in ("pinned", "free"):
        ours, theirs = median(took.get(f"distrun {pin}")), median(took.get(f"Open MPI {pin}"))
        if ours is None or theirs is None:
            continue
        barred = ranks == 2
        _, holds = at_most(ours, theirs, MPI_BAR)
        note = f"{spread(f'distrun {pin}')}; {spread(f'Open MPI {pin}')}"
        figures.append(Figure(f"{row}, {pin}", ours, "us", "Open MPI", theirs, theirs / ours,
                              f"<= {MPI_BAR}x its time" if barred else "", holds if barred else None, note))  # fmt: skip
    if took.get("Open MPI tcp"):
        theirs = median(took["Open MPI tcp"])
        ours = median(took["distrun free"])
        figures.append(Figure(f"{row}, free", ours, "us", "Open MPI tcp", theirs, theirs / ours))
    if took.get("copies") and size >= 1024 * KIB:
        ours, theirs = median(took["distrun pinned"]), median(took["copies"])
        figures.append(Figure(row, ours, "us", "two copies", theirs, theirs / ours,
                              note=f"aim: {COPIES_AIM}x as fast as copying it twice"))  # fmt: skip
    return figures
