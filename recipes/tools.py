"""Which tool quantizes what. One row a tool; ``tool:`` of a variant picks one, else the scheme's default.

To add a tool: a row here, a worker under builders/workers/, its pins under builders/toolchains/ (docs/quantizers.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Format = Literal["compressed-tensors", "awq", "gptq", "modelopt", "gguf"]
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
    unjudged: str = ""
    """Why transformers can't judge its output, and what can."""
    by_vllm: bool = True
    """Whether vLLM serves its output, and so can judge it."""
    resumes: tuple[str, ...] = ()
    """Architectures on which a killed calibrated run goes on after its last finished layer. Else it starts over."""


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "llm-compressor", "llmcompressor_quantize.py", "llmcompressor",
            ("fp8", "fp8-static", "int8", "gptq", "awq", "int4"), "compressed-tensors", "llmcompressor",
            "maintained by vLLM's own project, and loaded by it without conversion",
        ),
        Tool(
            "gptqmodel", "gptqmodel_quantize.py", "gptqmodel", ("gptq",), "gptq", "gptqmodel",
            "the maintained successor of AutoGPTQ, for servers that want Hugging Face GPTQ",
            resumes=("LlamaForCausalLM", "Qwen3MoeForCausalLM"),
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
            unjudged="transformers loads ModelOpt's checkpoints without their scales; set evaluation.backend: vllm",
        ),
        Tool(
            "llama.cpp", "llamacpp_quantize.py", "llamacpp", ("gguf",), "gguf", None,
            "for llama.cpp, on processors and at the edge; its first use compiles llama-cpp-python (minutes)",
            unjudged="llama.cpp's server gives no log-probabilities of the prompt to score with",
            by_vllm=False,
        ),
    )
}  # fmt: skip
DEFAULT = {
    "fp8": "llm-compressor",
    "fp8-static": "llm-compressor",
    "int8": "llm-compressor",
    "gptq": "llm-compressor",
    "awq": "llm-compressor",
    "int4": "llm-compressor",
    "w4a8-awq": "modelopt",
    "nvfp4": "modelopt",
    "gguf": "llama.cpp",
}
"""Scheme → the tool that makes it unless the variant says another. Engine targets go by ``engine.route`` instead."""
