"""Rows about starting and supervising: launch time, the launcher's memory, restart latency, endurance."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from bench.measure import (
    Figure,
    at_most,
    marked,
    median,
    run_fast_and_slow,
    run_in_turn,
    say,
    sweep,
    wait_until,
)

FLOOR_BARS = {1: 3.0, 8: 2.0, 64: 1.5}
TORCHRUN_FACTOR = 50
MEMORY_LIMIT_MIB = 15
RESTART_LIMIT_MS = 50


def _times(runs):
    """The wall times of the runs that ended well, and a note on those that did not."""
    good = [run.wall_ms for run in runs if run.status == 0]
    hung = sum(run.hung for run in runs)
    failed = len(runs) - len(good) - hung
    words = [f"{hung} of {len(runs)} hung"] * (hung > 0) + [f"{failed} of {len(runs)} failed"] * (failed > 0)
    return good, ", ".join(words)


def launch(bench):
    """N copies of /bin/true, from the launcher's start to its end."""
    figures = []
    plan = {1: (200, 20), 8: (100, 10), 64: (60, 6)}
    for n, (full, quick) in plan.items():
        rounds = bench.rounds(full, quick)
        say(f"launch: N={n}, {rounds} rounds")
        fast = {
            "floor": [bench.tool("spawn_floor"), n, "/bin/true"],
            "distrun": [bench.distrun, "--nproc-per-node", n, "--no-python", "/bin/true"],
        }
        slow = {name: [*argv(n), "/bin/true"] for name, argv in bench.peers.launchers.items()}
        runs = run_fast_and_slow(bench.tool("time_run"), fast, rounds, slow, bench.rounds(10, 3), 30)
        bench.keep(f"launch N={n}", {name: [run.wall_ms for run in some] for name, some in runs.items()})
        ours, trouble = _times(runs["distrun"])
        mine = median(ours)
        for name in ["floor", *slow]:
            times, note = _times(runs[name])
            note = note and f"{name}: {note}"
            theirs = median(times)
            if name == "floor":
                ratio, holds = at_most(mine, theirs, FLOOR_BARS[n])
                bar = f"<= {FLOOR_BARS[n]:g}x"
                cpu = median([run.cpu_ms for run in runs["distrun"]])
                note = f"fastest {min(ours, default=0):.2f} against {min(times, default=0):.2f}; CPU {cpu:.1f} ms"
            else:
                factor = TORCHRUN_FACTOR if name == "torchrun" else 1
                bar = f"< 1/{factor} of it" if factor > 1 else "faster"
                ratio, holds = at_most(mine, theirs, 1 / factor)
            if trouble:
                holds, note = False, f"distrun: {trouble}; {note}"
            figures.append(Figure(f"launch N={n}", mine, "ms", name, theirs, ratio, bar, holds, note))
    return figures


