"""``python -I -S client.py SOCKET -c|-m WHAT ARGUMENT...``: as python would run it, by a process that has torch already.

Passes on what it has (files, environment, folder, cores, namespaces), then signals one way and the exit code the
other way. Starts often, and therefore imports the C modules below ``socket`` and ``signal`` and no others.
"""

import _signal as signal
import _socket as socket
import marshal
import os
import sys

NAMESPACES = ("user", "mnt", "net", "pid", "ipc", "uts")  # in this order they can be entered
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)


def main() -> None:
    path, *arguments = sys.argv[1:]
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.connect(path)
    files = [0, 1, 2, *(os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in NAMESPACES)]
    given = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "cores": sorted(os.sched_getaffinity(0)),
        "ignored": [number for number in SIGNALS if signal.getsignal(number) == signal.SIG_IGN],
    }
    text = marshal.dumps(given)
    rights = b"".join(file.to_bytes(4, sys.byteorder) for file in files)
    server.sendmsg([len(text).to_bytes(4, "little")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
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
