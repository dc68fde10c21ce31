"""Starting a launcher with torchrun's options, for the checks that run whole jobs."""

import os
import shlex
import subprocess
import sys
import time


def torch_version(python):
    """The version of PYTHON's torch; ends this program as skipped (77) if there is none."""
    asked = subprocess.run(
        [python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True
    )
    if asked.returncode != 0:
        print(f"skipped: {python} has no usable torch: {asked.stderr.strip().splitlines()[-1]}")
        sys.exit(77)
    return asked.stdout.strip()


def run_job(launcher, arguments, python, timeout_s, **variables):
    """Runs a job to its end; gives (exit status, stdout, stderr, seconds). Out of time: TimeoutError, and it is stopped.

    Workers find PYTHON by PYTHON_EXEC, and the loopback device only. Nothing that an outer launcher set is passed on.
    """
    outer = ("PET_", "TORCHELASTIC_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    environment.setdefault("RES_OPTIONS", "timeout:1 attempts:2")  # PyTorch looks up the name of every peer
    environment.update(PYTHON_EXEC=python, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", **variables)
    command = shlex.split(launcher) + arguments
    began = time.monotonic()
    job = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = job.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        job.terminate()  # first politely: torchrun's workers outlive a killed torchrun
        try:
            out, err = job.communicate(timeout=40)
        except subprocess.TimeoutExpired:
            job.kill()
            out, err = job.communicate()
        raise TimeoutError(
            f"{shlex.join(command)} was not done after {timeout_s} s\n{out[-3000:]}\n{err[-3000:]}"
        ) from None
    return job.returncode, out, err, time.monotonic() - began
