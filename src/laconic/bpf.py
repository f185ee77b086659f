"""eBPF programs: compiled by clang or zig when they are needed, loaded and attached by libbpf.

The distribution has clang and libbpf (``apt-get install clang libbpf1``). Where there is no clang,
the zig of PyPI compiles (``pip install 'laconic[xdp]'``): it is a clang with a target for eBPF.
libbpf is called through ctypes, so that neither headers nor a binding are needed. XDP programs are
attached by a link, which the kernel removes with the process that holds it. tc programs stay until
they are detached or their interface goes, so they replace what an earlier process left behind.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from laconic.errors import PlanError

__all__ = ["Program", "compile_program", "library", "tools_lacking"]

_INSTALL_LIBRARY = "install it (Debian, Ubuntu: apt-get install libbpf1; Fedora: dnf install libbpf)"
_INSTALL_COMPILER = (
    "install one (Debian, Ubuntu: apt-get install clang; any machine: pip install 'laconic[xdp]')"
)
_LIBRARIES = ("libbpf.so.1", "libbpf.so.0")
_INGRESS = 1
_TC_PRIORITY, _TC_HANDLE = 1, 0x4C61
_TC_REPLACE = 1
_XDP = 37  # enum bpf_attach_type
_MODES = {"native": 1 << 2, "generic": 1 << 1}
_LOG_LEVEL_WARN = 0
_BYTE_ORDER = "bpfel" if sys.byteorder == "little" else "bpfeb"


class _TcHook(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("interface", ctypes.c_int),
        ("attach_point", ctypes.c_int),
        ("parent", ctypes.c_uint32),
    )


class _TcOptions(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("program", ctypes.c_int),
        ("flags", ctypes.c_uint32),
        ("program_id", ctypes.c_uint32),
        ("handle", ctypes.c_uint32),
        ("priority", ctypes.c_uint32),
    )


class _LinkOptions(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("flags", ctypes.c_uint32),
        ("iterator", ctypes.c_void_p),
        ("iterator_size", ctypes.c_uint32),
        ("target", ctypes.c_uint32),
        ("rest", ctypes.c_uint8 * 64),
    )


def tools_lacking() -> str | None:
    """Say what this machine lacks to compile and load programs; None if nothing."""
    if sys.platform != "linux":
        return f"expected Linux, got {sys.platform!r}; run it in a Linux machine"
    if _compiler() is None:
        return f"no clang and no zig found; {_INSTALL_COMPILER}"
    if _find_library() is None:
        return f"no libbpf found ({', '.join(_LIBRARIES)}); {_INSTALL_LIBRARY}"
    return None


def _compiler() -> list[str] | None:
    """Return the command that compiles C for the kernel's machine, without the file."""
    if (clang := shutil.which("clang")) is not None:
        return [clang, "-target", "bpf"]
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc", "-target", f"{_BYTE_ORDER}-freestanding"]
    return None


def _find_library() -> ctypes.CDLL | None:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name, use_errno=True)
        except OSError:
            continue
    return None


def library() -> ctypes.CDLL:
    """Load libbpf, with the types of the functions that are called here."""
    found = _find_library()
    if found is None:
        raise PlanError(f"eBPF: no libbpf found ({', '.join(_LIBRARIES)}); {_INSTALL_LIBRARY}")
    pointer, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "bpf_object__open_file": (pointer, [text, pointer]),
        "bpf_object__load": (number, [pointer]),
        "bpf_object__close": (None, [pointer]),
        "bpf_object__find_map_fd_by_name": (number, [pointer, text]),
        "bpf_object__find_program_by_name": (pointer, [pointer, text]),
        "bpf_program__fd": (number, [pointer]),
        "bpf_link_create": (number, [number, number, number, pointer]),
        "bpf_map_update_elem": (number, [number, pointer, pointer, ctypes.c_uint64]),
        "bpf_map_lookup_elem": (number, [number, pointer, pointer]),
        "bpf_map_delete_elem": (number, [number, pointer]),
        "bpf_tc_hook_create": (number, [pointer]),
        "bpf_tc_attach": (number, [pointer, pointer]),
        "bpf_tc_detach": (number, [pointer, pointer]),
        "libbpf_set_print": (pointer, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


def compile_program(source: Path, folder: Path, definitions: Mapping[str, object]) -> Path:
    """Compile a program for the kernel's machine; PlanError with the compiler's message."""
    compiler = _compiler()
    if compiler is None:
        raise PlanError(f"eBPF: no clang and no zig found; {_INSTALL_COMPILER}")
    compiled = folder / source.with_suffix(".o").name
    command = [
        *(*compiler, "-O2", "-g", "-mcpu=v3", "-Wall"),
        *("-idirafter", "/usr/include"),  # zig looks nowhere by itself
        *("-idirafter", f"/usr/include/{platform.machine()}-linux-gnu"),  # where Debian keeps asm/types.h
        *(f"-D{name}={value}" for name, value in definitions.items()),
        *("-c", str(source), "-o", str(compiled)),
    ]
    caches = {
        "ZIG_GLOBAL_CACHE_DIR": str(folder),
        "ZIG_LOCAL_CACHE_DIR": str(folder),
    }  # nothing stays in $HOME
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **caches})
    if done.returncode != 0:
        raise PlanError(
            f"eBPF: expected {'zig' if 'ziglang' in compiler else 'clang'} to compile {source.name}, got: {done.stderr.strip()[-600:]};"
            " install the kernel's headers (Debian, Ubuntu: apt-get install linux-libc-dev)"
        )
    return compiled


