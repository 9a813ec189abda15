"""Packing integers of few bits: weights of 4 bits take 4 bits of a file.

`tvm.ir.save_json` writes a tensor as the text of its bytes, so that every weight takes at least 8
bits. Tensors of 8-bit integers whose values need fewer are taken out and put into one member of the
archive, bit after bit; what stays is a note of where they went:

    {"type": "ffi.Tensor", "data": "packed:BITS:FIRST BYTE:VALUES:HEADER"}

with the header of the tensor (dtype, shape) as TVM writes it.
"""

from __future__ import annotations

import base64
import re
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.errors import ArtifactError

Array = npt.NDArray[Any]

CONTAINER_BITS = 8
#: Of TVM's tensor format: magic number, reserved, device type and id, ndim, (code, bits, lanes).
HEADER = struct.Struct("<QQiiiBBH")
INT8 = (0, 8, 1)
#: Tensors of fewer values stay as they are.
SMALLEST = 64

_BASE64 = r"([A-Za-z0-9+/=\\]*)"
_TENSOR = re.compile(rf'("type":"ffi\.Tensor","data":"){_BASE64}(")')
_PACKED = re.compile(rf'("type":"ffi\.Tensor","data":")packed:(\d+):(\d+):(\d+):{_BASE64}(")')


def pack_tensors(text: str) -> tuple[str, bytes]:
    """Take the few-bit tensors out of a module's JSON.

    Returns:
        (the text with notes in their place, their bits).
    """
    packed = bytearray()

    def take(match: re.Match[str]) -> str:
        blob = _decoded(match[2])
        start = _start_of_codes(blob)
        if start is None:
            return match[0]
        codes = np.frombuffer(blob, np.int8, offset=start)
        bits = bits_needed(codes)
        if bits == CONTAINER_BITS or codes.size < SMALLEST:
            return match[0]
        header = _encoded(blob[:start])
        note = f"packed:{bits}:{len(packed)}:{codes.size}:{header}"
        packed.extend(pack_codes(codes, bits))
        return f"{match[1]}{note}{match[3]}"

    return _TENSOR.sub(take, text), bytes(packed)


def unpack_tensors(text: str, packed: bytes) -> str:
    """Inverse of `pack_tensors`.

    Raises:
        ArtifactError: bits are missing.
    """

    def put_back(match: re.Match[str]) -> str:
        bits, first, count = (int(number) for number in match.group(2, 3, 4))
        stop = first + -(-count * bits // CONTAINER_BITS)
        if stop > len(packed):
            raise ArtifactError(
                f"packed weights end at byte {len(packed)}, expected {stop} or more"
            )
        codes = unpack_codes(packed[first:stop], bits, count)
        text = _encoded(_decoded(match[5]) + codes.tobytes())
        return f"{match[1]}{text}{match[6]}"

    return _PACKED.sub(put_back, text)


def bits_needed(codes: Array) -> int:
    """Fewest bits in which two's complement holds all codes.

    >>> [bits_needed(np.int8(codes)) for codes in ([-1, 1], [-2, 1], [-7, 7], [-8, 8])]
    [2, 2, 4, 5]
    """
    low, high = int(codes.min(initial=0)), int(codes.max(initial=0))
    return max((-low - 1).bit_length() if low < 0 else 0, high.bit_length()) + 1


def pack_codes(codes: Array, bits: int) -> bytes:
    """Codes one after the other, the highest bit first; the last byte is filled up with zeros.

    Args:
        codes: int8, (N,), that need `bits` bits at most.
        bits: 1 to 8.

    >>> pack_codes(np.int8([1, -1, 0, -7]), 4).hex()
    '1f09'
    """
    spread = np.unpackbits(codes.astype(np.int8).view(np.uint8)[:, None], axis=1)
    return np.packbits(spread[:, CONTAINER_BITS - bits :]).tobytes()


def unpack_codes(packed: bytes, bits: int, count: int) -> Array:
    """Inverse of `pack_codes`: int8, (count,).

    >>> unpack_codes(bytes.fromhex("1f09"), 4, 4).tolist()
    [1, -1, 0, -7]
    """
    spread = np.unpackbits(np.frombuffer(packed, np.uint8), count=count * bits)
    filled = np.zeros((count, CONTAINER_BITS), np.uint8)
    filled[:, :bits] = spread.reshape(count, bits)
    shifted = np.packbits(filled, axis=1).reshape(-1).view(np.int8)
    return shifted >> (CONTAINER_BITS - bits)


def _encoded(blob: bytes) -> str:
    """As TVM spells bytes in JSON."""
    return base64.b64encode(blob).decode().replace("/", "\\/")


def _decoded(text: str) -> bytes:
    return base64.b64decode(text.replace("\\", ""))


def _start_of_codes(blob: bytes) -> int | None:
    """Where the values begin in a tensor of int8; None for other tensors."""
    if len(blob) < HEADER.size:
        return None
    *_, ndim, code, bits, lanes = HEADER.unpack_from(blob)
    start = HEADER.size + 8 * ndim + 8  # after the shape and the number of bytes
    return start if (code, bits, lanes) == INT8 and len(blob) >= start else None
