"""`distrun submit`, and the templates in configs/slurm, each run."""

import re

import cases
import hosts
import jobs
from hosts import wait_until

DATA = jobs.ROOT / "tests" / "data" / "digits" / "digits.csv"
TEMPLATES = jobs.ROOT / "configs" / "slurm"


class Submit(cases.SlurmTest):
    def submit(self, cluster, *options, worker):
        process = cluster.start([cases.DISTRUN, "submit", "--log-dir", hosts.FOLDER / "logs", *options, "--", *worker])
        self.assertEqual(process.wait(60), 0, process.text())
        return process.out().strip()

    def output(self, job):
        return (hosts.FOLDER / "logs" / f"{job}.out").read_text()

    def template(self, cluster, name, worker, *options):
        text = (TEMPLATES / f"{name}.sbatch").read_text()
        self.assertIn(" train.py &", text)
        text = text.replace(" train.py &", " " + " ".join(map(str, worker)) + " &").replace("logs/", f"{hosts.FOLDER}/")
        text = text.replace("  distrun ", f"  {cases.DISTRUN} ").replace("--nproc-per-node 4", "--nproc-per-node 1")
        text = text.replace("--nproc-per-node auto", "--nproc-per-node 1")
        return self.batch(cluster, text, *options)

    def test_wait_follows_and_ends_with_the_jobs_status(self):
        cluster = self.cluster(2)
        process = cluster.start(
            [cases.DISTRUN, "submit", "--nodes", 2, "--wait", "--log-dir", hosts.FOLDER / "logs", "--",
             "sh", "-c", "echo rank $RANK of $WORLD_SIZE; sleep 2; exit $((RANK * 7))"])  # fmt: skip
        self.assertEqual(process.wait(60), 7, process.text())
        self.assertIn("rank 1 of 2", process.out())
        self.assertIn("exited with status 7", process.out())
        files = [path.read_text() for path in (hosts.FOLDER / "logs").glob("1/**/stdout.log")]
        self.assertEqual(sorted(files), ["rank 0 of 2\n", "rank 1 of 2\n"])

    def test_stopped_requeued_and_resumed_it_ends_as_if_undisturbed(self):
        cluster = self.cluster(2)

        pace = jobs.Pace(0)

        def digits(name):
            return pace.worker([jobs.BIN / "digits", "--data", DATA, "--checkpoint", hosts.FOLDER / name, "--steps", 400,
                                "--checkpoint-every", 20])  # fmt: skip

        how = ["--nodes", 2, "--time", "10", "--requeue", "--notice", 30]
        undisturbed = self.submit(cluster, *how, worker=digits("a"))
        cluster.wait_job(undisturbed, "COMPLETED", 90)
        pace.set(100)
        job = self.submit(cluster, *how, worker=digits("b"))
        wait_until((hosts.FOLDER / "b").exists, 60, "a checkpoint is there")
        pace.set(0)
        cluster.ask("scancel", "--batch", "--signal=USR1", job)
        wait_until(lambda: cluster.job(job).get("Restarts") == "1", 30, lambda: cluster.job(job))
        cluster.begin_now(job)
        cluster.wait_job(job, "COMPLETED", 90)
        last = [re.findall("accuracy.*", self.output(number)) for number in (undisturbed, job)]
        self.assertEqual(len(last[0]), 1, self.output(undisturbed))
        self.assertEqual(last[0], last[1], self.output(job))
        self.assertRegex(self.output(job), r"requeued \(status 143\)")
        self.assert_nothing_is_left(cluster)

    def test_what_would_fail_again_is_not_requeued(self):
        cluster = self.cluster(2)
        job = self.submit(cluster, "--nodes", 2, "--time", 10, "--requeue", worker=["/no/such/program"])
        self.assertEqual(cluster.wait_job(job, "FAILED")["ExitCode"], "127:0")
        self.assertEqual(cluster.job(job)["Restarts"], "0")

    def test_a_worker_that_saves_on_usr1_is_started_again(self):
        cluster = self.cluster(2)
        worker = hosts.FOLDER / "worker.sh"
        worker.write_text(f"trap 'exit 75' USR1; : > {hosts.FOLDER}/ready.$RANK; while :; do sleep 0.1; done")
        job = self.submit(cluster, "--nodes", 2, "--time", 10, "--requeue", "--save-signal", "USR1", worker=["sh", worker])
        wait_until(lambda: all((hosts.FOLDER / f"ready.{rank}").exists() for rank in (0, 1)), 40, "workers run")
        cluster.ask("scancel", "--batch", "--signal=USR1", job)
        wait_until(lambda: cluster.job(job).get("Restarts") == "1", 30, lambda: cluster.job(job))
        self.assertRegex(self.output(job), r"requeued \(status 75\)")

    def test_a_cancelled_job_is_not_requeued(self):
        cluster = self.cluster(2)
        reports = self.reports()
        job = self.submit(cluster, "--nodes", 2, "--time", 10, "--requeue", worker=self.reporting(reports))
        reports.wait_round("h1 h2", seconds=40)
        cluster.ask("scancel", job)
        cluster.wait_job(job, "CANCELLED")
        self.assertEqual(cluster.job(job)["Restarts"], "0")
        self.assert_nothing_is_left(cluster)

    def test_tasks_of_an_array_are_jobs_of_their_own(self):
        cluster = self.cluster(2)
        job = self.submit(
            cluster, "--slurm=--array=0-1", "--slurm=--output=/run/lab/array.%a",
            worker=["sh", "-c", "echo task $SLURM_ARRAY_TASK_ID of size $WORLD_SIZE"])  # fmt: skip
        for task in (0, 1):
            path = hosts.FOLDER / f"array.{task}"
            wait_until(lambda: path.exists() and f"task {task} of size 1" in path.read_text(), 40, f"task {task} of {job}")

    def test_template_single_node(self):
        cluster = self.cluster(1)
        job = self.template(cluster, "single-node", ["true"])
        self.assertEqual(cluster.wait_job(job, "COMPLETED")["ExitCode"], "0:0")

    def test_template_multi_node(self):
        cluster = self.cluster(2)
        reports = self.reports()
        job = self.template(cluster, "multi-node", self.reporting(reports))
        reports.wait_round("h1 h2", seconds=40)
        reports.finish()
        cluster.wait_job(job, "COMPLETED")

    def test_template_elastic_replaces_a_dead_node(self):
        cluster = self.cluster(3)
        reports = self.reports()
        job = self.template(cluster, "elastic", self.reporting(reports))
        first = wait_until(lambda: (reports.complete() or [None])[-1], 40, "a round")
        # The batch script's own node is the one that SLURM cannot lose.
        lost = next(line.host for line in first if line.host != "h1")
        cluster.nodes[lost].crash()
        others = sorted({"h1", "h2", "h3"} - {lost})
        reports.wait_round(" ".join(others), after=first, seconds=40)
        cluster.down(lost)
        reports.finish()
        wait_until(lambda: len(reports.lines("done")) == 2, 40, "both end well")
        cluster.wait_job(job, "COMPLETED", 60)
        # By distrun at once, by the script at the end.
        self.assertRegex((hosts.FOLDER / "job.out").read_text(), rf"(?s){lost} \(node rank \d\) is lost.*job {job}: lost {lost}\n")

    def test_template_preemptible_is_requeued(self):
        cluster = self.cluster(2)
        reports = self.reports()
        job = self.template(cluster, "preemptible", self.reporting(reports))
        reports.wait_round("h1 h2", seconds=40)
        cluster.ask("scancel", "--batch", "--signal=USR1", job)
        wait_until(lambda: cluster.job(job).get("Restarts") == "1", 30, lambda: cluster.job(job))


if __name__ == "__main__":
    cases.main()