class Program:
    """An object file in the kernel: its programs, its maps, and where they are attached."""

    def __init__(self, source: Path, definitions: Mapping[str, object]) -> None:
        self._links: list[int] = []
        self._hooks: list[_TcHook] = []
        self._object: int | None = None
        if (lacking := tools_lacking()) is not None:
            raise PlanError(f"eBPF: {lacking}")
        with tempfile.TemporaryDirectory(prefix="laconic-bpf-") as folder:
            compiled = compile_program(source, Path(folder), definitions)
            self._library = library()
            said: list[bytes] = []
            keep = _quiet(self._library, said)
            try:
                self._object = self._library.bpf_object__open_file(str(compiled).encode(), None)
                code = self._library.bpf_object__load(self._object) if self._object else -ctypes.get_errno()
            finally:
                self._library.libbpf_set_print(None)
                del keep
        if code != 0:
            last = b"".join(said).decode(errors="replace").strip()[-600:]
            self.close()
            raise PlanError(
                f"eBPF: expected the kernel to load {source.name}, got {os.strerror(-code)!r}"
                f" ({last or 'no reason given'}); run as root, outside of a user namespace"
                " (CAP_BPF and CAP_NET_ADMIN), on Linux 5.13 or newer"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Detach and unload; a second call does nothing."""
        for link in self._links:
            os.close(link)
        for hook in self._hooks:
            options = _TcOptions(ctypes.sizeof(_TcOptions), handle=_TC_HANDLE, priority=_TC_PRIORITY)
            self._library.bpf_tc_detach(ctypes.byref(hook), ctypes.byref(options))
        self._links, self._hooks = [], []
        if self._object:
            self._library.bpf_object__close(self._object)
            self._object = None

    def map(self, name: str) -> int:
        """Return the descriptor of a map."""
        descriptor: int = self._library.bpf_object__find_map_fd_by_name(self._object, name.encode())
        assert descriptor >= 0, name
        return descriptor

    def _program(self, name: str) -> int:
        found = self._library.bpf_object__find_program_by_name(self._object, name.encode())
        assert found, name
        descriptor: int = self._library.bpf_program__fd(found)
        return descriptor

    def attach_xdp(self, name: str, interface: int, mode: str | None = None) -> None:
        """Attach to an interface by a link; ``mode`` is native, generic, or None for either."""
        flags = 0 if mode is None else _MODES[mode]
        options = _LinkOptions(ctypes.sizeof(_LinkOptions), flags=flags)
        link = self._library.bpf_link_create(self._program(name), interface, _XDP, ctypes.byref(options))
        if link < 0:
            raise PlanError(
                f"eBPF: XDP: expected the kernel to attach to interface {interface}, got"
                f" {os.strerror(ctypes.get_errno())!r}; another XDP program may be there, see 'ip link'"
            )
        self._links.append(link)

    def attach_tc(self, name: str, interface: int) -> None:
        """Attach to what enters an interface."""
        hook = _TcHook(ctypes.sizeof(_TcHook), interface=interface, attach_point=_INGRESS)
        self._library.bpf_tc_hook_create(ctypes.byref(hook))  # it may be there already
        options = _TcOptions(
            ctypes.sizeof(_TcOptions),
            program=self._program(name),
            flags=_TC_REPLACE,
            handle=_TC_HANDLE,
            priority=_TC_PRIORITY,
        )
        code = self._library.bpf_tc_attach(ctypes.byref(hook), ctypes.byref(options))
        if code != 0:
            raise PlanError(
                f"eBPF: tc: expected the kernel to attach to interface {interface}, got"
                f" {os.strerror(-code)!r}; load it with 'modprobe -a sch_ingress cls_bpf'"
            )
        self._hooks.append(hook)

    def update(self, name: str, key: bytes, value: bytes) -> None:
        """Write one value of a map."""
        if self._library.bpf_map_update_elem(self.map(name), key, value, 0) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def delete(self, name: str, key: bytes) -> None:
        """Remove one value of a hash map; one that is not there is no error."""
        self._library.bpf_map_delete_elem(self.map(name), key)

    def read(self, name: str, key: bytes, size: int) -> bytes:
        """Read one value of a map."""
        value = ctypes.create_string_buffer(size)
        if self._library.bpf_map_lookup_elem(self.map(name), key, value) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return value.raw


def _quiet(libbpf: ctypes.CDLL, said: list[bytes]) -> object:
    """Keep libbpf from writing to standard error; the last words of a refusal go into the error."""
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    format_text = ctypes.CDLL(None).vsnprintf

    def note(level: int, pattern: bytes, arguments: int) -> int:
        if level == _LOG_LEVEL_WARN:
            line = ctypes.create_string_buffer(4096)
            format_text(line, ctypes.c_size_t(len(line)), pattern, ctypes.c_void_p(arguments))
            said.append(line.value)
        return 0

    callback = kind(note)
    libbpf.libbpf_set_print(ctypes.cast(callback, ctypes.c_void_p))
    return callback
