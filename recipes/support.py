"""Which scheme runs on which GPU, under which runtime. The plan refuses what this table says can't work.

Sources: vLLM's "Supported hardware" table (docs, features/quantization), TensorRT-LLM's precision support matrix
(docs, reference/support-matrix), its PyTorch backend's list of quantized checkpoints (docs, features/quantization) and
the kernels' own checks (Marlin, CUTLASS FP8 from SM 89 on).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recipes.targets import TargetCard
from recipes.variants import Variant, tool_of

Level = Literal["yes", "weight-only", "no", "unverified"]

FIRST_FP8_SM = 89
FIRST_BLACKWELL_SM = 100
FP8_SCHEMES = ("fp8", "fp8-static")


@dataclass(frozen=True)
class Support:
    level: Level
    why: str = ""
    instead: str = ""
    """What to use in its place, when the level is ``no``."""


def support(variant: Variant, card: TargetCard) -> Support:
    """Whether a variant can be served on ``card`` by the card's runtime."""
    scheme, tool = variant.scheme, tool_of(variant)
    if scheme == "gguf":
        served = card.sm is None
        return Support("yes") if served else Support("no", "GGUF is for llama.cpp, on processors here", "target cpu")
    by_modelopt = tool is not None and tool.format == "modelopt"
    if card.sm is None:
        return _on_cpu(scheme, card, by_modelopt=by_modelopt)
    match card.runtime:
        case "engine":
            return _by_engine(scheme, card, card.sm)
        case "checkpoint":
            if by_modelopt:
                return _modelopt_by_pytorch_backend(scheme, card, card.sm)
            if tool is not None and tool.format in ("awq", "gptq"):
                return Support(
                    "no", f"TensorRT-LLM's PyTorch backend does not load {tool.name}'s format", "tool: modelopt"
                )
            return _by_pytorch_backend(scheme, card, card.sm)
        case "vllm":
            if by_modelopt and scheme not in VLLM_MODELOPT:
                return Support(
                    "no",
                    f"vLLM's modelopt formats are {', '.join(VLLM_MODELOPT)}",
                    "tool: llm-compressor, or :checkpoint",
                )
            return _by_vllm(scheme, card, card.sm)


def _on_cpu(scheme: str, card: TargetCard, *, by_modelopt: bool) -> Support:
    if card.runtime != "vllm":
        return Support("no", f"TensorRT-LLM ({card.runtime}) needs an NVIDIA GPU", "a target without :runtime")
    if scheme in ENGINE_ONLY:
        return ENGINE_ONLY[scheme]
    if by_modelopt:
        return Support("no", "ModelOpt's formats are served on NVIDIA GPUs only", "tool: llm-compressor")
    if scheme in ("gptq", "awq", "int4"):
        return Support(
            "unverified", "vLLM serves 4-bit weights on processors with AVX-512 only; transformers runs them anywhere"
        )
    return Support("yes")


ENGINE_ONLY = {
    "none": Support("no", "nothing is to be built: vLLM and trtllm-serve take the source as it is", "an engine target"),
    "int8-weight-only": Support("no", "made for TensorRT-LLM engines only", "int8, or an engine target"),
}
"""Schemes that are no checkpoint for vLLM or the PyTorch backend."""
VLLM_MODELOPT = ("fp8", "fp8-static", "nvfp4")
"""Schemes of ModelOpt's unified checkpoint that vLLM loads (docs, features/quantization/modelopt)."""


def _by_vllm(scheme: str, card: TargetCard, sm: int) -> Support:
    if scheme in ENGINE_ONLY:
        return ENGINE_ONLY[scheme]
    if scheme in FP8_SCHEMES and sm < FIRST_FP8_SM:
        return Support(
            "weight-only", f"{card.gpu} (SM {sm}) has no FP8 arithmetic: vLLM dequantizes the weights (Marlin)"
        )
    if scheme == "nvfp4" and sm < FIRST_BLACKWELL_SM:
        return Support(
            "weight-only", f"{card.gpu} (SM {sm}) has no FP4 arithmetic: vLLM dequantizes the weights (Marlin)"
        )
    if sm >= FIRST_BLACKWELL_SM and scheme not in (*FP8_SCHEMES, "nvfp4"):
        return Support("unverified", f"{scheme} on SM {sm} has not been confirmed by a run")
    return Support("yes")


def _by_engine(scheme: str, card: TargetCard, sm: int) -> Support:
    if scheme == "gptq":
        return Support(
            "no",
            "TensorRT-LLM's converters read GPTQ from a Hugging Face GPTQ checkpoint, not from compressed-tensors",
            "awq, or such a checkpoint as the source with scheme: none",
        )
    if scheme == "int4":
        return Support("no", "plain INT4 is not made for engines here", "awq")
    if scheme == "nvfp4":
        return Support("no", "NVFP4 engines are not made here", "a :checkpoint target")
    if scheme in (*FP8_SCHEMES, "w4a8-awq") and sm < FIRST_FP8_SM:
        return Support(
            "no",
            f"TensorRT-LLM engines need SM {FIRST_FP8_SM} for FP8 and {card.gpu} is SM {sm}",
            "int8 or awq, or a card from l4, l40s, h100 on",
        )
    if sm >= FIRST_BLACKWELL_SM and scheme not in (*FP8_SCHEMES, "none"):
        return Support("unverified", f"{scheme} on SM {sm} has not been confirmed by a run")
    return Support("yes")


def _by_pytorch_backend(scheme: str, card: TargetCard, sm: int) -> Support:
    if scheme in ENGINE_ONLY:
        return ENGINE_ONLY[scheme]
    other = "fp8" if sm >= FIRST_FP8_SM else "a target without :checkpoint (vLLM serves it)"
    if scheme in ("int8", "gptq", "int4"):
        return Support(
            "no", f"TensorRT-LLM's PyTorch backend does not load a compressed-tensors {scheme} checkpoint", other
        )
    if scheme == "awq":
        return Support(
            "no", "TensorRT-LLM's PyTorch backend loads AWQ from ModelOpt checkpoints only", "tool: modelopt"
        )
    if sm < FIRST_FP8_SM:
        return Support("no", f"FP8 needs SM {FIRST_FP8_SM} and {card.gpu} is SM {sm}", "a card from l4, l40s, h100 on")
    if scheme == "fp8-static":
        return Support(
            "no",
            "TensorRT-LLM's PyTorch backend loads compressed-tensors FP8 with per-token activations only",
            "fp8, or tool: modelopt",
        )
    return Support("yes")


def _modelopt_by_pytorch_backend(scheme: str, card: TargetCard, sm: int) -> Support:
    """Its unified checkpoint is what that backend was made for."""
    if scheme == "nvfp4" and sm < FIRST_BLACKWELL_SM:
        return Support("no", f"NVFP4 needs SM {FIRST_BLACKWELL_SM} and {card.gpu} is SM {sm}", "fp8, or b200")
    if scheme != "awq" and sm < FIRST_FP8_SM:
        return Support("no", f"FP8 needs SM {FIRST_FP8_SM} and {card.gpu} is SM {sm}", "awq, or a card from l4 on")
    return Support("yes")
