"""What to make of the checkpoint: one model a quantization scheme, each with that scheme's options and no others.

Option names are the tool's own. Defaults are what the tool's documentation recommends for serving.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from recipes.strict import Strict
from recipes.tools import TOOLS, Tool

Fraction = Annotated[float, Field(gt=0, lt=1)]


class _Variant(Strict):
    keep: tuple[str, ...] = ("lm_head",)
    """Modules left unquantized: exact names, or ``re:`` and a regular expression."""
    targets: tuple[str, ...] | None = None
    """Targets this variant is for, out of the recipe's. Default: all of them."""
    kv_cache: Literal["fp8"] | None = None
    """Store keys and values in FP8, scales from calibration. For engine targets and ``tool: modelopt``."""
    margin: Fraction | None = None
    """Largest accuracy drop that passes (0.02 is two points), instead of the gate's own margin."""
    timeout_minutes: Annotated[float, Field(gt=0)] = 24 * 60
    """The quantizer is killed after this long."""


class Fp8(_Variant):
    """FP8 (E4M3) weights per channel, activations per token, scaled while serving. Needs no calibration."""

    scheme: Literal["fp8"] = "fp8"
    tool: Literal["llm-compressor", "modelopt"] = "llm-compressor"
    """The quantizer for vLLM and checkpoint targets (recipes/tools.py). Engine targets go by ``engine.route``."""


class Fp8Static(_Variant):
    """FP8 (E4M3) weights and activations per tensor, activation scales from calibration."""

    scheme: Literal["fp8-static"] = "fp8-static"
    tool: Literal["llm-compressor", "modelopt"] = "llm-compressor"
    """The quantizer for vLLM and checkpoint targets (recipes/tools.py). Engine targets go by ``engine.route``."""


class Int8(_Variant):
    """INT8 weights per channel and activations per token, after SmoothQuant moved activation outliers into weights."""

    scheme: Literal["int8"] = "int8"
    tool: Literal["llm-compressor"] = "llm-compressor"
    """The quantizer for vLLM and checkpoint targets (recipes/tools.py). Engine targets go by ``engine.route``."""
    method: Literal["rtn", "gptq"] = "gptq"
    """How weights are rounded: to nearest, or by GPTQ (slower, closer)."""
    smoothing_strength: Annotated[float, Field(ge=0, le=1)] | None = 0.8
    """SmoothQuant's alpha. Null leaves smoothing out."""
    dampening_frac: Fraction = 0.01
    """GPTQ: share of the Hessian's mean diagonal added to it."""


class Gptq(_Variant):
    """GPTQ: 4-bit weights in groups, 16-bit activations."""

    scheme: Literal["gptq"] = "gptq"
    tool: Literal["llm-compressor", "gptqmodel", "autogptq"] = "llm-compressor"
    """The quantizer for vLLM and checkpoint targets (recipes/tools.py). Engine targets go by ``engine.route``."""
    group_size: Annotated[int, Field(gt=0)] = 128
    """Input features that share one scale. Must divide every quantized layer's input size."""
    symmetric: bool = True
    actorder: Literal["static", "group"] | None = "static"
    """Order in which columns are rounded: by activation (``static`` costs nothing when serving)."""
    dampening_frac: Fraction = 0.01
    """Share of the Hessian's mean diagonal added to it."""


class Awq(_Variant):
    """AWQ: 4-bit weights in groups, scaled by activation magnitude, 16-bit activations."""

    scheme: Literal["awq"] = "awq"
    tool: Literal["llm-compressor", "autoawq", "modelopt"] = "llm-compressor"
    """The quantizer for vLLM and checkpoint targets (recipes/tools.py). Engine targets go by ``engine.route``."""
    group_size: Annotated[int, Field(gt=0)] = 128
    """Input features that share one scale. Must divide every quantized layer's input size."""
    symmetric: bool = True
    n_grid: Annotated[int, Field(ge=4, le=100)] = 20
    """Scaling strengths tried per layer. Time grows with it; below 4 the tool divides by zero."""
    duo_scaling: bool | Literal["both"] = True
    """Scale by activations and weights, by activations only, or try both."""


class Int4(_Variant):
    """INT4 weights in groups, rounded to nearest, 16-bit activations. Needs no calibration; GPTQ and AWQ lose less."""

    scheme: Literal["int4"] = "int4"
    tool: Literal["llm-compressor"] = "llm-compressor"
    """The quantizer."""
    group_size: Annotated[int, Field(gt=0)] = 128
    """Input features that share one scale. Must divide every quantized layer's input size."""
    symmetric: bool = True


class AsIs(_Variant):
    """The checkpoint as it is: unquantized, or quantized by whoever published it. For engine targets."""

    scheme: Literal["none"] = "none"


class Int8WeightOnly(_Variant):
    """INT8 weights per channel, 16-bit activations. For engine targets. Needs no calibration."""

    scheme: Literal["int8-weight-only"] = "int8-weight-only"


class W4A8Awq(_Variant):
    """AWQ: 4-bit weights in groups of 128, FP8 activations. For TensorRT-LLM (``:engine``, ``:checkpoint``)."""

    scheme: Literal["w4a8-awq"] = "w4a8-awq"
    tool: Literal["modelopt"] = "modelopt"
    """The quantizer for vLLM and checkpoint targets (recipes/tools.py). Engine targets go by ``engine.route``."""


class Nvfp4(_Variant):
    """NVFP4: 4-bit floating point in groups of 16 with FP8 scales, weights and activations."""

    scheme: Literal["nvfp4"] = "nvfp4"
    tool: Literal["modelopt"] = "modelopt"
    """The quantizer."""


class Gguf(_Variant):
    """GGUF for llama.cpp: processors, laptops, phones. Needs no calibration."""

    scheme: Literal["gguf"] = "gguf"
    tool: Literal["llama.cpp"] = "llama.cpp"
    """The quantizer."""
    type: Literal["f16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0"] = "q4_k_m"
    """llama.cpp's file type. Layers whose width its blocks of 256 do not divide fall back to types of 32."""


Variant = Annotated[
    Fp8 | Fp8Static | Int8 | Gptq | Awq | Int4 | AsIs | Int8WeightOnly | W4A8Awq | Nvfp4 | Gguf,
    Field(discriminator="scheme"),
]

SCHEMES = ("fp8", "fp8-static", "int8", "gptq", "awq", "int4", "none", "int8-weight-only", "w4a8-awq", "nvfp4", "gguf")


def tool_of(variant: Variant) -> Tool | None:
    """What makes its checkpoint. None: nothing does (``none``, and what only engines are made of)."""
    return None if isinstance(variant, AsIs | Int8WeightOnly) else TOOLS[variant.tool]


def needs_calibration(variant: Variant) -> bool:
    return not (is_data_free(variant) or isinstance(variant, AsIs | Int8WeightOnly)) or variant.kv_cache is not None


def is_data_free(variant: Variant) -> bool:
    """Whether weights alone decide its output."""
    rounded = isinstance(variant, Int8) and variant.method == "rtn" and variant.smoothing_strength is None
    return isinstance(variant, Fp8 | Int4 | Gguf) or rounded


def quantizer_options(variant: Variant) -> dict[str, JsonValue]:
    """The options that go to the quantizer, and so into the stage's key: what the scheme adds to every variant."""
    shared = set(_Variant.model_fields) | {"scheme", "tool"}
    return {name: value for name, value in variant.model_dump(mode="json").items() if name not in shared}
