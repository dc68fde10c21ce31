#!/usr/bin/env python3
"""Every check of this folder with the PyTorch of the Python that runs it, against the binaries of one build folder.

    run_all.py --build build/dev

Prints a check's whole output only if it failed. Exit status: 0, or 1 if any check failed.
"""

import argparse
import os
import pathlib
import shlex
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def checks(binaries, python):
    server = f"{shlex.quote(str(binaries / 'distrund'))} --host 127.0.0.1 --port 0"
    yield "store suite against PyTorch's libuv server", "store_behaviours.py", ["--server", "libuv"], {}
    yield "store suite against PyTorch's legacy server", "store_behaviours.py", ["--server", "legacy"], {}
    yield "store suite against distrund", "store_behaviours.py", ["--server", server], {}
    yield "raw questions to PyTorch's libuv server", "wire_probe.py", ["--server", "libuv"], {}
    yield "raw questions to PyTorch's legacy server", "wire_probe.py", ["--server", "legacy"], {}
    yield "raw questions to distrund", "wire_probe.py", ["--server", server], {}
    torchrun = pathlib.Path(python).with_name("torchrun")
    if torchrun.exists():
        arguments = ["--server", server, "--torchrun", str(torchrun)]
        yield "two agents of torchrun through distrund", "torchrun_distrund.py", arguments, {}
        # From 2.4 on torchrun keeps one store over restarts, where Gloo reads the dead workers' addresses: a plain
        # restart fails there. This variable gives it a new store for each attempt, as distrun always does.
        fresh = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        yield "DDP with a restart under torchrun", "ddp_check.py", ["--launcher", str(torchrun), "--timeout", "300"], fresh
    distrun = shlex.quote(str(binaries / "distrun"))
    for workers in ("2", "4"):
        arguments = ["--launcher", distrun, "--workers", workers]
        yield f"DDP with a restart under distrun, {workers} workers", "ddp_check.py", arguments, {}
    yield "a recorded exception in distrun's report", "report_check.py", ["--launcher", distrun], {}


def main():
    parser = argparse.ArgumentParser(description="All interoperability checks with this Python's PyTorch")
    parser.add_argument(
        "--build", type=pathlib.Path, required=True, help="folder with bin/distrun and bin/distrund"
    )
    args = parser.parse_args()
    binaries = args.build.resolve() / "bin"
    for name in ("distrun", "distrund"):
        if not os.access(binaries / name, os.X_OK):
            print(f"run_all: {binaries / name} is missing; build it first")
            return 1
    failed = 0
    for title, script, arguments, variables in checks(binaries, sys.executable):
        began = time.monotonic()
        command = [sys.executable, str(HERE / script), *arguments]
        done = subprocess.run(
            command,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        took = f"({time.monotonic() - began:.0f} s)"
        last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
        if done.returncode in (0, 77):
            print(f"{'ok  ' if done.returncode == 0 else 'skip'} {title}: {last} {took}", flush=True)
        else:
            failed += 1
            print(f"FAIL {title} {took}\n{done.stdout}\n{done.stderr[-4000:]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
