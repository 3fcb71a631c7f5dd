"""Options of trtllm-build: what passes the check is what the release's parser takes."""

from __future__ import annotations

import contextlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.trtllm.import_command import import_command
from builders.trtllm.options import (
    OptionValue,
    Table,
    command_line,
    problems_with_options,
    table_for,
    tables,
)
from recipes.errors import BadRequest
from tests.builders.trtllm.parser import parser_of

SINCE_0_9 = [table for version, table in tables().items() if version >= (0, 9)]
TUTORIAL = (
    "trtllm-build --checkpoint_dir ./ckpt --output_dir ./engine --max_batch_size 32 --max_input_len 2048 "
    "--max_output_len 1024 --gemm_plugin float16"
)


def accepted(table: Table, arguments: list[str]) -> bool:
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            parser_of(table).parse_args(arguments)
        except SystemExit:
            return False
    return True


@st.composite
def requests(draw: st.DrawFn) -> tuple[Table, dict[str, OptionValue]]:
    """A release and options drawn from all releases, with fitting and unfitting values."""
    table = draw(st.sampled_from(SINCE_0_9))
    every = sorted({name for other in tables().values() for name in other.options})
    names = draw(st.lists(st.sampled_from(every) | st.sampled_from(sorted(table.options)), max_size=6, unique=True))
    options: dict[str, OptionValue] = {}
    for name in names:
        choices = [choice for other in tables().values() if (o := other.find(name)) for choice in o.choices]
        values = st.integers(1, 9999) | st.booleans() | st.sampled_from(choices or ["some text"])
        options[name] = draw(values)
    return table, options


@given(requests())
def test_what_passes_the_check_the_parser_takes(request: tuple[Table, dict[str, OptionValue]]) -> None:
    table, options = request
    if not list(problems_with_options(options, table.release, "engine.options")):
        assert accepted(table, command_line(options)), command_line(options)


@given(requests())
def test_an_option_the_release_lacks_is_found(request: tuple[Table, dict[str, OptionValue]]) -> None:
    table, options = request
    found = {problem.where.rpartition(".")[2] for problem in problems_with_options(options, table.release, "o")}
    assert {name for name in options if table.find(name) is None} <= found


@pytest.mark.parametrize(
    ("options", "version", "says"),
    [
        ({"max_output_len": 1024}, "1.2.1", "removed in TensorRT-LLM 0.12.0"),
        ({"max_output_len": 1024}, "1.2.1", "max_seq_len, which is input and output together"),
        ({"paged_kv_cache": "enable"}, "1.2.1", ""),
        ({"tp_size": 2}, "0.13.0", "when the checkpoint was converted"),
        ({"kv_cache_type": "paged"}, "0.12.0", "came with TensorRT-LLM 0.13.0"),
        ({"kv_cache_type": "pagd"}, "1.2.1", "continuous, paged, disabled"),
        ({"max_batch_siz": 8}, "1.2.1", "Did you mean 'max_batch_size'?"),
        ({"max_batch_size": "8"}, "1.2.1", "a whole number"),
        ({"gemm_plugin": "float17"}, "1.2.1", "nvfp4"),
        ({"fast_build": "yes"}, "1.2.1", "true or false"),
    ],
)
def test_refusals(options: dict[str, OptionValue], version: str, says: str) -> None:
    found = " ".join(map(str, problems_with_options(options, version, "variants.x.engine")))
    assert says in found
    assert bool(found) is bool(says)


def test_versions() -> None:
    assert table_for("1.2.1").release == "1.2.0"
    assert table_for("0.20.0").release == "0.17.0"
    for wrong, says in (("2.0.0", "runtime: checkpoint"), ("0.5.0", "0.8.0 or newer"), ("latest", "such as 1.2.1")):
        with pytest.raises(BadRequest, match=says):
            table_for(wrong)


def test_the_tutorial_s_command() -> None:
    imported = import_command(TUTORIAL, "1.2.1")
    assert imported.options == {
        "max_batch_size": 32,
        "max_input_len": 2048,
        "max_seq_len": 3072,
        "gemm_plugin": "float16",
    }
    assert "max_seq_len 3072" in " ".join(imported.notes)
    assert not list(problems_with_options(imported.options, "1.2.1", "o"))
    assert accepted(table_for("1.2.1"), command_line(imported.options))
    assert not accepted(table_for("1.2.1"), TUTORIAL.split()[1:])


def test_what_is_no_command() -> None:
    for command, says in (
        ("ls -l", "starts with trtllm-build"),
        ("trtllm-build --wrkers 2", "workers"),
        ("trtllm-build x", "before any value"),
    ):
        with pytest.raises(BadRequest, match=says):
            import_command(command, "1.2.1")
