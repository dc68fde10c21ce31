"""SLURM ends or interrupts a job: the time limit, --signal, preemption.  The real ones, with the time they take."""

import re

import cases
import hosts
import jobs
from hosts import wait_until

DATA = jobs.ROOT / "tests" / "data" / "digits" / "digits.csv"

# Tells when it runs, and, by name, which signal it got; takes a second to save after TERM.
WORKER = """\
name=$1
trap 'trap "" TERM; echo term >> $name; sleep 1; echo saved >> $name; exit 0' TERM
trap 'echo usr1 >> $name; exit 0' USR1
echo began >> $name
while :; do sleep 0.1; done
"""


class Limits(cases.SlurmTest):
    def work(self, name):
        """The command of a worker, whose words go to a file of that name."""
        path = hosts.FOLDER / "worker.sh"
        path.write_text(WORKER)
        return ["sh", path, hosts.FOLDER / name]

    def said(self, name):
        path = hosts.FOLDER / name
        return path.read_text().split() if path.exists() else []

    def submit(self, cluster, name, *options, worker):
        path = hosts.FOLDER / "logs" / f"{name}.out"
        path.parent.mkdir(exist_ok=True)
        process = cluster.start([cases.DISTRUN, "submit", f"--slurm=--output={path}", *options, "--", *worker])
        self.assertEqual(process.wait(60), 0, process.text())
        return process.out().strip()

    def output(self, name):
        return (hosts.FOLDER / "logs" / f"{name}.out").read_text()

    def test_the_time_limit_and_signals_before_it(self):
        """Three jobs at once; SLURM looks at limits each half minute."""
        cluster = self.cluster(4)
        limited = self.submit(cluster, "limited", "--nodes", 2, "--time", 1, worker=self.work("limited.worker"))
        requeued = self.submit(
            cluster, "requeued", "--time", 2, "--requeue", "--notice", 60, worker=self.work("requeued.worker"))  # fmt: skip
        noticed = self.submit(
            cluster, "noticed", "--time", 2, "--slurm=--signal=USR1@60", worker=self.work("noticed.worker"))  # fmt: skip

        # --signal=USR1@60: the workers', who end well.
        self.assertEqual(cluster.wait_job(noticed, "COMPLETED", 120)["ExitCode"], "0:0")
        self.assertEqual(self.said("noticed.worker"), ["began", "usr1"])
        # --signal=B:USR1@60: the script's, who asks for another go.
        wait_until(lambda: cluster.job(requeued).get("Restarts") == "1", 120, lambda: cluster.job(requeued))
        self.assertEqual(self.said("requeued.worker"), ["began", "term", "saved"])
        self.assertRegex(self.output("requeued"), r"requeued \(status 143\)")
        # The limit: both workers had the time to save, SLURM killed nobody.
        job = cluster.wait_job(limited, "TIMEOUT", 150)
        self.assertEqual(sorted(self.said("limited.worker")), ["began", "began", "saved", "saved", "term", "term"])
        self.assertEqual(job["ExitCode"], "143:0")
        self.assertEqual(cluster.completed(limited)["JobState"], "TIMEOUT")
        cluster.ask("scancel", requeued)
        self.assert_nothing_is_left(cluster)

    def test_preempted_requeued_and_resumed_it_ends_as_if_undisturbed(self):
        """PreemptMode=REQUEUE: another partition takes the nodes, and SLURM itself starts the job again."""
        cluster = self.cluster(2)

        pace = jobs.Pace(0)

        def digits(name):
            return pace.worker([jobs.BIN / "digits", "--data", DATA, "--checkpoint", hosts.FOLDER / f"{name}.checkpoint",
                                "--steps", 200, "--checkpoint-every", 20])  # fmt: skip

        how = ["--nodes", 2, "--time", 10, "--requeue", "--cpus-per-node", 8]
        undisturbed = self.submit(cluster, "undisturbed", *how, worker=digits("undisturbed"))
        cluster.wait_job(undisturbed, "COMPLETED", 90)
        pace.set(200)
        job = self.submit(cluster, "job", *how, worker=digits("job"))
        wait_until((hosts.FOLDER / "job.checkpoint").exists, 60, "a checkpoint is there")
        pace.set(0)
        urgent = self.submit(
            cluster, "urgent", "--nodes", 2, "--cpus-per-node", 8, "--partition", "urgent", worker=["true"])  # fmt: skip
        cluster.wait_job(urgent, "COMPLETED", 60)
        cluster.begin_now(job)
        done = cluster.wait_job(job, "COMPLETED", 90)
        self.assertEqual(done["Restarts"], "1")
        last = [re.findall("accuracy.*", self.output(name)) for name in ("undisturbed", "job")]
        self.assertEqual(len(last[0]), 1, self.output("undisturbed"))
        self.assertEqual(last[0], last[1], self.output("job"))
        self.assert_nothing_is_left(cluster)

    def test_preempted_with_a_grace_time_it_requeues_itself(self):
        """PreemptMode=CANCEL, GraceTime: SLURM tells the tasks, and would cancel the job when the time is over."""
        cluster = self.cluster(1)
        job = self.submit(
            cluster, "job", "--time", 10, "--requeue", "--cpus-per-node", 8, "--partition", "graceful",
            worker=self.work("worker"))  # fmt: skip
        wait_until(lambda: self.said("worker"), 40, "the worker runs")
        self.submit(cluster, "urgent", "--cpus-per-node", 8, "--partition", "urgent", worker=["true"])
        wait_until(lambda: cluster.job(job).get("Restarts") == "1", 40, lambda: f"{cluster.job(job)} {self.output('job')}")
        self.assertEqual(self.said("worker"), ["began", "term", "saved"])


if __name__ == "__main__":
    cases.main()
