"""The keeper's own namespaces, entered before the network is built.

Without root's capabilities a user namespace gives them, over nothing but what is made inside. The user
keeps number and name there: files of a job belong to who started it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from laconic.lab import linux
from laconic.lab.hosts import addresses
from laconic.lab.steps import step


def separate(hosts: int) -> str:
    """Move this process into namespaces of its own; return ``'root'`` or ``'user namespace'``."""
    privilege = "root"
    if not linux.may_administer_networks():
        with step("user namespace"):
            _enter_user_namespace()
        privilege = "user namespace"
    with step("mount namespace"):
        linux.unshare(linux.CLONE_NEWNS)
        linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
        _name_hosts(hosts)
    return privilege


def _enter_user_namespace() -> None:
    user, group = os.getuid(), os.getgid()
    linux.unshare(linux.CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _name_hosts(hosts: int) -> None:
    """Lay a file of our own over /etc/hosts, with each address in both forms.

    Torch listens on IPv6 and asks for the name of every peer; unanswered, it warns.
    """
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    for host, address in enumerate(addresses(hosts)):
        lines += [f"{address} host{host}", f"::ffff:{address} host{host}"]
    handle, name = tempfile.mkstemp(prefix="laconic-lab-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write("\n".join(lines) + "\n")
        os.chmod(name, 0o644)
        linux.mount(name, "/etc/hosts", "", linux.MS_BIND)
    finally:
        os.unlink(name)  # the mount keeps what the name showed
