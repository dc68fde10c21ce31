"""Rows about many nodes: how long until thousands of agents have their place, beside torchrun's own rendezvous."""

import subprocess
import time

from bench.measure import Figure, Server, median, say

AGENTS = 2000
LIMIT_MS = 1000
# torchrun's c10d rendezvous: a process with PyTorch in it for each agent, so not many on one machine.
TORCHRUN_AGENTS = (2, 4, 8)
TORCHRUN_LIMIT_S = 240


def _ours(bench):
    with Server([bench.distrund, "--host", "127.0.0.1", "--port", 0]) as server:
        done = subprocess.run(
            [str(bench.tool("join_load")), str(server.port), str(AGENTS)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=150,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"join_load: {done.stderr.strip()}")
        return [float(word) for word in done.stdout.split()]


def _torchrun(bench, agents):
    """Milliseconds until that many torchrun agents have run /bin/true together; None: not in time."""
    with Server([bench.distrund, "--host", "127.0.0.1", "--port", 0]) as server:
        command = [
            "env", f"TMPDIR={bench.work_dir}", bench.peers.torch_python, "-m", "torch.distributed.run", f"--nnodes={agents}", "--nproc_per_node=1", "--rdzv_backend=c10d",
            "--rdzv_conf=is_host=false", f"--rdzv_endpoint=127.0.0.1:{server.port}", "--rdzv_id=join",
            "--no_python", "true",
        ]  # fmt: skip
        began = time.monotonic()
        running = [
            subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for _ in range(agents)
        ]
        try:
            statuses = [agent.wait(TORCHRUN_LIMIT_S - (time.monotonic() - began)) for agent in running]
        except (subprocess.TimeoutExpired, ValueError):
            return None
        finally:
            for agent in running:
                if agent.poll() is None:
                    agent.kill()
                    agent.wait()
        return (time.monotonic() - began) * 1000 if not any(statuses) else None


def join(bench):
    """2,000 sessions join at once; one fails, and all are in the next round."""
    formed, again = [], []
    for _ in range(bench.rounds(5, 2)):
        first, second = _ours(bench)
        formed.append(first)
        again.append(second)
    say(f"join: {median(formed):.0f} ms, again {median(again):.0f} ms")
    bench.keep("join_ms", formed)
    bench.keep("rejoin_ms", again)
    figures = [
        Figure(f"join: {AGENTS} agents have their place", median(formed), "ms", bar=f"<= {LIMIT_MS} ms",
               holds=median(formed) <= LIMIT_MS, note=f"worst {max(formed):.0f}"),
        Figure(f"join: one of {AGENTS} fails, all are in the next round", median(again), "ms",
               bar=f"<= {LIMIT_MS} ms", holds=median(again) <= LIMIT_MS, note=f"worst {max(again):.0f}"),
    ]  # fmt: skip
    if not bench.peers.torch_python:
        return figures
    for agents in TORCHRUN_AGENTS[: 1 if bench.quick else None]:
        took = _torchrun(bench, agents)
        say(f"join: torchrun, {agents} agents: {took and round(took)} ms")
        note = "a whole run of true, its imports included" if took else f"not done in {TORCHRUN_LIMIT_S} s"
        figures.append(
            Figure(f"join: torchrun's c10d rendezvous, {agents} agents", None, "ms", "torchrun", took, note=note)
        )
    return figures
