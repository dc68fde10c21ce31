"""The manifests of configs/kubernetes, read, and what a pod made from one would be given."""

import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / "configs" / "kubernetes"
FILES = ("job.yaml", "elastic-job.yaml", "distrund.yaml")
UID = "7f3c9a52-0001-4000-8000-000000000001"


def load(file):
    import yaml  # python3-yaml; the caller says so if it is missing

    return [document for document in yaml.safe_load_all((FOLDER / file).read_text()) if document]


def one(documents, kind):
    (found,) = [document for document in documents if document["kind"] == kind]
    return found


def pod_of(workload):
    return workload["spec"]["template"]["spec"]


def container_of(workload):
    (container,) = pod_of(workload)["containers"]
    return container


def labels_of(job):
    """Those that the Job controller gives its pods."""
    return {"job-name": job["metadata"]["name"], "controller-uid": UID, "batch.kubernetes.io/job-name": job["metadata"]["name"]}


def environment(job, index, secrets):
    """The variables of the pod with that index: as the kubelet resolves them, and the one of an Indexed Job."""
    result = {}
    for variable in container_of(job).get("env", []):
        if "value" in variable:
            result[variable["name"]] = variable["value"]
            continue
        source = variable["valueFrom"]
        if "fieldRef" in source:
            path = source["fieldRef"]["fieldPath"]
            result[variable["name"]] = labels_of(job)[path.removeprefix("metadata.labels['").removesuffix("']")]
        else:
            reference = source["secretKeyRef"]
            value = secrets.get(reference["name"], {}).get(reference["key"])
            if value is None and not reference.get("optional"):
                raise KeyError(f"{reference}: the pod would not start")
            if value is not None:
                result[variable["name"]] = value
    if job["spec"].get("completionMode") == "Indexed":
        result["JOB_COMPLETION_INDEX"] = str(index)
    return result
