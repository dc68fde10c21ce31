"""The row about output: two workers write lines through --tee 3; every byte must arrive, at what speed."""

import pathlib
import subprocess
import tempfile
import time

from bench.measure import Figure, at_most, median, say

CAT_BAR = 2.0
WORKERS = 2


def _finish(processes, limit_s):
    deadline = time.monotonic() + limit_s
    try:
        return [process.wait(max(0.1, deadline - time.monotonic())) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def _through_cat(bench, size, folder):
    """Seconds for the same writers, together, through one pipe and cat into a file."""
    writer = bench.tool("line_writer")
    script = "".join(f"RANK={rank} '{writer}' {size} & " for rank in range(WORKERS)) + "wait"
    start = time.monotonic()
    with open(folder / "cat.txt", "wb") as file:
        writers = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE)
        cat = subprocess.Popen(["cat"], stdin=writers.stdout, stdout=file)
        writers.stdout.close()
        _finish([writers, cat], 120)
    return time.monotonic() - start


def _through_launcher(argv, folder, piped):
    """Seconds for a launcher whose console is a file, or a pipe that cat drains into one."""
    start = time.monotonic()
    with open(folder / "console.txt", "wb") as console, open(folder / "stderr.txt", "wb") as errors:
        out = subprocess.PIPE if piped else console
        launcher = subprocess.Popen([str(word) for word in argv], stdout=out, stderr=errors)
        processes = [launcher]
        if piped:
            processes.append(subprocess.Popen(["cat"], stdin=launcher.stdout, stdout=console))
            launcher.stdout.close()
        codes = _finish(processes, 300)
    if any(codes):
        raise RuntimeError(f"{argv[0]} ended with {codes}: {(folder / 'stderr.txt').read_text()[-500:]}")
    return time.monotonic() - start


def _first_damage(bench, size, folder):
    """What is wrong with the console or a rank's log file, or None."""
    logs = sorted(folder.glob("logs/**/stdout.log"))
    if len(logs) != WORKERS:
        return f"{len(logs)} files named stdout.log under the log directory, not {WORKERS}"
    checks = [["[default%]:", WORKERS, folder / "console.txt"]]
    checks += [["", log.parent.name, log] for log in logs]
    for prefix, streams, file in checks:
        argv = [bench.tool("line_check"), size, streams, prefix, file]
        done = subprocess.run(
            [str(word) for word in argv], stdout=subprocess.PIPE, text=True, timeout=120, errors="replace"
        )
        if done.returncode != 0:
            return done.stdout.strip().replace("\n", " | ") or f"line_check failed on {file}"
    return None


def output(bench):
    """Two workers write 100 MB each as lines through --tee 3, against the same through `cat`."""
    megabytes = 10 if bench.quick else 100
    size = megabytes * 1_000_000
    rounds = bench.rounds(5, 2)
    seconds = {"cat": [], "file": [], "pipe": []}
    damage = []

    def arguments(folder, bytes_each):
        return ["--tee", 3, "--log-dir", folder / "logs", "--no-python", bench.tool("line_writer"), bytes_each]

    for turn in range(rounds):
        for kind in seconds:
            say(f"output: round {turn + 1} of {rounds}, {kind}")
            with tempfile.TemporaryDirectory(dir=bench.work_dir) as name:
                folder = pathlib.Path(name)
                if kind == "cat":
                    seconds[kind].append(_through_cat(bench, size, folder))
                    continue
                argv = [bench.distrun, "--nproc-per-node", WORKERS, *arguments(folder, size)]
                seconds[kind].append(_through_launcher(argv, folder, piped=kind == "pipe"))
                problem = _first_damage(bench, size, folder)
                if problem:
                    damage.append(problem)
    bench.keep("output s", seconds)
    figures = []
    theirs = median(seconds["cat"])
    for kind in ("file", "pipe"):
        ours = median(seconds[kind])
        ratio, holds = at_most(ours, theirs, CAT_BAR)
        speed = WORKERS * megabytes / ours
        note = damage[0] if damage else f"every byte there, on the console and in the logs; {speed:.0f} MB/s"
        figures.append(
            Figure(f"output to a {kind}", 1e3 * ours, "ms", "cat", 1e3 * theirs, ratio,
                   f"<= {CAT_BAR:g}x, whole", holds and not damage, note)
        )  # fmt: skip
    if "torchrun" in bench.peers.launchers and not bench.quick:
        figures.append(_torchrun(bench, arguments, size, figures[0]))
    return figures


def _torchrun(bench, arguments, size, ours):
    """torchrun on a tenth of the bytes: it tails the files in Python."""
    say("output: torchrun, a tenth of the bytes")
    *torchrun, _ = bench.peers.launchers["torchrun"](WORKERS)
    with tempfile.TemporaryDirectory(dir=bench.work_dir) as name:
        folder = pathlib.Path(name)
        (folder / "logs").mkdir()
        elapsed = _through_launcher([*torchrun, *arguments(folder, size // 10)], folder, piped=False)
        problem = _first_damage(bench, size // 10, folder)
    note = f"torchrun wrote a tenth, in {elapsed:.1f} s with its start; scaled here"
    if problem:
        note += f"; its console: {problem[:120]}"
    theirs = 1e4 * elapsed
    return Figure("output to a file", ours.ours, "ms", "torchrun", theirs, ours.ours / theirs, note=note)
