"""Which scheme runs on which GPU, under which runtime. The plan refuses what this table says can't work.

Sources: vLLM's "Supported hardware" table (docs, features/quantization), TensorRT-LLM's precision support matrix
(docs, reference/support-matrix) and the kernels' own checks (Marlin, CUTLASS FP8 from SM 89 on).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recipes.targets import TargetCard

Level = Literal["yes", "weight-only", "no", "unverified"]

FIRST_FP8_SM = 89


@dataclass(frozen=True)
class Support:
    level: Level
    why: str = ""
    instead: str = ""
    """What to use in its place, when the level is ``no``."""


def support(scheme: str, card: TargetCard) -> Support:
    """Whether a variant of ``scheme`` can be served on ``card`` by the card's runtime."""
    fp8 = scheme in ("fp8", "fp8-static")
    if card.sm is None:
        return _on_cpu(scheme, card)
    if card.runtime == "checkpoint":
        return _by_pytorch_backend(scheme, card)
    if fp8 and card.sm < FIRST_FP8_SM:
        if card.runtime == "engine":
            return Support(
                "no",
                f"TensorRT-LLM engines need SM {FIRST_FP8_SM} for FP8 and {card.gpu} is SM {card.sm}",
                "int8, gptq or awq, or a card from l4, l40s, h100 on",
            )
        return Support(
            "weight-only", f"{card.gpu} (SM {card.sm}) has no FP8 arithmetic: vLLM dequantizes the weights (Marlin)"
        )
    if card.sm >= 100 and not fp8:
        return Support("unverified", f"{scheme} on SM {card.sm} has not been confirmed by a run")
    return Support("yes")


def _on_cpu(scheme: str, card: TargetCard) -> Support:
    if card.runtime != "vllm":
        return Support("no", f"TensorRT-LLM ({card.runtime}) needs an NVIDIA GPU", "runtime: vllm")
    if scheme in ("gptq", "awq"):
        return Support(
            "unverified", "vLLM serves 4-bit weights on processors with AVX-512 only; transformers runs them anywhere"
        )
    return Support("yes")


def _by_pytorch_backend(scheme: str, card: TargetCard) -> Support:
    if scheme in ("int8", "gptq"):
        other = "fp8" if (card.sm or 0) >= FIRST_FP8_SM else "runtime: vllm"
        return Support(
            "no", f"TensorRT-LLM's PyTorch backend does not load a compressed-tensors {scheme} checkpoint", other
        )
    if scheme == "awq":
        return Support("no", "TensorRT-LLM's PyTorch backend loads AWQ from ModelOpt checkpoints only", "runtime: vllm")
    if (card.sm or 0) < FIRST_FP8_SM:
        return Support(
            "no", f"FP8 needs SM {FIRST_FP8_SM} and {card.gpu} is SM {card.sm}", "a card from l4, l40s, h100 on"
        )
    return Support("yes")
