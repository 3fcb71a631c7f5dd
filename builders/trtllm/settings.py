"""The options an engine is built with: the recipe's own, and defaults from the card, the model and the release."""

from __future__ import annotations

from collections.abc import Iterator

from builders.estimates import in_words
from builders.model_facts import Attention, ModelFacts
from builders.trtllm.memory import EngineMemory, engine_memory
from builders.trtllm.options import OptionValue, Table, problems_with_options, table_for
from recipes.errors import Problem
from recipes.models import Recipe
from recipes.strict import Strict
from recipes.targets import TargetCard
from recipes.variants import Variant

GIVEN_BY_US = ("checkpoint_dir", "output_dir", "input_timing_cache", "output_timing_cache", "timing_cache")
DEFAULT_SEQ_LEN = 8192
DEFAULT_NUM_TOKENS = 8192
LARGEST_BATCH = 256
FIELD = "engine.options"


class EngineSettings(Strict):
    """What ``trtllm-build`` is called with, and what it will take."""

    options: dict[str, OptionValue]
    """Without directories and timing caches."""
    max_input_len: int
    max_seq_len: int
    max_batch_size: int
    max_num_tokens: int
    memory: EngineMemory


def engine_settings(
    recipe: Recipe, variant: Variant, facts: ModelFacts, card: TargetCard
) -> tuple[EngineSettings | None, list[Problem]]:
    """Settings, or everything that forbids them."""
    version, shape = card.tensorrt_llm or "", facts.attention
    given = {name.replace("-", "_"): value for name, value in recipe.engine.options.items()}
    problems = list(_misplaced(given))
    given = {name: value for name, value in given.items() if name not in GIVEN_BY_US}
    problems += problems_with_options(given, version, FIELD)
    if shape is None or card.memory_gib is None:
        return None, problems
    problems += _splits(shape, card)
    if problems:
        return None, problems
    table = table_for(version)
    given = {_canonical(name, table): value for name, value in given.items()}
    lengths, more = _lengths(recipe, given, shape, table)
    if more:
        return None, more
    max_input_len, max_seq_len = lengths
    max_num_tokens = _number(given, "max_num_tokens") or DEFAULT_NUM_TOKENS
    asked = _number(given, "max_batch_size")
    memory = engine_memory(
        variant,
        facts,
        shape,
        card,
        max_seq_len=max_seq_len,
        max_num_tokens=max_num_tokens,
        max_batch_size=asked or LARGEST_BATCH,
    )
    if problems := list(_does_not_fit(memory, card, given, asked)):
        return None, problems
    batch = asked or min(LARGEST_BATCH, max(1, memory.batch))
    options = _defaults(variant, card, table) | {
        "max_batch_size": batch,
        "max_input_len": max_input_len,
        "max_num_tokens": max_num_tokens,
        "workers": card.ranks,
    }
    if table.find("max_seq_len"):
        options["max_seq_len"] = max_seq_len
    else:
        options["max_output_len"] = max_seq_len - max_input_len
    return (
        EngineSettings(
            options=dict(sorted((options | given).items())),
            max_input_len=max_input_len,
            max_seq_len=max_seq_len,
            max_batch_size=batch,
            max_num_tokens=max_num_tokens,
            memory=memory,
        ),
        [],
    )


def _defaults(variant: Variant, card: TargetCard, table: Table) -> dict[str, OptionValue]:
    """In-flight batching needs packed input and a paged cache; reuse of cached prefixes needs paged context FMHA."""
    fp8 = variant.scheme in ("fp8-static", "w4a8-awq")
    wanted: dict[str, OptionValue] = {
        "gpt_attention_plugin": "auto",
        # the plugin is for 16-bit products; FP8 ones by tensor are left to TensorRT (docs, performance tuning guide)
        "gemm_plugin": "disable" if fp8 else "auto",
        "remove_input_padding": "enable",
        "context_fmha": "enable",
        "use_paged_context_fmha": "enable",
        "log_level": "info",
    }
    if variant.kv_cache == "fp8" and variant.scheme.startswith("fp8") and (card.sm or 0) >= 89:
        wanted["use_fp8_context_fmha"] = "enable"
    kv_cache_type = table.find("kv_cache_type")
    wanted["kv_cache_type" if kv_cache_type else "paged_kv_cache"] = "paged" if kv_cache_type else "enable"
    defaults: dict[str, OptionValue] = {}
    for name, value in wanted.items():
        option = table.find(name)
        if option is None:
            continue
        if value == "auto" and "auto" not in option.choices:
            continue  # before 0.11 a plugin was given the type itself; the stage adds the checkpoint's
        defaults[name] = value
    return defaults


