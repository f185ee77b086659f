"""Messages between the lab and its keeper: one JSON object each, with descriptors attached.

A message is its length (uint32, little-endian) and as many bytes of UTF-8. Descriptors travel with
the length. The lab asks, and the keeper answers before the next question.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

_LENGTH = struct.Struct("<I")
_MOST_DESCRIPTORS = 253  # what Linux accepts in one message


def send(channel: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send one message; the descriptors stay open here."""
    body = json.dumps(message).encode()
    socket.send_fds(channel, [_LENGTH.pack(len(body))], list(descriptors))
    channel.sendall(body)


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Wait for one message and its descriptors; EOFError where the other side is gone."""
    try:
        head, descriptors, _, _ = socket.recv_fds(channel, _LENGTH.size, _MOST_DESCRIPTORS)
        if not head:
            raise EOFError
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        body = _exactly(channel, _LENGTH.unpack(head)[0])
    except ConnectionResetError:
        raise EOFError from None
    message: dict[str, Any] = json.loads(body)
    return message, descriptors


def _exactly(channel: socket.socket, size: int) -> bytes:
    body = bytearray()
    while len(body) < size:
        chunk = channel.recv(size - len(body))
        if not chunk:
            raise EOFError
        body += chunk
    return bytes(body)
