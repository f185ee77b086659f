"""Files for several machines: the start script runs, the others say what is understood there."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import each
from tests.distributed.ranks import free_port

ROOT = Path(__file__).parents[2]
FILES = ROOT / "examples" / "multi_node"
START, SBATCH = FILES / "torchrun.sh", FILES / "slurm.sbatch"
SETTINGS = """
[data]
kind = "synthetic"
rows = [200, 50, 7]
samples = 640
eval_samples = 64
dense = 4

[model]
dim = 4
bottom = [8]
top = [8]

[train]
batch = 16
steps = 4
"""
OURS = ("HEAD", "PORT", "NODES", "NODE_RANK", "RANKS", "ADDRESS", "RUN_ID")
PET = {
    "HEAD": "PET_MASTER_ADDR", "PORT": "PET_MASTER_PORT", "NODES": "PET_NNODES", "NODE_RANK": "PET_NODE_RANK",
    "RANKS": "PET_NPROC_PER_NODE",
}  # fmt: skip


def environment(**given):
    """Return that of the tests, without what a launcher has set; commands are this Python's."""
    kept = {name: value for name, value in os.environ.items() if name not in {*OURS, *PET.values()}}
    return {**kept, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **given}


def start(*arguments, shell="", **given):
    command = ["bash", "-c", f'{shell} exec "$@"', "bash", str(START), *arguments]
    return subprocess.Popen(
        command, env=environment(**given), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_two_nodes_meet_and_train(tmp_path):
    """One is told in the script's words, the other in those of Kubeflow Trainer."""
    (tmp_path / "run.toml").write_text(SETTINGS)
    told = {"HEAD": "localhost", "PORT": str(free_port()), "NODES": "2", "RANKS": "1"}
    usual = {
        "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "MAX_RESTARTS": "0", "JOIN_S": "60", "ADDRESS": "127.0.0.1",
    }  # fmt: skip
    out = f"train.out={tmp_path / 'run'}"
    nodes = [
        start(str(tmp_path / "run.toml"), "--set", out, **usual, **named)
        for named in (
            {**told, "NODE_RANK": "0"},
            {PET[name]: value for name, value in {**told, "NODE_RANK": "1"}.items()},
        )
    ]
    try:
        shown = [node.communicate(timeout=120)[0] for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    assert [node.returncode for node in nodes] == [0, 0], "\n".join(shown)
    assert ["ended after 4 steps" in text for text in shown].count(True) == 1
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert json.loads((checkpoint / "manifest.json").read_text())["ranks"] == 2


@each("name", ["HEAD", "NODES", "NODE_RANK", "RANKS"])
def test_what_is_not_told_is_named(name):
    told = {"HEAD": "host0", "NODES": "2", "NODE_RANK": "0", "RANKS": "1"}
    node = start("run.toml", **{key: value for key, value in told.items() if key != name})
    text, _ = node.communicate(timeout=30)
    assert node.returncode != 0
    assert f"{name}: set it to" in text


def test_too_few_open_files_are_an_error_before_ranks_meet():
    node = start("run.toml", shell="ulimit -n 200;", HEAD="host0", NODES="20", NODE_RANK="0", RANKS="4")
    text, _ = node.communicate(timeout=30)
    assert node.returncode == 1
    assert "torchrun.sh: 80 ranks need 222 open files, the limit is 200" in text


@each("file", [START, SBATCH])
def test_a_shell_can_read_it(file):
    assert subprocess.run(["bash", "-n", str(file)], check=False).returncode == 0
    assert file.read_text().startswith("#!/usr/bin/env bash\n")


def test_what_is_said_to_slurm_stands_before_the_first_command():
    lines = SBATCH.read_text().splitlines()
    told = [line for line in lines if line.startswith("#SBATCH")]
    first = next(n for n, line in enumerate(lines) if line and not line.startswith("#"))
    assert max(lines.index(line) for line in told) < first
    options = dict(re.fullmatch(r"#SBATCH --([a-z-]+)(?:=(\S+))?", line).groups() for line in told)
    assert options["ntasks-per-node"] == "1"  # torchrun starts the ranks
    assert options["signal"].startswith("B:USR1@")  # to the script, which puts the job into the queue again
    assert {"nodes", "cpus-per-task", "time", "requeue"} <= set(options)


def test_slurm_starts_every_node_and_puts_the_job_into_the_queue_again(tmp_path):
    """Stand-ins do what Slurm does with one task a node, and say that time is nearly over."""
    tools = {
        "scontrol": 'echo "$@" >> "$SEEN/asked"; printf "%s\\n" host3 host4',
        "srun": 'shift; for n in 0 1; do SLURM_NODEID=$n "$@"; done; kill -USR1 $PPID',
        "torchrun.sh": 'echo "$NODE_RANK $HEAD $PORT $NODES $RANKS $RUN_ID $OMP_NUM_THREADS $*" >> "$SEEN/started"',
    }
    for name, text in tools.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {
        "SLURM_JOB_NODELIST": "host[3-4]", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_ID": "41234567",
        "SLURM_CPUS_PER_TASK": "32", "SLURM_SUBMIT_DIR": str(tmp_path), "SEEN": str(tmp_path),
    }  # fmt: skip
    env = environment(**slurm)
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    subprocess.run(["bash", str(SBATCH), "run.toml", "--set", "train.out=/shared/run"], env=env, check=False)
    told = "host3 24567 2 4 41234567 8 run.toml --set train.out=/shared/run"
    assert (tmp_path / "started").read_text().splitlines() == [f"0 {told}", f"1 {told}"]
    assert (tmp_path / "asked").read_text() == "show hostnames host[3-4]\nrequeue 41234567\n"


def documents(name):
    yaml = pytest.importorskip("yaml")
    return list(yaml.safe_load_all((FILES / name).read_text()))


KINDS = {
    ("v1", "Service"): "IoK8sApiCoreV1Service",
    ("v1", "PersistentVolumeClaim"): "IoK8sApiCoreV1PersistentVolumeClaim",
    ("batch/v1", "Job"): "IoK8sApiBatchV1Job",
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): "TrainerV1alpha1TrainingRuntime",
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): "TrainerV1alpha1TrainJob",
}


