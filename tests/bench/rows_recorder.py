"""The row about the flight record: what recording one operation costs a worker."""

import os
import subprocess

from bench.measure import Figure

BAR_NS = 30.0
GROUP_BAR_PERCENT = 3.0


def recorder(bench):
    path = f"{bench.work_dir}/ops.fr"
    command = [str(bench.tool("record_ops")), str(bench.rounds(50, 10)), path]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    ns = {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}
    bench.keep("recorder", ns)
    clock = f"one reading of the clock: {ns['clock']:.1f} ns"
    bar = f"at most {BAR_NS:.0f} ns"
    return _in_a_group(bench) + [
        Figure("recording a synchronous operation", ns["began_completed"], "ns", bar=bar,
               holds=ns["began_completed"] <= BAR_NS, note=f"two calls; {clock}"),
        Figure("recording an asynchronous operation", ns["scheduled_started_completed"], "ns",
               note="three calls, three readings of the clock"),
        Figure("the same calls without a record", ns["not_recording"], "ns"),
    ]  # fmt: skip


def _in_a_group(bench):
    """What it costs an all_reduce of 8 bytes of two ranks of one host, in percent."""
    if not bench.tool("group_record").exists():
        return []
    command = [str(bench.tool("group_record")), str(bench.rounds(300, 30)), f"/dev/shm/distrun-bench-{os.getpid()}"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        return [Figure("the flight record in an all_reduce of 8 B", None, "%", note=f"not measured: {error}")]
    lines = {name: values for name, *values in (line.split() for line in done.stdout.splitlines())}
    percent = (float(lines["ratio"][0]) - 1) * 100
    bench.keep("recorder in a group", lines)
    return [
        Figure("the flight record in an all_reduce of 8 B", percent, "%", bar=f"at most {GROUP_BAR_PERCENT:.0f} %",
               holds=percent <= GROUP_BAR_PERCENT,
               note=f"{lines['with'][0]} ns with, {lines['without'][0]} ns without"),
    ]  # fmt: skip
