"""A lab without root, and a machine that allows none."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest

from laconic.lab import needs, steps
from laconic.lab.steps import STEPS, StepError

# Become 'nobody'. The interpreter may live in a folder that only root may enter: show it, in a
# mount namespace of this process, under an empty folder that all may enter.
AS_NOBODY = """
import os, sys
from pathlib import Path
from laconic.lab import linux
linux.unshare(linux.CLONE_NEWNS)
linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
for needed in map(Path, sys.argv[1].split(os.pathsep)):
    closed = next((p for p in reversed(needed.parents) if not p.stat().st_mode & 1), None)
    if closed is not None:
        kept = os.open(needed, os.O_RDONLY)
        linux.mount("none", str(closed), "tmpfs", 0)
        closed.chmod(0o755)
        needed.mkdir(parents=True)
        linux.mount(f"/proc/self/fd/{kept}", str(needed), "", linux.MS_BIND | linux.MS_REC)
os.chdir("/")
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[2:]])
"""
ROOTLESS = """
import json, sys
from laconic.lab import Lab, check
lacking = [fact for fact in check(gloo=False) if fact.ok is False]
if lacking:
    print(json.dumps({"lacking": f"{lacking[0].name}: {lacking[0].detail}; {lacking[0].remedy}"}))
    raise SystemExit
host = '''
import os, socket
print(os.getuid(), socket.gethostname(), flush=True)
if os.environ["RANK"] == "0":
    with socket.create_server(("10.0.0.1", 6000)) as server:
        print(server.accept()[1][0])
else:
    while True:
        try:
            socket.create_connection(("10.0.0.1", 6000)).close()
            break
        except ConnectionRefusedError:
            pass
'''
with Lab(hosts=2, mbps=200) as lab:
    result = lab.run([sys.executable, "-c", host], timeout_s=60)
    print(json.dumps({"privilege": lab.privilege, "codes": result.exit_codes, "output": result.output}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux")
def test_a_user_without_rights_has_a_lab_of_the_same_kind():
    folders = os.pathsep.join(dict.fromkeys([sys.base_prefix, sys.prefix]))
    command = ["-c", ROOTLESS] if os.getuid() else ["-c", AS_NOBODY, folders, ROOTLESS]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=env, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    if "lacking" in found:
        pytest.skip(f"no lab without root: {found['lacking']}")
    user = os.getuid() or 65534
    assert found["privilege"] == "user namespace"
    assert found["codes"] == [0, 0]
    assert found["output"] == [f"{user} host0\n10.0.0.2\n", f"{user} host1\n"]


def test_a_machine_that_allows_no_user_namespace_is_told_what_to_do(monkeypatch, tmp_path):
    restricted = tmp_path / "restricted"
    monkeypatch.setattr(steps, "_RESTRICTED", restricted)
    refused = StepError("user namespace", errno.EPERM, "Operation not permitted")
    assert str(refused).startswith(
        "lab: user namespace: expected the kernel to allow it, got 'Operation not permitted'; run as root, allow"
    )
    restricted.write_text("1\n")
    assert "sysctl kernel.apparmor_restrict_unprivileged_userns=0" in str(
        StepError("network namespaces", errno.EPERM, "Operation not permitted")
    )


def test_a_kernel_without_the_token_bucket_is_told_which_module_to_load():
    refused = StepError("tbf", errno.ENOENT, "No such file or directory")
    assert str(refused).endswith("got 'No such file or directory'; load it with 'modprobe sch_tbf'")


def test_a_check_says_which_step_failed_and_which_were_not_tried(monkeypatch):
    class Refused:
        def __init__(self, **_):
            raise StepError("veth", errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(needs, "Lab", Refused)
    facts = {fact.name: fact for fact in needs.check()}
    assert [facts[name].ok for name in STEPS] == [True, True, True, True, False, None, None]
    assert facts["veth"].remedy == "load it with 'modprobe veth'"
