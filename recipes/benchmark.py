"""The load that a served artifact is measured under: ``benchmark:`` of a recipe."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from recipes.strict import Strict


class Benchmark(Strict):
    """Random prompts of one length, answered to one length, so many at once. Engines are measured, where
    trtllm-serve can serve them."""

    input_tokens: Annotated[int, Field(ge=1)] = 512
    output_tokens: Annotated[int, Field(ge=1)] = 128
    concurrency: Annotated[int, Field(ge=1)] = 8
    requests: Annotated[int, Field(ge=1)] = 64
    """After as many to warm up as run at once."""
    seed: int = 0
