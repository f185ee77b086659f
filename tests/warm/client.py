"""``python -I -S client.py SOCKET -c|-m WHAT ARGUMENT...``: as python would run it, by a process that has torch already.

Passes on what it has (files, environment, folder, cores, namespaces), then signals one way and the exit code the
other way. Imports little, because it starts often.
"""

import array
import json
import os
import signal
import socket
import sys

NAMESPACES = ("user", "mnt", "net", "pid", "ipc", "uts")  # in this order they can be entered
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)


def main() -> None:
    path, *arguments = sys.argv[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.connect(path)
        files = [0, 1, 2, *(os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in NAMESPACES)]
        given = {
            "arguments": arguments,
            "environment": dict(os.environ),
            "folder": os.getcwd(),
            "cores": sorted(os.sched_getaffinity(0)),
            "ignored": [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN],
        }
        text = json.dumps(given).encode()
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))
        server.sendmsg([len(text).to_bytes(4, "little")], [rights])
        server.sendall(text)
        for number in SIGNALS:
            signal.signal(number, lambda number, _: server.sendall(bytes([number])))
        answer = server.recv(4)
    code = int.from_bytes(answer, "little", signed=True) if answer else -signal.SIGKILL
    if code < 0:  # ended by a signal: so does this
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