def _memory_of(argv, workers, name):
    """{pid: (rss, pss, peak rss)} in MiB of every process of a launcher that is not a worker."""
    mark = f"DISTRUN_BENCH_MEMORY={name}"
    env = dict(os.environ, **dict([mark.split("=")]))
    process = subprocess.Popen(
        [str(word) for word in argv], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def program(pid):
        with contextlib.suppress(OSError):
            return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
        return ""

    def asleep():
        return sum(program(pid) == "sleep" for pid in marked(mark)) == workers

    try:
        wait_until(asleep, 60, f"{name}: {workers} workers sleep")
        time.sleep(0.5)
        found = {}
        for pid in marked(mark):
            if program(pid) in ("sleep", ""):
                continue
            fields = {}
            for file in ("smaps_rollup", "status"):
                for line in pathlib.Path(f"/proc/{pid}/{file}").read_text().splitlines():
                    key, _, value = line.partition(":")
                    if value.endswith(" kB"):
                        fields.setdefault(key, int(value.split()[0]) / 1024)
            found[pid] = (fields["Rss"], fields["Pss"], fields["VmHWM"])
        return found
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        sweep(mark)
        process.wait()


def memory(bench):
    """Resident memory of all the launcher's processes while its workers sleep."""
    figures = []
    sleep = shutil.which("sleep")
    for n in (1, 8, 64):
        say(f"memory: N={n}")
        argv = [bench.distrun, "--nproc-per-node", n, "--no-python", sleep, "60"]
        found = _memory_of(argv, n, "distrun")
        rss, pss, peak = (list(column) for column in zip(*found.values()))
        note = f"{len(found)} processes; largest {max(rss):.1f}, peak {max(peak):.1f}; PSS in all {sum(pss):.1f}"
        figures.append(
            Figure(
                f"memory N={n}", sum(rss), "MiB", bar=f"< {MEMORY_LIMIT_MIB} MiB",
                holds=sum(rss) < MEMORY_LIMIT_MIB, note=note,
            )
        )  # fmt: skip
        if n != 8:
            continue
        for name, command in bench.peers.launchers.items():
            if name == "srun":
                continue  # Its daemons do its work; its own size says nothing.
            say(f"memory: {name}")
            try:
                peer = _memory_of([*command(n), sleep, "60"], n, name)
            except TimeoutError as problem:  # Ours is still wanted.
                figures.append(Figure(f"memory N={n}", sum(rss), "MiB", name, note=str(problem)))
                continue
            theirs = sum(rss for rss, _, _ in peer.values())
            figures.append(
                Figure(f"memory N={n}", sum(rss), "MiB", name, theirs, sum(rss) / theirs,
                       note=f"{name}: {len(peer)} processes")
            )  # fmt: skip
    return figures


def _restart_times(argv, lives, cause, work_dir, limit_s):
    """[(first, last)]: ms from rank 0's death to the main of its replacement, and of the slowest rank."""
    with tempfile.TemporaryDirectory(dir=work_dir) as folder:
        subprocess.run(
            [str(word) for word in [*argv, folder, lives, cause]],
            check=True, timeout=limit_s, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        notes = pathlib.Path(folder)
        times = []
        for life in range(1, lives):
            died = int((notes / f"died.{life - 1}").read_text())
            began = int((notes / f"main.{life}.0").read_text())
            slowest = max(int(path.read_text()) for path in notes.glob(f"main.{life}.*"))
            times.append(((began - died) / 1e6, (slowest - died) / 1e6))
        return times


def restart(bench):
    """From a worker's death to main of its replacement; its three siblings go at once on TERM."""
    figures = []
    lives = bench.rounds(50, 10) + 1
    worker = bench.tool("restart_worker")
    for cause in ("exit", "kill"):
        say(f"restart: {lives - 1} deaths by {cause}")
        argv = [bench.distrun, "--nproc-per-node", 4, "--max-restarts", lives, "--no-python", worker]
        times = _restart_times(argv, lives, cause, bench.work_dir, 10 + lives)
        bench.keep(f"restart {cause}", times)
        ours = median([first for first, _ in times])
        slowest = max(first for first, _ in times)
        note = f"of {len(times)}; slowest {slowest:.1f} ms; whole group {median([last for _, last in times]):.1f} ms"
        figures.append(
            Figure(f"restart after {cause}", ours, "ms", bar=f"< {RESTART_LIMIT_MS} ms",
                   holds=ours < RESTART_LIMIT_MS, note=note)
        )  # fmt: skip
    if "torchrun" in bench.peers.launchers:
        say("restart: torchrun")
        few = bench.rounds(5, 2) + 1
        *torchrun, no_python = bench.peers.launchers["torchrun"](4)
        argv = [*torchrun, "--monitor-interval", 0.1, "--max-restarts", few, no_python, worker]
        theirs = median([first for first, _ in _restart_times(argv, few, "kill", bench.work_dir, 120)])
        ratio, _ = at_most(ours, theirs, 1)
        figures.append(
            Figure("restart after kill", ours, "ms", "torchrun", theirs, ratio,
                   note="torchrun with --monitor-interval 0.1")
        )  # fmt: skip
    return figures


def endurance(bench):
    """Many launches of 32 x /bin/true: none may hang or report a failure."""
    rounds = bench.rounds(1000, 100)
    figures = []
    argv = {"distrun": [bench.distrun, "--nproc-per-node", 32, "--no-python", "/bin/true"]}
    runs = []
    while len(runs) < rounds:
        say(f"endurance: {len(runs)} of {rounds} launches")
        runs += run_in_turn(bench.tool("time_run"), argv, min(100, rounds - len(runs)), 10)["distrun"]
    bad = sum(run.status != 0 for run in runs)
    hung = sum(run.hung for run in runs)
    times = [run.wall_ms for run in runs]
    bench.keep("endurance", times)
    note = f"{hung} hung, {bad - hung} failed; median {median(times):.1f} ms, slowest {max(times):.1f} ms"
    figures.append(Figure(f"{rounds} launches of 32", float(bad), "bad", bar="0", holds=bad == 0, note=note))
    if "mpirun" in bench.peers.launchers:
        few = bench.rounds(20, 5)
        say(f"endurance: mpirun, {few} launches")
        argv = {"mpirun": [*bench.peers.launchers["mpirun"](32), "/bin/true"]}
        theirs = run_in_turn(bench.tool("time_run"), argv, few, 5)["mpirun"]
        hung = sum(run.hung for run in theirs)
        figures.append(
            Figure(f"{few} launches of 32", 100 * bad / rounds, "% bad", "mpirun",
                   100 * sum(run.status != 0 for run in theirs) / few, note=f"mpirun: {hung} of {few} hung for 5 s")
        )  # fmt: skip
    return figures