def plugin_names(options: dict[str, OptionValue], table: Table) -> list[str]:
    """Plugins that must be told the checkpoint's type, which ``auto`` stands for since 0.11."""
    return [
        name
        for name in ("gpt_attention_plugin", "gemm_plugin")
        if (option := table.find(name)) and name not in options and "auto" not in option.choices
    ]


def timing_cache_options(version: str) -> list[str]:
    """The options that name the timing cache: one in 0.8, one to read and one to write since."""
    table = table_for(version)
    return [name for name in ("timing_cache", "input_timing_cache", "output_timing_cache") if table.find(name)]


def _misplaced(given: dict[str, OptionValue]) -> Iterator[Problem]:
    for name in given:
        if name in GIVEN_BY_US:
            yield Problem(f"{FIELD}.{name}", "set", "left out", "Engineworks names its own directories and caches")


def _canonical(name: str, table: Table) -> str:
    option = table.find(name)
    return option.name if option else name


def _lengths(
    recipe: Recipe, given: dict[str, OptionValue], shape: Attention, table: Table
) -> tuple[tuple[int, int], list[Problem]]:
    """Longest input and longest whole sequence."""
    longest = shape.max_positions
    asked = _number(given, "max_seq_len") or recipe.serving.max_model_len
    where = f"{FIELD}.max_seq_len" if "max_seq_len" in given else "serving.max_model_len"
    outputs = _number(given, "max_output_len")
    if outputs and not asked:
        asked, where = (_number(given, "max_input_len") or 1024) + outputs, f"{FIELD}.max_output_len"
    max_seq_len = asked or min(DEFAULT_SEQ_LEN, longest or DEFAULT_SEQ_LEN)
    if longest and max_seq_len > longest:
        return (0, 0), [
            Problem(where, f"{max_seq_len} tokens", f"at most {longest}, what the model's position embeddings cover")
        ]
    roomy = max_seq_len if table.find("max_seq_len") else max_seq_len - max(1, max_seq_len // 4)
    max_input_len = _number(given, "max_input_len") or (max_seq_len - outputs if outputs else roomy)
    if max_input_len > max_seq_len:
        return (0, 0), [
            Problem(
                f"{FIELD}.max_input_len",
                f"{max_input_len}",
                f"at most max_seq_len {max_seq_len}, which is input and output together",
            )
        ]
    return (max_input_len, max_seq_len), []


def _splits(shape: Attention, card: TargetCard) -> Iterator[Problem]:
    """What the ranks must divide. Of KV heads there may be fewer than ranks: then they are repeated."""
    tp, pp, where = card.tensor_parallel, card.pipeline_parallel, f"targets {card.name} tensor_parallel"
    for words, number in (
        ("attention heads", shape.heads),
        ("intermediate features", shape.intermediate_size),
    ):
        if number % tp:
            yield Problem(where, f"{tp} does not divide the model's {number} {words}", _divisors(number))
            return
    if shape.kv_heads % tp and tp % shape.kv_heads:
        yield Problem(
            where, f"{tp} neither divides nor is a multiple of the model's {shape.kv_heads} KV heads", "one that does"
        )
    if shape.layers % pp:
        yield Problem(
            f"targets {card.name} pipeline_parallel",
            f"{pp} does not divide the model's {shape.layers} layers",
            _divisors(shape.layers),
        )


def _does_not_fit(
    memory: EngineMemory, card: TargetCard, given: dict[str, OptionValue], asked: int | None
) -> Iterator[Problem]:
    where = f"targets {card.name}"
    if memory.cache <= 0:
        yield Problem(
            where,
            f"the engine ({in_words(memory.engine)} a rank) and its workspace ({in_words(memory.runtime)}) leave "
            f"nothing of {in_words(memory.total)} for the KV cache",
            "a scheme with fewer bits, a card with more memory, or more GPUs (CARDxN:engine)",
        )
    elif memory.batch < 1:
        yield Problem(
            f"{FIELD}.max_seq_len",
            f"{memory.max_seq_len} tokens on {card.name}: the KV cache holds {memory.tokens} "
            f"({in_words(memory.cache)} at {memory.bytes_per_token} bytes a token)",
            f"at most {memory.tokens}",
            "Or kv_cache: fp8, a card with more memory, or more GPUs (CARDxN:engine)",
        )
    elif asked and asked > memory.batch and given.get("kv_cache_type") == "continuous":
        yield Problem(
            f"{FIELD}.max_batch_size",
            f"{asked} sequences of {memory.max_seq_len} tokens in a continuous KV cache, which is laid out in advance",
            f"at most {memory.batch} on {card.name}",
            "Or kv_cache_type: paged",
        )


def _number(given: dict[str, OptionValue], name: str) -> int | None:
    value = given.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _divisors(number: int) -> str:
    found = [str(d) for d in range(2, 65) if number % d == 0]
    return f"one of {', '.join(found)}" if found else "1"
