"""Which scheme runs on which GPU, under which runtime. The plan refuses what this table says can't work.

Sources: vLLM's "Supported hardware" table (docs, features/quantization), TensorRT-LLM's precision support matrix
(docs, reference/support-matrix), its PyTorch backend's list of quantized checkpoints (docs, features/quantization) and
the kernels' own checks (Marlin, CUTLASS FP8 from SM 89 on).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recipes.targets import TargetCard

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


def support(scheme: str, card: TargetCard) -> Support:
    """Whether a variant of ``scheme`` can be served on ``card`` by the card's runtime."""
    if card.sm is None:
        return _on_cpu(scheme, card)
    match card.runtime:
        case "engine":
            return _by_engine(scheme, card, card.sm)
        case "checkpoint":
            return _by_pytorch_backend(scheme, card, card.sm)
        case "vllm":
            return _by_vllm(scheme, card, card.sm)


def _on_cpu(scheme: str, card: TargetCard) -> Support:
    if card.runtime != "vllm":
        return Support("no", f"TensorRT-LLM ({card.runtime}) needs an NVIDIA GPU", "a target without :runtime")
    if scheme in ENGINE_ONLY:
        return ENGINE_ONLY[scheme]
    if scheme in ("gptq", "awq"):
        return Support(
            "unverified", "vLLM serves 4-bit weights on processors with AVX-512 only; transformers runs them anywhere"
        )
    return Support("yes")


ENGINE_ONLY = {
    "none": Support("no", "nothing is to be built: vLLM and trtllm-serve take the source as it is", "an engine target"),
    "int8-weight-only": Support("no", "made for TensorRT-LLM engines only", "int8, or an engine target"),
    "w4a8-awq": Support("no", "made for TensorRT-LLM engines only", "awq, or an engine target"),
}


def _by_vllm(scheme: str, card: TargetCard, sm: int) -> Support:
    if scheme in ENGINE_ONLY:
        return ENGINE_ONLY[scheme]
    if scheme in FP8_SCHEMES and sm < FIRST_FP8_SM:
        return Support(
            "weight-only", f"{card.gpu} (SM {sm}) has no FP8 arithmetic: vLLM dequantizes the weights (Marlin)"
        )
    if sm >= FIRST_BLACKWELL_SM and scheme not in FP8_SCHEMES:
        return Support("unverified", f"{scheme} on SM {sm} has not been confirmed by a run")
    return Support("yes")


def _by_engine(scheme: str, card: TargetCard, sm: int) -> Support:
    if scheme == "gptq":
        return Support(
            "no",
            "TensorRT-LLM's converters read GPTQ from a Hugging Face GPTQ checkpoint, not from compressed-tensors",
            "awq, or such a checkpoint as the source with scheme: none",
        )
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
    if scheme in ("int8", "gptq"):
        return Support(
            "no", f"TensorRT-LLM's PyTorch backend does not load a compressed-tensors {scheme} checkpoint", other
        )
    if scheme == "awq":
        return Support("no", "TensorRT-LLM's PyTorch backend loads AWQ from ModelOpt checkpoints only", other)
    if sm < FIRST_FP8_SM:
        return Support("no", f"FP8 needs SM {FIRST_FP8_SM} and {card.gpu} is SM {sm}", "a card from l4, l40s, h100 on")
    if scheme == "fp8-static":
        return Support(
            "no", "TensorRT-LLM's PyTorch backend loads compressed-tensors FP8 with per-token activations only", "fp8"
        )
    return Support("yes")
