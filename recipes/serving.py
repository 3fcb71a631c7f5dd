"""How an artifact is to be served: ``serving:`` of a recipe, written into the launch files beside the artifact."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from recipes.strict import Strict


class NGram(Strict):
    """Draft tokens copied from the prompt (prompt lookup): no second model."""

    method: Literal["ngram"] = "ngram"
    num_speculative_tokens: Annotated[int, Field(ge=1, le=32)] = 4
    """Tokens drafted at once."""
    prompt_lookup_min: Annotated[int, Field(ge=1)] = 1
    """Shortest n-gram looked up."""
    prompt_lookup_max: Annotated[int, Field(ge=1)] = 4
    """Longest n-gram looked up."""

    @model_validator(mode="after")
    def _in_order(self) -> NGram:
        if self.prompt_lookup_min > self.prompt_lookup_max:
            raise ValueError("prompt_lookup_min must not be greater than prompt_lookup_max")
        return self


class DraftModel(Strict):
    """Draft tokens from a smaller model with the same vocabulary."""

    method: Literal["draft_model"] = "draft_model"
    model: str
    """Hub name or directory, as the server is to find it."""
    num_speculative_tokens: Annotated[int, Field(ge=1, le=32)] = 4
    """Tokens drafted at once."""


Speculative = Annotated[NGram | DraftModel, Field(discriminator="method")]


class Serving(Strict):
    """Options of ``vllm serve``, ``trtllm-serve`` and Triton that one recipe sets for all of them."""

    max_model_len: Annotated[int, Field(ge=2)] | None = None
    """Longest prompt and answer together, in tokens. Default: the model's, or what the engine was built for."""
    max_batch_size: Annotated[int, Field(ge=1)] | None = None
    """Sequences at once (vLLM's --max-num-seqs). Default: the server's own, or what the engine was built for."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of GPU memory the server may take (TensorRT-LLM: of what is free beside the engine, for the cache)."""
    prefix_caching: bool = True
    """Reuse cached keys and values of shared prefixes."""
    kv_cache_dtype: Literal["auto", "fp8"] = "auto"
    """Type of cached keys and values."""
    speculative: Speculative | None = None
    """Speculative decoding."""
