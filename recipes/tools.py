"""Which tool quantizes what. One row a tool; ``tool:`` of a variant picks one, else the scheme's default.

To add a tool: a row here, a worker under builders/workers/, its pins under builders/toolchains/ (docs/quantizers.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Format = Literal["compressed-tensors", "awq", "gptq", "modelopt"]
"""``quantization_config.quant_method`` of what it writes: servers go by it."""


@dataclass(frozen=True)
class Tool:
    name: str
    worker: str
    """Script under builders/workers/."""
    toolchain: str
    schemes: tuple[str, ...]
    format: Format
    judged_by: str | None
    """Toolchain whose transformers loads the output for evaluation. None: only a server can (vLLM)."""
    why: str
    """What to choose it for."""
    cpu: str = ""
    """What to know before running it without a GPU."""


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "llm-compressor", "llmcompressor_quantize.py", "llmcompressor",
            ("fp8", "fp8-static", "int8", "gptq", "awq"), "compressed-tensors", "llmcompressor",
            "maintained by vLLM's own project, and loaded by it without conversion",
        ),
        Tool(
            "gptqmodel", "gptqmodel_quantize.py", "gptqmodel", ("gptq",), "gptq", "gptqmodel",
            "the maintained successor of AutoGPTQ, for servers that want Hugging Face GPTQ",
        ),
        Tool(
            "autogptq", "autogptq_quantize.py", "autogptq", ("gptq",), "gptq", "gptqmodel",
            "for teams that stay with it; archived, use gptqmodel for new work",
            "AutoGPTQ asks for CUDA: without it only tiny models are practical",
        ),
        Tool(
            "autoawq", "autoawq_quantize.py", "autoawq", ("awq",), "awq", "gptqmodel",
            "writes AWQ's GEMM format (vLLM, MLC-LLM); archived, use llm-compressor for new work",
            "AutoAWQ takes minutes a layer without a GPU: for tiny models",
        ),
        Tool(
            "modelopt", "modelopt_quantize.py", "modelopt",
            ("fp8", "fp8-static", "awq", "w4a8-awq", "nvfp4"), "modelopt", None,
            "NVIDIA's own, for TensorRT-LLM's PyTorch backend and for vLLM's modelopt formats",
        ),
    )
}  # fmt: skip
DEFAULT = {
    "fp8": "llm-compressor",
    "fp8-static": "llm-compressor",
    "int8": "llm-compressor",
    "gptq": "llm-compressor",
    "awq": "llm-compressor",
    "w4a8-awq": "modelopt",
    "nvfp4": "modelopt",
}
"""Scheme → the tool that makes it unless the variant says another. Engine targets go by ``engine.route`` instead."""
