"""Writing a file at once or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tvm_quant.errors import ArtifactError


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary stream whose content replaces `path` when the block ends without an error.

    Until then the content lies in a temporary file in the same folder; after an error or an
    interrupt that file is gone and `path` is as it was.

    Raises:
        ArtifactError: the folder is missing or not writable, the disk is full.
    """
    path = Path(path)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise ArtifactError(_message(path, error)) from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise ArtifactError(_message(path, error)) from error
    finally:
        temporary.unlink(missing_ok=True)


def _message(path: Path, error: OSError) -> str:
    if not path.parent.is_dir():
        return f"cannot write {path}: there is no folder {path.parent}"
    return f"cannot write {path}: {error.strerror or error}"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
