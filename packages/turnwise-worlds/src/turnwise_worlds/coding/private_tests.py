"""Decodes the hidden tests of LiveCodeBench, which are published as a text in a pickle, compressed and in base64.

Nothing is unpickled: the operations of the pickle are listed, and only those that write one text are accepted.
"""

from __future__ import annotations

import base64
import binascii
import pickletools
import zlib

from turnwise.core.errors import DataError

MAX_BYTES = 1 << 30
"""Longest accepted text in bytes, so that a few compressed bytes cannot fill the memory."""
_FRAMES = ("PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP")
_TEXTS = ("UNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINUNICODE")


def decode_private_tests(text: str) -> str:
    """Return the JSON text inside. Raises DataError for anything else, and executes nothing."""
    try:
        inflate = zlib.decompressobj()
        content = inflate.decompress(base64.b64decode(text, validate=True), MAX_BYTES)
    except (ValueError, binascii.Error, zlib.error) as cause:
        raise DataError(
            f'"private_test_cases" is neither JSON nor compressed text in base64 ({cause}); fetch the row again'
        ) from None
    if inflate.unconsumed_tail:
        raise DataError(f'"private_test_cases" is longer than {MAX_BYTES >> 20} MiB; leave the row out')
    return _read_pickled_text(content)


def _read_pickled_text(content: bytes) -> str:
    texts = []
    try:
        for operation, argument, _ in pickletools.genops(content):
            if operation.name in _TEXTS:
                texts.append(argument)
            elif operation.name not in _FRAMES:
                raise DataError(
                    f'"private_test_cases" is a pickle that contains more than text (it has {operation.name}) and may '
                    "run code; provide the tests as JSON text"
                )
    except (ValueError, IndexError, UnicodeError) as cause:
        raise DataError(f'"private_test_cases" is an incomplete pickle ({cause}); fetch the row again') from None
    if len(texts) != 1:
        raise DataError(
            f'"private_test_cases" is a pickle of {len(texts)} texts; expected one text with the tests as JSON'
        )
    return str(texts[0])
