"""The manifests say what Kubernetes and distrun need, and their parts fit each other."""

import sys
import unittest

import manifests

SKIPPED = 77


class Manifests(unittest.TestCase):
    def job(self, file):
        documents = manifests.load(file)
        return documents, manifests.one(documents, "Job")

    def test_every_document_has_what_kubernetes_requires(self):
        versions = {"Service": "v1", "PersistentVolumeClaim": "v1", "Job": "batch/v1", "Deployment": "apps/v1"}
        for file in manifests.FILES:
            for document in manifests.load(file):
                with self.subTest(file=file, kind=document["kind"]):
                    self.assertEqual(document["apiVersion"], versions[document["kind"]])
                    self.assertRegex(document["metadata"]["name"], r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
                    self.assertLessEqual(set(document), {"apiVersion", "kind", "metadata", "spec"})

    def test_they_agree_with_the_schema_of_kubernetes(self):
        try:
            import kubernetes_validate
        except ImportError:
            self.skipTest("no kubernetes-validate (pip install kubernetes-validate)")
        for file in manifests.FILES:
            for document in manifests.load(file):
                kubernetes_validate.validate(document, "1.31", strict=True)

    def test_all_values_of_variables_are_texts(self):
        for file in manifests.FILES:
            for document in manifests.load(file):
                if "template" not in document["spec"]:
                    continue
                for variable in manifests.container_of(document)["env"]:
                    self.assertIsInstance(variable.get("value", ""), str, f"{file}: {variable}")

    def test_a_job_runs_all_its_pods_at_once_and_counts_them(self):
        for file in ("job.yaml", "elastic-job.yaml"):
            _, job = self.job(file)
            spec = job["spec"]
            self.assertEqual(spec["completionMode"], "Indexed")
            self.assertEqual(spec["parallelism"], spec["completions"])
            given = manifests.environment(job, 0, {"distrun": {"token": "t"}})
            self.assertEqual(given["DISTRUN_PODS"], str(spec["completions"]))
            self.assertEqual(given["DISTRUN_JOB_NAME"], job["metadata"]["name"])
            self.assertEqual(given["DISTRUN_JOB_UID"], manifests.UID)
            self.assertEqual(manifests.pod_of(job)["restartPolicy"], "Never")  # podFailurePolicy needs it
            self.assertEqual(spec["podFailurePolicy"]["rules"][0]["onExitCodes"]["containerName"], manifests.container_of(job)["name"])

    def test_the_success_of_one_pod_is_the_jobs(self):
        for file in ("job.yaml", "elastic-job.yaml"):
            self.assertEqual(self.job(file)[1]["spec"]["successPolicy"], {"rules": [{"succeededCount": 1}]})

    def test_pod_0_has_the_name_where_the_pods_meet(self):
        documents, job = self.job("job.yaml")
        service = manifests.one(documents, "Service")
        given = manifests.environment(job, 0, {})
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertIs(service["spec"]["publishNotReadyAddresses"], True)
        self.assertEqual({given["DISTRUN_SERVICE"], manifests.pod_of(job)["subdomain"]}, {service["metadata"]["name"]})
        self.assertLessEqual(service["spec"]["selector"].items(), manifests.labels_of(job).items())
        self.assertEqual([port["port"] for port in service["spec"]["ports"]], [29400])

    def test_workers_are_done_before_the_kubelet_kills(self):
        for file in ("job.yaml", "elastic-job.yaml"):
            _, job = self.job(file)
            grace = int(manifests.environment(job, 0, {"distrun": {"token": "t"}})["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"])
            self.assertLessEqual(grace + 10, manifests.pod_of(job)["terminationGracePeriodSeconds"])

    def test_distrund_is_one_with_state_and_probes_at_its_port(self):
        documents = manifests.load("distrund.yaml")
        deployment, service = manifests.one(documents, "Deployment"), manifests.one(documents, "Service")
        claim = manifests.one(documents, "PersistentVolumeClaim")
        container, pod = manifests.container_of(deployment), manifests.pod_of(deployment)
        self.assertEqual(deployment["spec"]["replicas"], 1)
        self.assertEqual(deployment["spec"]["strategy"]["type"], "Recreate")
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        self.assertEqual(deployment["spec"]["selector"]["matchLabels"], labels)
        self.assertEqual(service["spec"]["selector"], labels)
        (port,) = container["ports"]
        options = dict(zip(container["args"][::2], container["args"][1::2]))
        self.assertEqual(options["--port"], str(port["containerPort"]))
        self.assertEqual(options["--host"], "0.0.0.0")
        self.assertEqual(service["spec"]["ports"][0]["targetPort"], port["name"])
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            self.assertEqual(container[probe]["httpGet"], {"path": "/status", "port": port["name"]})
        (mount,) = container["volumeMounts"]
        (volume,) = pod["volumes"]
        self.assertEqual((mount["mountPath"], mount["name"]), (options["--state"], volume["name"]))
        self.assertEqual(volume["persistentVolumeClaim"]["claimName"], claim["metadata"]["name"])

    def test_the_elastic_job_meets_at_the_service_of_distrund_with_its_token(self):
        documents = manifests.load("distrund.yaml")
        _, job = self.job("elastic-job.yaml")
        service = manifests.one(documents, "Service")
        secrets = {"distrun": {"token": "t"}}
        given = manifests.environment(job, 0, secrets)
        self.assertEqual(given["PET_RDZV_ENDPOINT"], f"{service['metadata']['name']}:{service['spec']['ports'][0]['port']}")
        self.assertEqual(given["DISTRUN_TOKEN"], "t")
        tokens = [v["valueFrom"] for d in (job, manifests.one(documents, "Deployment"))
                  for v in manifests.container_of(d)["env"] if v["name"] == "DISTRUN_TOKEN"]  # fmt: skip
        self.assertEqual(tokens[0], tokens[1])


if __name__ == "__main__":
    try:
        import yaml  # noqa: F401
    except ImportError:
        print("skipped: no yaml (package python3-yaml)")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
