"""Golden files: texts that a person has read once, and that may not change unseen."""

import difflib
from pathlib import Path


def check_golden(path: Path, text: str, *, update: bool) -> None:
    """`text` is what the file holds; or becomes it, if `update`.

    Raises:
        AssertionError: the file is missing, or holds another text: the message shows the lines.
    """
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    assert path.is_file(), f"{path} is missing; run pytest --update-golden, and read the new file"
    expected = path.read_text(encoding="utf-8")
    assert text == expected, (
        f"differs from {path}; if the new text is right: pytest --update-golden\n"
        + _difference(expected, text)
    )


def _difference(expected: str, text: str) -> str:
    lines = difflib.unified_diff(
        expected.splitlines(), text.splitlines(), "golden", "now", lineterm=""
    )
    return "\n".join(lines)
