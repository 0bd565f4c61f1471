"""A program under a tracer of our own: its calls that change files below a folder, counted, recorded, refused, or its death.

strace counts calls per thread and knows only exact paths, so it cannot say "the 57th write below this folder". This one can:
a seccomp filter stops the program at the calls of `CALLS` and nowhere else, before they happen. Linux on x86_64 only.

python tests/syscalls.py <request.json>        the request is what `trace` writes; the answer lies beside it
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["AVAILABLE", "Call", "Fault", "Traced", "trace"]

AVAILABLE = sys.platform == "linux" and platform.machine() == "x86_64"

CALLS = {
    1: "write",
    18: "pwrite64",
    20: "writev",
    40: "sendfile",
    74: "fsync",
    75: "fdatasync",
    76: "truncate",
    77: "ftruncate",
    82: "rename",
    83: "mkdir",
    84: "rmdir",
    85: "creat",
    86: "link",
    87: "unlink",
    257: "openat",
    258: "mkdirat",
    263: "unlinkat",
    264: "renameat",
    285: "fallocate",
    296: "pwritev",
    316: "renameat2",
    326: "copy_file_range",
}
"""Numbers of x86_64 (Linux, arch/x86/entry/syscalls/syscall_64.tbl). An openat counts only where it creates or empties."""

_ON_A_FILE = frozenset({"write", "pwrite64", "writev", "fsync", "fdatasync", "ftruncate", "fallocate", "pwritev"})
_AT = frozenset({"openat", "mkdirat", "unlinkat", "renameat", "renameat2"})
_TWO_PATHS = frozenset({"rename", "link", "renameat", "renameat2"})
_CONTENT = frozenset({"write", "pwrite64"})


@dataclass(frozen=True, slots=True)
class Call:
    """A call that changes something below the folder; paths are relative to it."""

    name: str
    path: str
    to: str = ""
    """The new name, of a rename or link."""
    offset: int = 0
    """Where a write begins; the new length, of a truncation."""
    data: bytes = b""
    """What is written, where content is recorded."""
    empties: bool = False
    """Whether an openat takes away what the file held."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What befalls the ``at``-th call (counted from 1): death of the program, or an error instead of the call.

    ``names`` restricts the count to some calls; ``lasting`` refuses all that follow, too.
    """

    at: int
    error: int | None = None
    lasting: bool = False
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Traced:
    """How a traced program ended: its exit code (negative for a signal), what it printed, and its calls in order."""

    code: int
    stdout: str
    stderr: str
    calls: tuple[Call, ...] = field(repr=False)
    hit: Call | None = None
    """The call that the fault befell first."""


def trace(
    command: Sequence[str],
    root: Path,
    scratch: Path,
    *,
    environment: Mapping[str, str] | None = None,
    without: Sequence[str] = (),
    fault: Fault | None = None,
    content: bool = False,
) -> Traced:
    """Run a command in ``root`` and watch its calls there, folders ``without`` left out. ``scratch`` lies elsewhere."""
    request, answer = scratch / "request.json", scratch / "answer.json"
    out, err = scratch / "stdout", scratch / "stderr"
    asked = {
        "command": list(command),
        "root": str(root.resolve()),
        "without": [str((root / name).resolve()) for name in without],
        "fault": None if fault is None else asdict(fault),
        "content": content,
        "answer": str(answer),
        "stdout": str(out),
        "stderr": str(err),
    }
    request.write_text(json.dumps(asked))
    # A process of its own: a tracer waits for every child that it has, and a test runner has others.
    done = subprocess.run(
        [sys.executable, __file__, str(request)],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the tracer failed: {done.stderr}")
    told = json.loads(answer.read_text())
    calls = tuple(_call(entry) for entry in told["calls"])
    hit = None if told["hit"] is None else calls[told["hit"]]
    return Traced(told["code"], out.read_text(errors="replace"), err.read_text(errors="replace"), calls, hit)


def _call(entry: dict[str, Any]) -> Call:
    return Call(**{**entry, "data": base64.b64decode(entry["data"])})


# --- the tracer's own process. Numbers from linux/ptrace.h, linux/seccomp.h, linux/filter.h

_TRACEME, _CONT, _GETREGS, _SETREGS, _SETOPTIONS = 0, 7, 12, 13, 0x4200
_OPTIONS = 0x02 | 0x04 | 0x08 | 0x10 | 0x80 | 0x100000  # fork, vfork, clone, exec, seccomp; die with the tracer
_EVENT_SECCOMP = 7
_WALL = 0x40000000
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _TRACE = 0x7FFF0000, 0x7FF00000

_REGISTERS = [
    "r15",
    "r14",
    "r13",
    "r12",
    "rbp",
    "rbx",
    "r11",
    "r10",
    "r9",
    "r8",
    "rax",
    "rcx",
    "rdx",
    "rsi",
    "rdi",
    "orig_rax",
    "rip",
    "cs",
    "eflags",
    "rsp",
    "ss",
    "fs_base",
    "gs_base",
    "ds",
    "es",
    "fs",
    "gs",
]


class _Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in _REGISTERS]


class _Instruction(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_ushort),
        ("if_true", ctypes.c_ubyte),
        ("if_false", ctypes.c_ubyte),
        ("operand", ctypes.c_uint),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction))]


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request: int, pid: int, data: int = 0) -> None:
    if _libc.ptrace(request, pid, None, data) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _install_filter() -> None:
    numbers = list(CALLS)
    code = [_Instruction(_LOAD, 0, 0, 0)]
    code += [
        _Instruction(_EQUAL, len(numbers) - place, 0, number)  # jumps to the last instruction
        for place, number in enumerate(numbers)
    ]
    code += [_Instruction(_RETURN, 0, 0, _ALLOW), _Instruction(_RETURN, 0, 0, _TRACE)]
    program = _Program(len(code), (_Instruction * len(code))(*code))
    if _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0 or _libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program)):
        raise OSError(ctypes.get_errno(), "no seccomp filter")


class _Tracer:
    """One program, from its start to its end."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self._asked = asked
        self._root = asked["root"]
        self._without = tuple(asked["without"])
        fault = asked["fault"]
        self._fault = None if fault is None else Fault(**{**fault, "names": tuple(fault["names"])})
        self._calls: list[Call] = []
        self._counted = 0
        self._hit: int | None = None
        self._pid = 0

    def run(self) -> dict[str, Any]:
        self._pid = os.fork()
        if self._pid == 0:
            self._become()
        code = self._follow()
        calls = [{**asdict(call), "data": base64.b64encode(call.data).decode()} for call in self._calls]
        return {"code": code, "calls": calls, "hit": self._hit}

    def _become(self) -> None:
        try:
            for stream, descriptor in (("stdout", 1), ("stderr", 2)):
                os.dup2(os.open(self._asked[stream], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
            os.chdir(self._root)
            _ptrace(_TRACEME, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            _install_filter()
            command = list(self._asked["command"])
            os.execv(command[0], command)
        finally:
            os._exit(127)

    def _follow(self) -> int:
        os.waitpid(self._pid, 0)
        _ptrace(_SETOPTIONS, self._pid, _OPTIONS)
        _ptrace(_CONT, self._pid)
        known = {self._pid}
        while True:
            tid, status = os.waitpid(-1, _WALL)
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                if tid == self._pid:
                    return os.waitstatus_to_exitcode(status)
                continue
            event, delivered = status >> 16, 0
            if event == _EVENT_SECCOMP:
                self._stopped_at_call(tid)
            elif event == 0 and (tid in known or os.WSTOPSIG(status) != signal.SIGSTOP):
                delivered = os.WSTOPSIG(status)  # a signal of the program's own; a new thread begins with a stop
            known.add(tid)
            try:
                _ptrace(_CONT, tid, delivered)
            except ProcessLookupError:
                continue  # killed meanwhile

    def _stopped_at_call(self, tid: int) -> None:
        registers = _Registers()
        try:
            _ptrace(_GETREGS, tid, ctypes.addressof(registers))
            call = self._understand(tid, registers)
        except (ProcessLookupError, FileNotFoundError):
            return  # the thread is gone
        if call is None:
            return
        self._calls.append(call)
        fault = self._fault
        if fault is None or (fault.names and call.name not in fault.names):
            return
        self._counted += 1
        if self._counted < fault.at or (self._counted > fault.at and not fault.lasting):
            return
        if self._hit is None:
            self._hit = len(self._calls) - 1
        if fault.error is None:
            os.kill(self._pid, signal.SIGKILL)
            return
        registers.orig_rax = ctypes.c_ulonglong(-1).value  # no such call: it is left out, and rax is its answer
        registers.rax = ctypes.c_ulonglong(-fault.error).value
        _ptrace(_SETREGS, tid, ctypes.addressof(registers))

    def _understand(self, tid: int, registers: _Registers) -> Call | None:
        name = CALLS[registers.orig_rax]
        arguments = [registers.rdi, registers.rsi, registers.rdx, registers.r10]
        if name in {"sendfile", "copy_file_range"}:
            target = arguments[0] if name == "sendfile" else arguments[2]
            path = self._below(_opened(tid, target))
        elif name in _ON_A_FILE:
            path = self._below(_opened(tid, arguments[0]))
        else:
            return self._on_a_name(tid, name, arguments)
        if path is None:
            return None
        if name == "ftruncate":
            return Call(name, path, offset=arguments[1])
        if name not in _CONTENT:
            return Call(name, path)
        data = self._memory(tid, arguments[1], arguments[2]) if self._asked["content"] else b""
        return Call(name, path, offset=arguments[3] if name == "pwrite64" else _position(tid, arguments[0]), data=data)

    def _on_a_name(self, tid: int, name: str, arguments: list[int]) -> Call | None:
        given = arguments[1:] if name in _AT else arguments
        path = self._below(self._path(tid, arguments[0] if name in _AT else None, given[0]))
        if path is None:
            return None
        if name == "openat":
            flags = given[1]
            if not flags & (os.O_CREAT | os.O_TRUNC):
                return None
            fresh = not Path(self._root, path).exists()
            return Call(name, path, empties=bool(flags & os.O_TRUNC)) if fresh or flags & os.O_TRUNC else None
        if name not in _TWO_PATHS:
            return Call(name, path, offset=given[1] if name == "truncate" else 0)
        to = self._path(tid, arguments[2] if name in _AT else None, arguments[3] if name in _AT else arguments[1])
        return Call(name, path, self._below(to) or to)

    def _below(self, path: str) -> str | None:
        """Relative to the root (which is ``.``), None outside it."""
        if path == self._root:
            return "."
        inside = path.startswith(self._root + "/")
        left_out = any(path == folder or path.startswith(folder + "/") for folder in self._without)
        return path[len(self._root) + 1 :] if inside and not left_out else None

    def _path(self, tid: int, directory: int | None, address: int) -> str:
        text = os.fsdecode(self._text(tid, address))
        number = None if directory is None else ctypes.c_int(directory & 0xFFFFFFFF).value
        start = Path(f"/proc/{tid}/cwd" if number in {None, -100} else f"/proc/{tid}/fd/{number}")  # -100: AT_FDCWD
        return os.path.normpath(start.readlink() / text)

    def _text(self, tid: int, address: int) -> bytes:
        found = b""
        while b"\0" not in found:
            # To the end of the page: the next one may not be mapped.
            found += self._memory(tid, address + len(found), 4096 - (address + len(found)) % 4096)
        return found.partition(b"\0")[0]

    @staticmethod
    def _memory(tid: int, address: int, size: int) -> bytes:
        with Path(f"/proc/{tid}/mem").open("rb", buffering=0) as memory:
            return os.pread(memory.fileno(), size, address)


def _opened(tid: int, descriptor: int) -> str:
    return str(Path(f"/proc/{tid}/fd/{descriptor}").readlink())


def _position(tid: int, descriptor: int) -> int:
    """Where a ``write`` will begin: the end of the file where it was opened for appending."""
    told = dict(line.split(":", 1) for line in Path(f"/proc/{tid}/fdinfo/{descriptor}").read_text().splitlines())
    if int(told["flags"], 8) & os.O_APPEND:
        return Path(f"/proc/{tid}/fd/{descriptor}").stat().st_size
    return int(told["pos"])


def _main(request: Path) -> int:
    asked = json.loads(request.read_text())
    told = _Tracer(asked).run()
    Path(asked["answer"]).write_text(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1])))
