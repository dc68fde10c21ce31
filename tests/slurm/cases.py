"""The frame of the tests on a real SLURM: a cluster for each test, reports of its workers, and a promise: nothing is left."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cluster"))

import hosts
import jobs
import slurm
from hosts import wait_until

DISTRUN = jobs.BIN / "distrun"


class SlurmTest(jobs.ClusterTest):
    def cluster(self, nodes, *, names="all", prefix="h"):
        lab = self.lab(nodes + 1, names=names)
        try:
            self._slurm = slurm.Cluster(lab, prefix=prefix)
        except hosts.Unavailable as why:
            self.skipTest(str(why))
        return self._slurm

    def run(self, result=None):
        result = result or self.defaultTestResult()
        before = len(result.failures) + len(result.errors)
        super().run(result)
        if len(result.failures) + len(result.errors) > before:
            for path in [hosts.FOLDER / "job.out", *hosts.FOLDER.glob("logs/*.out")]:
                if path.exists():
                    print(f"---- {path}\n{path.read_text()[-6000:]}", file=sys.stderr)

    def srun(self, cluster, *options, worker, nodes, srun=(), name="srun", env=None):
        return cluster.start(
            ["srun", f"--nodes={nodes}", "--ntasks-per-node=1", *srun, DISTRUN, *options, *worker], name=name, env=env)  # fmt: skip

    def batch(self, cluster, script, *options):
        """Submits it; gives the job's number."""
        path = hosts.FOLDER / "job.sh"
        path.write_text(script)
        return cluster.ask("sbatch", "--parsable", f"--output={hosts.FOLDER}/job.out", *options, path)

    def assert_nothing_is_left(self, cluster, seconds=40):
        wait_until(lambda: not cluster.left_behind(), seconds, lambda: f"nothing is left: {cluster.left_behind()}")


main = jobs.main
