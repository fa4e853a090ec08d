"""HDF5 files that follow each other on a pipe: where each ends, by its superblock and the inventory behind it."""

from __future__ import annotations

import struct
from typing import BinaryIO, Iterator, Optional, Tuple

from .errors import InputError

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_INVENTORY = b"\x8bSPX\r\n\x1a\n"
_HEAD = 48  # bytes of a superblock up to its end-of-file address, and of the head of an inventory
_PIECE = 1 << 24


def _read(stream: BinaryIO, n: int) -> bytes:
    """Exactly n bytes, or less at the end of the stream; memory grows with what arrives."""
    parts = []
    while n > 0:
        part = stream.read(min(n, _PIECE))
        if not part:
            break
        parts.append(part)
        n -= len(part)
    return b"".join(parts)


def image_length(head: bytes) -> int:
    """Length of the HDF5 file that begins with these 48 bytes, without an inventory; 0: it is none."""
    if len(head) < _HEAD or head[:8] != SIGNATURE:
        return 0
    if head[8] == 0 and head[13] == 8:
        return int(struct.unpack("<Q", head[40:48])[0])
    if head[8] in (2, 3) and head[9] == 8:
        return int(struct.unpack("<Q", head[28:36])[0])
    return 0


def inventory_length(head: bytes) -> int:
    """Length of the inventory of checksums that begins with these 48 bytes; 0: it is none."""
    return int(struct.unpack("<Q", head[16:24])[0]) if len(head) == _HEAD and head[:8] == _INVENTORY else 0


def _peek(stream: BinaryIO) -> Optional[bytes]:
    """Next byte, which stays in the stream; empty at its end; None where the stream cannot tell."""
    if hasattr(stream, "peek"):
        return bytes(stream.peek(1)[:1])
    if stream.seekable():
        byte = stream.read(1)
        stream.seek(-len(byte), 1)
        return byte
    return None


def _next(stream: BinaryIO, head: bytes) -> Tuple[Optional[bytes], bytes]:
    """One HDF5 file with its inventory, and the bytes behind it that had to be read; None at the end of the stream."""
    head += _read(stream, _HEAD - len(head))
    if not head:
        return None, b""
    length = image_length(head)
    if length < _HEAD:
        kind = "a FITS file: use fits2h5" if head[:9] == b"SIMPLE  =" else "no HDF5 file"
        raise InputError(f"the stream holds {kind}")
    image = head + _read(stream, length - _HEAD)
    if len(image) < length:
        raise InputError(f"the stream is truncated ({len(image)} of {length} bytes)")
    behind = _peek(stream)
    if behind is None:  # the byte is taken
        behind = _read(stream, 1)
        if behind != _INVENTORY[:1]:
            return image, behind
    elif behind != _INVENTORY[:1]:
        return image, b""
    else:
        behind = b""
    behind += _read(stream, _HEAD - len(behind))
    more = inventory_length(behind)
    if not _HEAD <= more <= length + (1 << 16):
        raise InputError("the stream is damaged: what follows the HDF5 file belongs to no other one")
    inventory = behind + _read(stream, more - _HEAD)
    if len(inventory) < more:
        raise InputError(f"the stream is truncated ({length + len(inventory)} of {length + more} bytes)")
    return image + inventory, b""


def images(stream: BinaryIO, head: bytes = b"") -> Iterator[bytes]:
    """HDF5 files of a stream, one after the other, each read when it is asked for.

    Parameters
    ----------
    stream : binary stream
    head : bytes
        At most 48 bytes that were read before.

    Raises
    ------
    InputError
        The stream is empty, breaks off, or holds something else.
    """
    image, behind = _next(stream, head)
    if image is None:
        raise InputError("the stream is empty: the program that writes it failed")
    while image is not None:
        yield image
        image, behind = _next(stream, behind)
