import re

import pytest

from golden_files import check_golden

OLD = "conv:0 8ANu\nconv:1 8SCsn\nadd:0 8ANu\n"
NEW = "conv:0 8ANu\nconv:1 4SCsn\nadd:0 8ANu\n"


def test_an_equal_text_passes(tmp_path):
    (tmp_path / "a.txt").write_text(OLD)
    check_golden(tmp_path / "a.txt", OLD, update=False)


def test_a_difference_is_shown_line_by_line_and_the_file_is_kept(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(OLD)
    message = (
        f"differs from {path}; if the new text is right: pytest --update-golden\n"
        "--- golden\n+++ now\n@@ -1,3 +1,3 @@\n"
        " conv:0 8ANu\n-conv:1 8SCsn\n+conv:1 4SCsn\n add:0 8ANu"
    )
    with pytest.raises(AssertionError, match=re.escape(message)):
        check_golden(path, NEW, update=False)
    assert path.read_text() == OLD


def test_a_missing_file_fails_and_is_not_written(tmp_path):
    with pytest.raises(AssertionError, match=r"a\.txt is missing; run pytest --update-golden"):
        check_golden(tmp_path / "a.txt", OLD, update=False)
    assert list(tmp_path.iterdir()) == []


def test_an_update_writes_the_text(tmp_path):
    path = tmp_path / "golden" / "a.txt"
    for text in (OLD, NEW):
        check_golden(path, text, update=True)
        assert path.read_text() == text
        check_golden(path, text, update=False)