def snake(name):
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


@each("name", ["claim.yaml", "job.yaml", "runtime.yaml", "trainjob.yaml"])
def test_kubernetes_knows_every_field(name):
    """Classes made of the schemas of Kubernetes and Trainer drop what they do not know."""
    pytest.importorskip("kubeflow_trainer_api")
    for document in documents(name):
        kind = KINDS[document["apiVersion"], document["kind"]]
        module = re.sub(r"v1_?alpha1_?", "v1alpha1_", snake(kind))
        model = getattr(importlib.import_module(f"kubeflow_trainer_api.models.{module}"), kind)
        assert json.loads(json.dumps(model.from_dict(document).to_dict())) == document


def pods():
    (job,) = (each for each in documents("job.yaml") if each["kind"] == "Job")
    (runtime,) = documents("runtime.yaml")
    (node,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    return {
        "job.yaml": job["spec"]["template"]["spec"],
        "runtime.yaml": node["template"]["spec"]["template"]["spec"],
    }


def test_pods_have_the_folder_and_the_settings_that_they_are_started_with():
    (claim,) = documents("claim.yaml")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    (trainjob,) = documents("trainjob.yaml")
    for name, pod in pods().items():
        (container,) = pod["containers"]
        sources = {volume["name"]: volume for volume in pod["volumes"]}
        mounts = {mount["mountPath"]: sources[mount["name"]] for mount in container["volumeMounts"]}
        assert mounts["/runs"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        assert "configMap" in mounts["/etc/laconic"]
        settings, _, out = container.get("args") or trainjob["spec"]["trainer"]["args"]
        assert Path(settings).parent == Path("/etc/laconic")
        assert out.startswith("train.out=/runs/"), name


def test_nodes_of_a_job_find_each_other():
    service, job = documents("job.yaml")
    name, pod = service["metadata"]["name"], pods()["job.yaml"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": job["metadata"]["name"]}
    assert pod["subdomain"] == name
    env = {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}
    assert env["HEAD"] == f"{job['metadata']['name']}-0.{name}"
    assert int(env["NODES"]) == job["spec"]["completions"] == job["spec"]["parallelism"]
    cores = int(pod["containers"][0]["resources"]["requests"]["cpu"])
    assert int(env["RANKS"]) * int(env["OMP_NUM_THREADS"]) == cores
    assert set(env) - {"GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS"} <= set(OURS)


def test_trainer_finds_its_node_and_says_the_rest_itself():
    (runtime,), (job,) = documents("runtime.yaml"), documents("trainjob.yaml")
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    assert job["spec"]["runtimeRef"]["kind"] == runtime["kind"]
    (node,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert node["template"]["metadata"]["labels"] == {
        "trainer.kubeflow.org/trainjob-ancestor-step": "trainer"
    }
    (container,) = pods()["runtime.yaml"]["containers"]
    assert container["name"] == "node"  # where Trainer sets PET_*
    named = {entry["name"] for entry in [*container["env"], *job["spec"]["trainer"]["env"]]}
    assert not any(name.startswith("PET_") for name in named)
    assert set(PET.values()) <= set(re.findall(r"PET_\w+", START.read_text()))


def test_an_image_is_made_of_files_that_are_there():
    lines = (FILES / "Dockerfile").read_text().splitlines()
    copied = [line.split()[1] for line in lines if line.startswith("COPY") and "--from" not in line]
    assert copied
    assert all((ROOT / path).exists() for path in copied)
    assert 'ENTRYPOINT ["torchrun.sh"]' in lines
