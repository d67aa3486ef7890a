"""Which GPU architectures a shared library holds kernels for, read from the fat binaries inside it.

A fat binary is a header and a chain of entries, each machine code (a cubin) or PTX for one architecture. Only headers are read,
so that a library of a gigabyte takes a moment. `cuobjdump --list-elf --list-ptx` lists the same; a test compares the two.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAGIC = 0xBA55ED50
CONTAINER = struct.Struct("<IHHQ")
"""Magic, version, bytes of this header, bytes of all entries."""
ENTRY = struct.Struct("<HHIQIIHHI")
"""Kind, version, bytes of this header, bytes of the payload, compressed bytes, options, minor and major version, architecture."""
PTX, CUBIN = 1, 2
SECTION = ".nv_fatbin"
"""What is loaded when the library runs; relocatable code, in `__nv_relfatbin`, is only a linker's input."""


@dataclass(frozen=True, slots=True)
class Architectures:
    """What a library holds, as numbers: 70 is sm_70."""

    machine_code: frozenset[int]
    ptx: frozenset[int]

    def __or__(self, other: Architectures) -> Architectures:
        return Architectures(self.machine_code | other.machine_code, self.ptx | other.ptx)

    def __bool__(self) -> bool:
        return bool(self.machine_code or self.ptx)

    def __str__(self) -> str:
        code = " ".join(f"sm_{number}" for number in sorted(self.machine_code))
        ptx = " ".join(f"compute_{number}" for number in sorted(self.ptx))
        return "; ".join(part for part in (code, ptx and f"PTX {ptx}") if part) or "no GPU code"

    def run_on(self, number: int) -> bool:
        """Does it hold machine code for a GPU of this architecture: of the same major version, and no later minor one."""
        return any(code // 10 == number // 10 and code <= number for code in self.machine_code)


NONE = Architectures(frozenset(), frozenset())


def read(library: Path) -> Architectures:
    """The architectures in a shared library (ELF, 64 bits); none when it holds no GPU code.

    Raises:
        ValueError: the file is no such library, or its fat binaries are not as this module knows them.
    """
    with library.open("rb") as stream:
        if stream.read(5) != b"\x7fELF\x02":
            raise ValueError(f"{library} is no ELF library of 64 bits")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                found = [entry for begin, size in _sections(data) for entry in _entries(data, begin, begin + size)]
            except (ValueError, struct.error, IndexError) as error:
                raise ValueError(f"{library}: {error}") from error
    code = frozenset(number for kind, number in found if kind == CUBIN)
    return Architectures(code, frozenset(number for kind, number in found if kind == PTX))


def _sections(data: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Place and size of the sections that hold the fat binaries."""
    (table,) = struct.unpack_from("<Q", data, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", data, table + index * entry_size) for index in range(count)]
    if not headers:
        return
    names_begin = headers[names_index][4]
    for name_offset, _, _, _, begin, size in headers:
        end = data.find(b"\0", names_begin + name_offset)
        if data[names_begin + name_offset : end].decode() == SECTION:
            yield begin, size


def _entries(data: mmap.mmap, position: int, end: int) -> Iterator[tuple[int, int]]:
    """Kind and architecture of each entry of the fat binaries between two places."""
    while position + CONTAINER.size <= end:
        magic, _, header_bytes, content_bytes = CONTAINER.unpack_from(data, position)
        if magic != MAGIC:  # padding up to the next multiple of 8
            position += 8
            continue
        entry = position + header_bytes
        position = entry + content_bytes
        if position > end:
            raise ValueError("a fat binary reaches beyond its section")
        while entry < position:
            kind, _, entry_bytes, payload_bytes, _, _, _, _, number = ENTRY.unpack_from(data, entry)
            if not entry_bytes:
                raise ValueError("an entry of a fat binary has no length")
            yield kind, number
            entry += entry_bytes + payload_bytes
