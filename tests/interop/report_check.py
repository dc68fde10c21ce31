#!/usr/bin/env python3
"""A worker's exception, written by torch.distributed's `record`, must reach the launcher's final report.

    report_check.py --launcher 'LAUNCHER ARGS…' [--python PYTHON]

Checks the report's layout, the exception's text and call stack in it, the worker that is named as the first failure,
and that the file of a launcher that was itself told TORCHELASTIC_ERROR_FILE holds the first failure's record.
Exit status: 0, 1 if something differs, 77 if PYTHON has no torch.
"""

import argparse
import json
import pathlib
import re
import sys
import tempfile

from launching import run_job, torch_version

WORKER = """
import os, time
from torch.distributed.elastic.multiprocessing.errors import record


def load(batch):
    raise ValueError(f"batch {batch} is not a number")


@record
def main():
    if os.environ["RANK"] == "1":
        load("seven")
    time.sleep(60)


main()
"""


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def run(args, folder):
    script = folder / "worker.py"
    script.write_text(WORKER)
    parent_file = folder / "parent.json"
    options = ["--standalone", "--nproc_per_node", "2", "--monitor_interval", "0.1"]
    options += ["--log_dir", str(folder / "logs"), str(script)]
    status, _, report, _ = run_job(
        args.launcher, options, args.python, args.timeout, TORCHELASTIC_ERROR_FILE=str(parent_file)
    )
    said = f"exit status {status}, stderr:\n{report[-5000:]}"
    check(status != 0, f"the failure was not reported: {said}")
    check(
        re.search(r"^=+\n.* FAILED\n-+\nFailures:\n", report, re.M), f"no report in torchrun's layout: {said}"
    )
    root = re.search(r"Root Cause \(first observed failure\):\n(.*?)\n=+\s*$", report, re.S | re.M)
    check(root, f"no root cause block: {said}")
    block = root.group(1)
    check(re.search(r"rank +: 1 \(local_rank: 1\)", block), f"another worker is named: {said}")
    check(re.search(r"exitcode +: 1 \(pid: \d+\)", block), f"another exit code: {said}")
    check("ValueError: batch seven is not a number" in block, f"the exception is not in the block: {said}")
    check("in load\n" in block, f"the call stack is not in the block: {said}")
    error_file = re.search(r"error_file: (/\S+)", block)
    check(
        error_file and pathlib.Path(error_file.group(1)).is_file(),
        f"the error file is not named, or not there: {said}",
    )
    record = json.loads(pathlib.Path(error_file.group(1)).read_text())
    check(record["message"]["message"] == "ValueError: batch seven is not a number", f"error file: {record}")
    check(parent_file.is_file(), f"the record was not copied to the launcher's own error file: {said}")
    copied = json.loads(parent_file.read_text())
    check(copied["message"]["extraInfo"] == record["message"]["extraInfo"], f"the copy differs: {copied}")
    check(copied["message"].get("errorCode") == 1, f"the copy has no errorCode of 1: {copied['message']}")
    print("the exception, its call stack, its worker and its error file are in the report")


def main():
    parser = argparse.ArgumentParser(
        description="record -> error file -> report, under any launcher with torchrun's options"
    )
    parser.add_argument("--launcher", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--timeout", type=float, default=240)
    args = parser.parse_args()
    print(f"torch {torch_version(args.python)}, {args.launcher}", flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="report_check.") as folder:
            run(args, pathlib.Path(folder))
    except (AssertionError, TimeoutError) as error:
        print(f"FAIL {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
