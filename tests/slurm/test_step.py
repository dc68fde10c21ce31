"""`srun distrun`: no flags about nodes, and SLURM's own events."""

import shutil

import cases
import hosts
import jobs
from hosts import wait_until


class Step(cases.SlurmTest):
    def test_no_flags_are_needed(self):
        cluster = self.cluster(3)
        reports = self.reports()
        srun = self.srun(cluster, "--verbose", worker=self.reporting(reports), nodes=3)
        first = reports.wait_round("h1 h2 h3", seconds=40)
        self.assertEqual(jobs.ranks(first), {"h1": 0, "h2": 1, "h3": 2})
        reports.finish()
        self.assertEqual(srun.wait(60), 0)
        self.assertIn("the nodes meet at h1:", srun.err())
        self.assertIn("rendezvous slurm-1.0", srun.err())
        self.assert_nothing_is_left(cluster)

    def test_a_node_name_need_not_resolve(self):
        cluster = self.cluster(2, names="none", prefix="n")
        reports = self.reports()
        srun = self.srun(cluster, "--verbose", worker=self.reporting(reports), nodes=2)
        reports.wait_round("h1 h2", seconds=60)
        reports.finish()
        self.assertEqual(srun.wait(60), 0)
        self.assertIn("'n1' does not resolve; scontrol says 10.77.0.1", srun.err())

    def test_a_step_on_some_nodes_of_a_job_meets_on_its_own_first(self):
        cluster = self.cluster(3)
        reports = [self.reports("a"), self.reports("b")]
        job = self.batch(
            cluster,
            "#!/bin/sh\n"
            + "".join(
                f"srun -N2 -n2 --overlap --relative={i} {cases.DISTRUN} {' '.join(map(str, self.reporting(reports[i])))} &\n"
                for i in (0, 1)
            )
            + "wait\n",
            "--nodes=3", "--ntasks-per-node=1")  # fmt: skip
        # Both at once on h2.
        self.assertEqual(jobs.ranks(reports[0].wait_round("h1 h2", seconds=40)), {"h1": 0, "h2": 1})
        self.assertEqual(jobs.ranks(reports[1].wait_round("h2 h3", seconds=40)), {"h2": 0, "h3": 1})
        for each in reports:
            each.finish()
        cluster.wait_job(job, "COMPLETED")

    def test_several_tasks_on_a_node_are_refused_in_words(self):
        cluster = self.cluster(2)
        srun = cluster.start(["srun", "-N2", "-n4", cases.DISTRUN, "true"])
        self.assertEqual(srun.wait(60), 2)
        self.assertIn("use srun --ntasks-per-node=1", srun.err())

    def test_the_first_failure_is_the_status_of_srun(self):
        cluster = self.cluster(2)
        reports = self.reports()
        srun = self.srun(cluster, worker=self.reporting(reports, 13), nodes=2)
        reports.wait_round("h1 h2", seconds=40)
        reports.die(1)
        self.assertEqual(srun.wait(60), 13)
        self.assert_nothing_is_left(cluster)

    def test_a_batch_script_alone_is_one_node_and_is_told(self):
        cluster = self.cluster(2)
        job = self.batch(cluster, f"#!/bin/sh\n{cases.DISTRUN} sh -c 'echo size $WORLD_SIZE'\n", "--nodes=2")
        cluster.wait_job(job, "COMPLETED")
        text = (hosts.FOLDER / "job.out").read_text()
        self.assertIn("size 1", text)
        self.assertRegex(text, "SLURM job 1 has 2 nodes, and this one alone takes part")

    def test_scancel_gives_workers_their_grace_and_leaves_nothing(self):
        cluster = self.cluster(2)
        mark = hosts.FOLDER / "saved"
        # TERM comes twice, from SLURM and from distrun: once is enough.
        (hosts.FOLDER / "worker.sh").write_text(
            f"trap 'trap \"\" TERM; sleep 2; : > {mark}.$RANK; exit 0' TERM\n"
            f"setsid sleep 1000 & touch {mark}.ready.$RANK; while :; do sleep 0.1; done"
        )
        job = self.batch(
            cluster, "#!/bin/sh\ntrap : TERM\nsrun --ntasks-per-node=1 " + f"{cases.DISTRUN} sh {hosts.FOLDER}/worker.sh &\nwait; wait\n",
            "--nodes=2")  # fmt: skip
        wait_until(lambda: all((hosts.FOLDER / f"saved.ready.{i}").exists() for i in (0, 1)), 40, "workers run")
        cluster.ask("scancel", job)
        cluster.wait_job(job, "CANCELLED")
        self.assert_nothing_is_left(cluster)
        for rank in (0, 1):
            self.assertTrue((hosts.FOLDER / f"saved.{rank}").exists(), (hosts.FOLDER / "job.out").read_text())

    def test_usr1_is_a_notice_to_workers(self):
        cluster = self.cluster(2)
        mark = hosts.FOLDER / "noticed"
        worker = ["sh", "-c", f"trap ': > {mark}.$RANK; exit 0' USR1; : > {mark}.ready.$RANK; while :; do sleep 0.1; done"]
        srun = self.srun(cluster, worker=worker, nodes=2)
        wait_until(lambda: all((hosts.FOLDER / f"noticed.ready.{i}").exists() for i in (0, 1)), 40, "workers run")
        cluster.ask("scancel", "--signal=USR1", cluster.running())
        self.assertEqual(srun.wait(60), 0)
        self.assertTrue(all((hosts.FOLDER / f"noticed.{i}").exists() for i in (0, 1)), srun.text())

    def test_scancel_of_a_step_kills_it_whole_and_nothing_else(self):
        cluster = self.cluster(2)
        reports = self.reports()
        worker = " ".join(map(str, self.reporting(reports)))
        job = self.batch(
            cluster, f"#!/bin/sh\nsrun --ntasks-per-node=1 {cases.DISTRUN} {worker}\necho step $?; sleep 1000\n", "--nodes=2")  # fmt: skip
        reports.wait_round("h1 h2", seconds=40)
        cluster.ask("scancel", f"{job}.0")
        output = hosts.FOLDER / "job.out"
        wait_until(lambda: "step 137" in output.read_text(), 40, lambda: f"the step is killed: {output.read_text()}")
        wait_until(
            lambda: not [name for name in cluster.left_behind() if not name.startswith("slurm")], 40,
            lambda: f"only SLURM's own and the script are left: {cluster.left_behind()}")  # fmt: skip
        self.assertEqual(cluster.job(job)["JobState"], "RUNNING")

    def test_what_workers_leave_running_is_ended(self):
        # linuxproc, SLURM's own tracking, finds none of these.
        cluster = self.cluster(2)
        orphan = hosts.FOLDER / "orphan"
        shutil.copy(shutil.which("sleep"), orphan)
        go = hosts.FOLDER / "go"
        script = (f"{orphan} 1000 & setsid {orphan} 1000 & (setsid {orphan} 1000 &) ; (env -i {orphan} 1000 &) ; sleep 1.5; "
                  f"until [ -e {go} ]; do sleep 0.1; done; exit $RANK")  # fmt: skip
        srun = self.srun(cluster, worker=["sh", "-c", script], nodes=2)

        def orphans():
            return [name for name in cluster.left_behind() if name.startswith("orphan ")]

        wait_until(lambda: len(orphans()) == 8, 40, lambda: f"orphans run: {cluster.left_behind()}")
        go.touch()
        self.assertEqual(srun.wait(60), 1)
        self.assert_nothing_is_left(cluster)

    def test_the_status_of_the_first_failure_is_what_slurm_tells(self):
        cluster = self.cluster(2)
        job = self.batch(
            cluster, f"#!/bin/sh\nsrun --ntasks-per-node=1 {cases.DISTRUN} sh -c 'sleep $((2 + 8 * !RANK)); exit 13'\n", "--nodes=2")  # fmt: skip
        self.assertEqual(cluster.wait_job(job, "FAILED")["ExitCode"], "13:0")
        self.assertEqual(cluster.completed(job)["ExitCode"], "13:0")
        self.assertRegex((hosts.FOLDER / "job.out").read_text(), "h2.*\n(.*\n)*.*exited with status 13")

    def test_a_drained_node_works_to_the_end_of_the_job(self):
        cluster = self.cluster(2)
        reports = self.reports()
        srun = self.srun(cluster, "--nnodes", "1:2", worker=self.reporting(reports), nodes=2)
        reports.wait_round("h1 h2", seconds=40)
        cluster.drain("h2")
        wait_until(lambda: cluster.states()[1] == "draining", 30, lambda: cluster.states())
        reports.finish()
        self.assertEqual(srun.wait(60), 0)
        self.assertEqual(len(reports.rounds()), 1)
        wait_until(lambda: cluster.states()[1] == "drained", 30, lambda: cluster.states())

    def test_a_killed_node_is_named_and_the_others_go_on(self):
        cluster = self.cluster(3)
        reports = self.reports()
        srun = self.srun(cluster, "--nnodes", "2:3", worker=self.reporting(reports), nodes=3,
                         srun=["--no-kill", "--kill-on-bad-exit=0"])  # fmt: skip
        first = reports.wait_round("h1 h2 h3", seconds=40)
        cluster.nodes["h3"].kill()  # its slurmd and all else
        reports.wait_round("h1 h2", after=first, seconds=40)
        cluster.down("h3")
        reports.finish()
        wait_until(lambda: len(reports.lines("done")) == 2, 40, "both end well")
        self.assertRegex(srun.err(), r"h3 \(node rank 2\) is lost")
        srun.wait(60)

    def test_the_first_node_may_be_lost(self):
        # Where the nodes met: another coordinates.
        cluster = self.cluster(3)
        reports = self.reports()
        srun = self.srun(cluster, "--nnodes", "2:3", worker=self.reporting(reports), nodes=3,
                         srun=["--no-kill", "--kill-on-bad-exit=0"])  # fmt: skip
        first = reports.wait_round("h1 h2 h3", seconds=40)
        cluster.nodes["h1"].crash()
        reports.wait_round("h2 h3", after=first, seconds=40)
        cluster.down("h1")
        reports.finish()
        wait_until(lambda: len(reports.lines("done")) == 2, 40, "both end well")
        self.assertIn("this node takes over", srun.err())
        srun.wait(60)

    def test_a_dead_node_is_survived_with_no_kill(self):
        cluster = self.cluster(3)
        reports = self.reports()
        srun = self.srun(cluster, "--nnodes", "2:3", worker=self.reporting(reports), nodes=3,
                         srun=["--no-kill", "--kill-on-bad-exit=0"])  # fmt: skip
        first = reports.wait_round("h1 h2 h3", seconds=40)
        cluster.nodes["h2"].crash()
        reports.wait_round("h1 h3", after=first, seconds=40)
        cluster.down("h2")
        reports.finish()
        wait_until(lambda: len(reports.lines("done")) == 2, 40, "both end well")
        srun.wait(60)

    def test_srun_inside_salloc_is_a_step_like_any(self):
        cluster = self.cluster(2)
        reports = self.reports()
        salloc = cluster.start(["salloc", "--nodes=2", "srun", "-N2", "-n2", cases.DISTRUN, *self.reporting(reports)])
        self.assertEqual(jobs.ranks(reports.wait_round("h1 h2", seconds=40)), {"h1": 0, "h2": 1})
        reports.finish()
        self.assertEqual(salloc.wait(60), 0)

    def test_a_heterogeneous_step_is_one_job(self):
        cluster = self.cluster(3)
        reports = self.reports()
        command = [cases.DISTRUN, *self.reporting(reports)]
        srun = cluster.start(["srun", "-N1", "-n1", *command, ":", "-N2", "-n2", *command])
        self.assertEqual(jobs.ranks(reports.wait_round("h1 h2 h3", seconds=40)), {"h1": 0, "h2": 1, "h3": 2})
        reports.finish()
        self.assertEqual(srun.wait(60), 0)

    def test_the_controller_may_restart_under_a_job(self):
        cluster = self.cluster(2)
        reports = self.reports()
        srun = self.srun(cluster, worker=self.reporting(reports), nodes=2)
        reports.wait_round("h1 h2", seconds=40)
        cluster.restart_controller()
        wait_until(lambda: len(cluster.states()) == 2, 30, "the controller answers")
        reports.finish()
        self.assertEqual(srun.wait(40), 0)
        self.assertEqual(len(reports.rounds()), 1)


if __name__ == "__main__":
    cases.main()
