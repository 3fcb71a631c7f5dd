"""Digests name content: whatever the order, on every machine; and no path leads out of its directory."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from artifacts.digest import canonical_json, digest_json
from artifacts.manifest import FileEntry, Manifest, scan
from artifacts.release import parse_reference
from recipes.errors import BadRequest, StoreError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.text("abcdefghij", min_size=1, max_size=6)


@given(st.dictionaries(st.text(), JSON, max_size=6), st.randoms())
def test_key_order_does_not_matter(value: dict[str, object], rng: random.Random) -> None:
    items = list(value.items())
    rng.shuffle(items)
    assert digest_json(dict(items)) == digest_json(value)


@given(JSON, JSON)
def test_other_values_have_other_json(one: object, other: object) -> None:
    assert (canonical_json(one) == canonical_json(other)) == (repr(one) == repr(other) or one == other) or one == other


@settings(max_examples=30)
@given(st.dictionaries(NAMES, st.binary(max_size=64), min_size=1, max_size=6))
def test_a_digest_is_of_names_and_bytes(files: dict[str, bytes]) -> None:
    def written(order: list[str]) -> Manifest:
        with TemporaryDirectory() as name:
            for file in order:
                (Path(name) / file).write_bytes(files[file])
            return scan(Path(name))

    manifest = written(sorted(files))
    assert manifest == written(sorted(files, reverse=True))
    first = next(iter(files))
    files[first] += b"x"
    assert written(sorted(files)).digest != manifest.digest


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../b", "a//b", "", "./a", "a\\b", "a\0"])
def test_paths_stay_inside(path: str) -> None:
    with pytest.raises(ValidationError, match="plain relative path"):
        FileEntry(path=path, size=0, sha256="0" * 64)


def test_names_that_differ_by_case_only_are_refused() -> None:
    entries = tuple(FileEntry(path=path, size=0, sha256="0" * 64) for path in ("README", "readme"))
    with pytest.raises(ValidationError, match="case only"):
        Manifest(files=entries)


def test_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(StoreError, match="link"):
        scan(tmp_path)


def test_references() -> None:
    assert parse_reference("m/v/0123456789abcdef") == ("m", "v", "0123456789abcdef")
    assert parse_reference("v/0123") == (None, "v", "0123")
    assert parse_reference("0123abcd") == (None, None, "0123abcd")
    for wrong in ("", "012", "xyz", "a/b/c/0123", "m/v/"):
        with pytest.raises(BadRequest):
            parse_reference(wrong)
