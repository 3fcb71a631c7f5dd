"""What trtllm-build is called with: every command line the planner makes is one that the release's parser takes."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.trtllm.options import command_line, parse_version, table_for
from builders.trtllm.routes import choose_route
from builders.trtllm.settings import engine_settings, plugin_names, timing_cache_options
from recipes.engine import EngineBuild
from recipes.loading import load_recipe
from recipes.models import Recipe
from recipes.targets import TargetCard, load_card
from recipes.variants import AsIs, Awq, Fp8Static, Int8, Int8WeightOnly
from tests.builders.trtllm.parser import parser_of
from tests.builders.trtllm.shapes import facts

QWEN = Path(__file__).parents[3] / "recipes" / "qwen2.5-7b-instruct.yaml"
RELEASES = ("0.9.0", "0.10.0", "0.11.0", "0.12.0", "0.13.0", "0.14.0", "0.15.0", "0.16.0", "0.17.0", "1.0.0", "1.2.1")


def recipe_with(**options: Any) -> Recipe:
    return load_recipe(QWEN).model_copy(update={"engine": EngineBuild(options=options)})


def card_of(name: str, release: str = "1.2.1") -> TargetCard:
    return load_card(f"{name}:engine").model_copy(update={"tensorrt_llm": release})


@given(
    release=st.sampled_from(RELEASES),
    card=st.sampled_from(["a100", "h100", "h100x2", "h200", "l40s", "a100x4"]),
    model=st.sampled_from(["qwen2.5-7b", "llama-3.1-8b"]),
    variant=st.sampled_from([Int8(), Awq(), Fp8Static(), Int8WeightOnly(), Fp8Static(kv_cache="fp8")]),
    options=st.fixed_dictionaries(
        {},
        optional={
            "max_batch_size": st.integers(1, 64),
            "max_num_tokens": st.integers(256, 16384),
            "max_input_len": st.integers(1, 2048),
            "gemm_plugin": st.sampled_from(["float16", "bfloat16", "disable"]),
            "use_paged_context_fmha": st.sampled_from(["enable", "disable"]),
            "profiling_verbosity": st.sampled_from(["detailed", "layer_names_only"]),
        },
    ),
)
def test_every_planned_command_line_parses(
    release: str, card: str, model: str, variant: Any, options: dict[str, Any]
) -> None:
    target = card_of(card, release)
    settings, problems = engine_settings(recipe_with(**options), variant, facts(model), target)
    if settings is None:
        assert problems
        return
    table = table_for(release)
    arguments = ["--checkpoint_dir", "c", "--output_dir", "o", *command_line(settings.options)]
    for name in plugin_names(settings.options, table):
        arguments += [f"--{name}", "bfloat16"]
    for name in timing_cache_options(release):
        arguments += [f"--{name}", "t"]
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        try:
            parsed = parser_of(table).parse_args(arguments)
        except SystemExit:
            pytest.fail(f"{release}: {errors.getvalue()}")
    assert int(parsed.workers) == target.ranks
    for name, value in options.items():
        assert str(getattr(parsed, name)) == str(value)
    if parse_version(release) < (0, 11):
        assert int(parsed.max_input_len) + int(parsed.max_output_len) == settings.max_seq_len


def test_defaults_follow_the_card_and_the_model() -> None:
    settings, problems = engine_settings(recipe_with(), Int8(), facts("qwen2.5-7b"), card_of("h100"))
    assert problems == []
    assert settings is not None
    assert settings.options == {
        "context_fmha": "enable", "gemm_plugin": "auto", "gpt_attention_plugin": "auto", "kv_cache_type": "paged",
        "log_level": "info", "max_batch_size": 142, "max_input_len": 8192, "max_num_tokens": 8192, "max_seq_len": 8192,
        "remove_input_padding": "enable", "use_paged_context_fmha": "enable", "workers": 1,
    }  # fmt: skip


def test_the_cache_formula_by_hand() -> None:
    """Qwen2.5-7B: 28 layers, 4 KV heads of 128 values, keys and values of 2 bytes."""
    settings, _ = engine_settings(recipe_with(), Int8(), facts("qwen2.5-7b"), card_of("h100"))
    assert settings is not None
    memory = settings.memory
    assert memory.bytes_per_token == 2 * 28 * 4 * 128 * 2 == 57344
    assert memory.engine == 6_525_288_448 + 2 * 152064 * 3584 * 2  # a byte a linear weight, table and head in 16 bit
    assert memory.batch == memory.tokens // 8192
    halved, _ = engine_settings(recipe_with(), Fp8Static(kv_cache="fp8"), facts("qwen2.5-7b"), card_of("h100"))
    assert halved is not None
    assert halved.memory.bytes_per_token == memory.bytes_per_token // 2
    split, _ = engine_settings(recipe_with(), Int8(), facts("qwen2.5-7b"), card_of("h100x2"))
    assert split is not None
    assert split.memory.bytes_per_token == memory.bytes_per_token // 2


@pytest.mark.parametrize(
    ("model", "card", "variant", "options", "says"),
    [
        ("llama-3.1-70b", "h100", AsIs(), {}, "leave nothing of 85.9 GB for the KV cache"),
        ("llama-3.1-8b", "l4", Int8(), {"max_seq_len": 131072}, "options.max_seq_len: 131072 tokens on l4:engine"),
        ("qwen2.5-7b", "h100", Int8(), {"max_seq_len": 40000}, "at most 32768, what the model's position embeddings"),
        ("qwen2.5-7b", "h100", Int8(), {"max_seq_len": 100, "max_input_len": 200}, "at most max_seq_len 100"),
        ("qwen2.5-7b", "h100x8", Int8(), {}, "8 does not divide the model's 28 attention heads"),
        ("qwen2.5-7b", "h100", Int8(), {"max_output_len": 512}, "removed in TensorRT-LLM 0.12.0"),
        ("qwen2.5-7b", "h100", Int8(), {"checkpoint_dir": "x"}, "Engineworks names its own directories"),
        (
            "llama-3.1-8b", "l4", Int8(), {"max_batch_size": 512, "max_seq_len": 4096, "kv_cache_type": "continuous"},
            "512 sequences of 4096 tokens in a continuous KV cache",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(model: str, card: str, variant: Any, options: dict[str, Any], says: str) -> None:
    settings, problems = engine_settings(recipe_with(**options), variant, facts(model), card_of(card))
    assert settings is None
    assert says in " ".join(map(str, problems))


def test_an_old_release_gets_its_own_words() -> None:
    settings, _ = engine_settings(recipe_with(), Int8(), facts("qwen2.5-7b"), card_of("a100", "0.9.0"))
    assert settings is not None
    assert settings.options["paged_kv_cache"] == "enable"
    assert settings.options["max_input_len"] == 6144
    assert settings.options["max_output_len"] == 2048
    assert plugin_names(settings.options, table_for("0.9.0")) == ["gpt_attention_plugin", "gemm_plugin"]
    assert timing_cache_options("0.8.0") == ["timing_cache"]


def test_every_public_report_that_a_plan_can_make_is_made() -> None:
    """GitHub issues 2057 (max_output_len), 1840 (flags of another tool), 2093 and 2202 (workers x model in convert)."""
    card = card_of("h100")
    for option in ("max_output_len", "use_inflight_batching", "world_size"):
        settings, problems = engine_settings(recipe_with(**{option: 1}), Int8(), facts("qwen2.5-7b"), card)
        assert settings is None
        assert option in str(problems[0])
    route, _ = choose_route(Int8(), facts("llama-3.1-70b"), card, EngineBuild(route="converter"))
    assert route is not None
    assert route.arguments[route.arguments.index("--workers") + 1] == "1"
