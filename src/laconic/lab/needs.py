"""Whether this machine can run a lab, and what it lacks."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.util import find_spec

from laconic.errors import LaconicError
from laconic.lab.hosts import INTERFACE
from laconic.lab.lab import Lab
from laconic.lab.steps import STEPS, StepError, remedy

_GLOO_TIMEOUT_S = 120
_GLOO = f"""
import torch.distributed as dist
if not dist.is_gloo_available():
    raise SystemExit("this torch is built without gloo")
dist.ProcessGroupGloo.create_device(interface={INTERFACE!r})
"""


@dataclass(frozen=True, slots=True)
class Fact:
    """One need of a lab, and whether this machine meets it."""

    name: str
    ok: bool | None
    """None: not tried, because something before it failed."""
    detail: str
    remedy: str = ""


def check(*, gloo: bool = True) -> list[Fact]:
    """Build a small lab and report every need; ``gloo=False`` leaves torch out and is quick."""
    facts = [_platform(), _pyroute2()]
    if not all(fact.ok for fact in facts):
        return facts
    try:
        with Lab(hosts=2, mbps=100) as lab:
            privilege = lab.privilege
            facts += [_privilege(privilege)]
            facts += [Fact(name, True, "works") for name in STEPS[1:]]
            if gloo:
                facts.append(_gloo(lab))
    except StepError as error:
        facts += _up_to(error)
    return facts


def _platform() -> Fact:
    if sys.platform == "linux":
        return Fact("linux", True, "yes")
    return Fact("linux", False, sys.platform, "run it in a Linux machine")


def _pyroute2() -> Fact:
    if find_spec("pyroute2") is not None:
        return Fact("pyroute2", True, "installed")
    return Fact("pyroute2", False, "not installed", "pip install 'laconic[lab]'")


def _privilege(privilege: str) -> Fact:
    detail = "not needed: root" if privilege == "root" else "works, without root"
    return Fact(STEPS[0], True, detail)


def _up_to(error: StepError) -> list[Fact]:
    """Return the steps before the one that failed, that one, and those that were not tried."""
    failed = STEPS.index(error.step)
    return [
        *(Fact(name, True, "works") for name in STEPS[:failed]),
        Fact(error.step, False, error.reason, remedy(error.step, error.code)),
        *(Fact(name, None, "not tried") for name in STEPS[failed + 1 :]),
    ]


def _gloo(lab: Lab) -> Fact:
    if find_spec("torch") is None:
        return Fact("gloo", False, "torch is not installed", "pip install torch")
    try:
        lab.run([sys.executable, "-c", _GLOO], timeout_s=_GLOO_TIMEOUT_S).check()
    except LaconicError as error:
        return Fact("gloo", False, str(error).splitlines()[-1], "install a torch that has gloo")
    return Fact("gloo", True, f"opens {INTERFACE}")
