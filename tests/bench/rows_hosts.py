"""all_reduce over two simulated hosts (tests/cluster) of two ranks each, ours against Gloo alone: part of row collectives.

As a program, `rows_hosts.py ROUNDS SECONDS SIZE...` measures and prints JSON, {name: {size: [us]}}: it has to leave the machine's
own network for that. `rows_hosts.py --operation NAME [--ranks 2,2] ...` compares ours with and without shared memory inside the hosts,
what two levels gain: {"levels:NAME": {size: [[us, us without, the median of the ratios]]}}.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "cluster")]
sys.dont_write_bytecode = True

import hosts  # noqa: E402
import jobs  # noqa: E402

from bench.measure import Figure, at_most, median, say  # noqa: E402

NAMES = ("distrun", "gloo")


def two_hosts(bench, sizes, name_of, rounds, seconds):
    row = "all_reduce 2 hosts x 2 ranks"
    if not bench.tool("hosts_load").exists():
        return [Figure(row, None, "us", note="hosts_load was not built: libgloo-dev")]
    say(f"collectives: two hosts, {rounds} rounds of {', '.join(NAMES)}")
    environment = dict(os.environ, DISTRUN_BIN=str(bench.build / "bin"), DISTRUN_BENCH_BIN=str(bench.build / "bench"))
    command = [sys.executable, str(HERE / "rows_hosts.py"), str(rounds), str(seconds), *map(str, sizes)]
    limit = 60 + rounds * len(NAMES) * 120
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
    if done.returncode == hosts.SKIPPED:
        return [Figure(row, None, "us", note=done.stdout.strip().splitlines()[-1])]
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-3000:]}")
    measured = json.loads(done.stdout)
    bench.keep("collectives us, two hosts", measured)
    figures = []
    for size in sizes:
        ours, theirs = (measured[name][str(size)] for name in NAMES)
        _, holds = at_most(median(ours), median(theirs), 1)
        note = f"distrun {min(ours):.0f} to {max(ours):.0f}; Gloo {min(theirs):.0f} to {max(theirs):.0f}"
        figures.append(Figure(f"{row} {name_of(size)}", median(ours), "us", "Gloo", median(theirs),
                              median(theirs) / median(ours), "not slower", holds, note))  # fmt: skip
    return figures


# ---- the measuring program ------------------------------------------------------------------------------------


def once(lab, name, number, seconds, sizes, ranks):
    """{size: us, or as the program says it} of one job over all hosts, so many ranks on each."""
    folder = hosts.FOLDER / f"gloo.{number}"
    folder.mkdir()
    tool = pathlib.Path(os.environ["DISTRUN_BENCH_BIN"]) / "hosts_load"
    agents = [
        host.start([jobs.BIN / "distrun", "--nnodes", len(lab), "--nproc-per-node", here, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                    f"h1:{jobs.PORT}", "--rdzv-id", f"load{number}", "--no-python", tool, name, folder, seconds, *sizes],
                   env={"GLOO_SOCKET_IFNAME": "eth0"})  # fmt: skip
        for host, here in zip(lab, ranks, strict=True)
    ]
    for agent in agents:
        if agent.wait(110) != 0:
            raise RuntimeError(f"{name}: {agent}\n{agent.text()}")
    lines = [line.split() for agent in agents for line in agent.out().splitlines() if len(line.split()) == 4]
    figures = [[float(word) for word in words[:3]] for words in lines]
    return dict(zip(sizes, figures if name.startswith("levels:") else [us[0] for us in figures], strict=True))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--operation")
    options.add_argument("--ranks", default="2,2")
    options.add_argument("rounds", type=int)
    options.add_argument("seconds")
    options.add_argument("sizes", nargs="+")
    args = options.parse_args()
    ranks = args.ranks.split(",")
    names = (f"levels:{args.operation}",) if args.operation else NAMES
    hosts.enter()
    took = {name: {size: [] for size in args.sizes} for name in names}
    with hosts.Lab(len(ranks)) as lab:
        for i in range(args.rounds):
            for j, name in enumerate(names):
                for size, us in once(lab, name, len(names) * i + j, args.seconds, args.sizes, ranks).items():
                    took[name][size].append(us)
    print(json.dumps(took))


if __name__ == "__main__":
    try:
        main()
    except hosts.Unavailable as reason:
        print(f"skipped: {reason}")
        sys.exit(hosts.SKIPPED)
