"""Forks a process for every client, into the client's namespaces; see ``client.py``."""

from __future__ import annotations

import array
import atexit
import ctypes
import gc
import marshal
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
import weakref
from contextlib import suppress
from typing import Any

from tests.warm.client import NAMESPACES, SIGNALS


def serve(path: str) -> None:
    """Serve until killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for those who are served
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the minders
    for undone in list(
        weakref.finalize._registry
    ):  # torch undoes at its end what it registered when imported
        undone.atexit = False
    gc.freeze()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(path)
        server.listen(64)
        while True:
            client, _ = server.accept()
            if os.fork() == 0:
                server.close()
                os._exit(_mind(client))
            client.close()


def _mind(client: socket.socket) -> int:
    """Start what the client asks for in its namespaces; pass signals on, and the exit code back."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    files, given = _received(client)
    standard, namespaces = files[:3], files[3:]
    libc = ctypes.CDLL(None, use_errno=True)
    for name, entered in zip(NAMESPACES, namespaces, strict=True):
        if os.fstat(entered).st_ino != os.stat(f"/proc/self/ns/{name}").st_ino and libc.setns(entered, 0):
            raise OSError(ctypes.get_errno(), f"setns {name}")
    worker = os.fork()
    if worker == 0:
        client.close()
        os._exit(_work(standard, given))
    for file in files:
        os.close(file)
    ended = os.pidfd_open(worker)
    while True:
        ready, _, _ = select.select([client, ended], [], [])
        if ended in ready:
            break
        numbers = client.recv(16)
        for number in numbers or [signal.SIGKILL]:  # a client that is gone was killed
            os.kill(worker, number)
        if not numbers:
            break
    _, status = os.waitpid(worker, 0)
    code = os.waitstatus_to_exitcode(status)
    with suppress(BrokenPipeError):
        client.sendall(code.to_bytes(4, "little", signed=True))
    return 0


def _received(client: socket.socket) -> tuple[list[int], dict[str, Any]]:
    files = array.array("i")
    size, rights, _, _ = client.recvmsg(4, socket.CMSG_SPACE(9 * files.itemsize))
    files.frombytes(rights[0][2])
    text = b""
    while len(text) < int.from_bytes(size, "little"):
        text += client.recv(1 << 20)
    return list(files), marshal.loads(text)


def _work(standard: list[int], given: dict[str, Any]) -> int:
    """Be a python that was started with these arguments."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in given["ignored"]:  # by nohup, or by a shell for what it starts in the background
        signal.signal(number, signal.SIG_IGN)
    for descriptor, file in enumerate(standard):
        os.dup2(file, descriptor)
    os.closerange(3, 1024)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode, 1) for number, mode in enumerate("rww"))
    os.environ.clear()
    os.environ.update(given["environment"])
    os.chdir(given["folder"])
    os.sched_setaffinity(0, given["cores"])
    sys.path[:0] = ["", *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
    option, what, *arguments = given["arguments"]
    sys.argv = [option, *arguments]
    try:
        if option == "-m":
            sys.argv[0] = what
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
    except KeyboardInterrupt:
        traceback.print_exc()
        code = -signal.SIGINT
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:  # as python ends when nobody catches Ctrl-C
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code
