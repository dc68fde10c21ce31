"""Pods as the manifests make them, on simulated hosts: their variables, their names, nothing else of Kubernetes."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cluster"))

import hosts
import jobs
import manifests

SECRETS = {"distrun": {"token": "of the cluster"}}


class Pods(jobs.ClusterTest):
    def pods(self, file, *, more_names=()):
        """Hosts h1, h2, … as the pods of the job; a service's names are known everywhere."""
        try:
            import yaml  # noqa: F401
        except ImportError:
            self.skipTest("no yaml (package python3-yaml)")
        self.job = manifests.one(manifests.load(file), "Job")
        name, service = self.job["metadata"]["name"], manifests.pod_of(self.job)["subdomain"]
        count = self.job["spec"]["completions"]
        lab = self.lab(count + len(more_names), names="none")
        names = [(host, f"{name}-{i}.{service}") for i, host in enumerate(list(lab)[:count])]
        names += list(zip(list(lab)[count:], more_names))
        for host in lab:
            with (hosts.FOLDER / host.name / "hosts").open("a") as file:
                file.writelines(f"{other.address} {known}\n" for other, known in names)
        return list(lab)[:count]

    def start(self, pods, worker, **changes):
        container = manifests.container_of(self.job)
        self.assertEqual(container["command"], ["distrun"])
        agents = {}
        for index, host in enumerate(pods):
            env = manifests.environment(self.job, index, SECRETS)
            env = {**env, "PET_NPROC_PER_NODE": "1", **changes}
            env = {key: value for key, value in env.items() if value is not None}
            agents[host.name] = host.start([jobs.BIN / "distrun", *worker], env=env)
        return agents

    def test_the_pods_of_a_job_meet_without_flags(self):
        pods = self.pods("job.yaml")
        reports = self.reports()
        agents = self.start(pods, self.reporting(reports))
        first = reports.wait_round("h1 h2 h3 h4", seconds=40)
        self.assertEqual(jobs.ranks(first), {"h1": 0, "h2": 1, "h3": 2, "h4": 3})
        reports.die(2)
        second = reports.wait_round("h1 h2 h3 h4", after=first, seconds=40)
        self.assertEqual({line.restart_count for line in second}, {1})
        self.end_well(reports, agents)

    def test_a_pod_that_is_replaced_takes_its_place_again(self):
        pods = self.pods("job.yaml")
        reports = self.reports()
        agents = self.start(pods, self.reporting(reports))
        first = reports.wait_round("h1 h2 h3 h4", seconds=40)
        agents["h3"].signal(9, agents["h3"].tree())
        agents["h3"].wait(30)
        env = {**manifests.environment(self.job, 2, SECRETS), "PET_NPROC_PER_NODE": "1"}
        agents["h3"] = pods[2].start([jobs.BIN / "distrun", *self.reporting(reports)], env=env)
        second = reports.wait_round("h1 h2 h3 h4", after=first, seconds=40)
        self.assertEqual(jobs.ranks(second), jobs.ranks(first))
        self.end_well(reports, agents)

    def test_an_elastic_job_survives_the_loss_of_pod_0(self):
        pods = self.pods("elastic-job.yaml", more_names=["distrund"])
        reports = self.reports()
        daemon = self._lab["h5"].start(
            [jobs.BIN / "distrund", *manifests.container_of(manifests.one(manifests.load("distrund.yaml"), "Deployment"))["args"][:-1],
             hosts.FOLDER / "state"], env={"DISTRUN_TOKEN": SECRETS["distrun"]["token"]})  # fmt: skip
        hosts.wait_until(lambda: "listening on" in daemon.err() or daemon.poll() is not None, 30, daemon.err)
        agents = self.start(pods, self.reporting(reports))
        first = reports.wait_round("h1 h2 h3 h4", seconds=40)
        pods[0].kill()
        del agents["h1"]
        reports.wait_round("h2 h3 h4", after=first, seconds=40)
        self.end_well(reports, agents)

    def test_half_of_the_variables_is_explained(self):
        pods = self.pods("job.yaml")
        agents = self.start(pods[:1], ["true"], DISTRUN_SERVICE=None)
        self.assertEqual(agents["h1"].wait(40), 2)
        self.assertIn("DISTRUN_SERVICE is not set (the headless service", agents["h1"].err())


if __name__ == "__main__":
    jobs.main()
