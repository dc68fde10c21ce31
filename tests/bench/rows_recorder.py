"""The row about the flight record: what recording one operation costs a worker."""

import subprocess

from bench.measure import Figure

BAR_NS = 30.0


def recorder(bench):
    path = f"{bench.work_dir}/ops.fr"
    command = [str(bench.tool("record_ops")), str(bench.rounds(50, 10)), path]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    ns = {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}
    bench.keep("recorder", ns)
    clock = f"one reading of the clock: {ns['clock']:.1f} ns"
    bar = f"at most {BAR_NS:.0f} ns"
    return [
        Figure("recording a synchronous operation", ns["began_completed"], "ns", bar=bar,
               holds=ns["began_completed"] <= BAR_NS, note=f"two calls; {clock}"),
        Figure("recording an asynchronous operation", ns["scheduled_started_completed"], "ns",
               note="three calls, three readings of the clock"),
        Figure("the same calls without a record", ns["not_recording"], "ns"),
    ]  # fmt: skip
