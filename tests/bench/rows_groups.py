"""Row groups: how long until all processes of one host have their process group, beside PyTorch's init_process_group."""

import fcntl
import os
import pathlib
import subprocess
import tempfile

from bench.measure import Figure, median, say, wait_until

HERE = pathlib.Path(__file__).resolve().parent
COUNTS = (16, 64)
LIMIT_MS = 1000
LIMITED = 64  # processes
# So much memory a PyTorch takes for itself, with its libraries; more of them than fit are not started.
DEBIAN_MIB, NEWEST_MIB = 120, 450


def groups(bench):
    """From the moment when all processes are there until the last of them has the group."""
    if not bench.tool("group_load").exists():
        return [Figure("process group", None, "ms", note="group_load was not built: libgloo-dev")]
    figures = []
    for count in COUNTS:
        commands = {"distrun": ([bench.tool("group_load")], bench.rounds(7, 3))}
        torch = [HERE / "torch_group.py"]
        # 64 interpreters that import PyTorch take a minute or two.
        slow = 1 if count > 16 else bench.rounds(3, 1)
        if bench.peers.debian_torch and _fits(count, DEBIAN_MIB):
            commands["Debian's PyTorch"] = (["/usr/bin/python3", *torch], slow)
        if bench.peers.torch_python and _fits(count, NEWEST_MIB):
            commands["newest PyTorch"] = ([bench.peers.torch_python, *torch], slow)
        took = {name: [] for name in commands}
        for i in range(max(rounds for _, rounds in commands.values())):
            for name, (worker, rounds) in commands.items():
                if i < rounds:
                    took[name].append(_once(bench, count, worker))
                    say(f"groups: {count} processes, {name}: {took[name][-1]['group']:.0f} ms")
        bench.keep(f"process group ms, {count} processes", took)
        figures += _compare(count, took)
    return figures


def _fits(count, mib):
    available = next(line for line in pathlib.Path("/proc/meminfo").read_text().splitlines() if "MemAvailable" in line)
    return count * mib < int(available.split()[1]) // 1024


def _once(bench, count, worker):
    """{what: ms until the last process had it}."""
    with tempfile.TemporaryDirectory(dir=bench.work_dir) as folder, open(f"{folder}/gate", "w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        argv = [bench.distrun, "--standalone", "--nproc-per-node", count, "--no-python", *worker, folder]
        job = subprocess.Popen([str(word) for word in argv], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            wait_until(lambda: job.poll() is not None or _files(folder, "here.") == count, 240, f"{count} processes are there")
            fcntl.flock(gate, fcntl.LOCK_UN)
            _, said = job.communicate(timeout=240)
        finally:
            if job.poll() is None:
                job.terminate()
                job.wait(30)
        if job.returncode != 0:
            raise RuntimeError(f"{worker[-1]}: {said[-2000:]}")
        took = [[int(word) for word in path.read_text().split()] for path in pathlib.Path(folder).glob("took.*")]
    began = min(times[0] for times in took)
    names = ("group", "barrier", "second group")
    return {name: (max(times[i + 1] for times in took) - began) / 1e6 for i, name in enumerate(names)}


def _files(folder, start):
    return sum(name.startswith(start) for name in os.listdir(folder))


def _compare(count, took):
    def of(name, what):
        return median([once[what] for once in took.get(name, [])])

    ours, figures = of("distrun", "group"), []
    worst = max(once["group"] for once in took["distrun"])
    note = f"slowest {worst:.0f}; then a barrier, done at {of('distrun', 'barrier'):.0f}, a second group {of('distrun', 'second group'):.0f}"
    limited = count == LIMITED
    peers = [name for name in took if name != "distrun"]
    for i, peer in enumerate(peers or [""]):
        theirs = of(peer, "group")
        figures.append(
            Figure(f"process group, {count} processes", ours, "ms", peer, theirs, theirs / ours if theirs else None,
                   f"< {LIMIT_MS} ms" if limited and i == 0 else "", ours < LIMIT_MS if limited and i == 0 else None,
                   note if i == 0 else f"theirs: a barrier at {of(peer, 'barrier'):.0f}, a second group {of(peer, 'second group'):.0f}"))  # fmt: skip
    return figures
