"""Every scheme on every shape of model that the table claims: the real tool, and the check that believes it nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from builders.checkpoint import read_checkpoint
from builders.integrity.check import findings_on
from builders.model_facts import facts_of_checkpoint
from builders.shapes import RUN, problems_with_shape
from builders.toolchains import find_toolchain, make_ready
from builders.worker_process import WorkerJob, run_worker_process
from recipes.variants import Awq, Fp8, Fp8Static, Gptq, Int4, Int8, Variant, is_data_free, quantizer_options
from tests.tiny_models import ARCHITECTURES, SHAPES, Family, write_shape, write_tiny

WORKERS = Path(__file__).parents[2] / "builders" / "workers"
SCHEMES: tuple[Variant, ...] = (
    Fp8(), Int4(group_size=64), Int8(), Fp8Static(), Gptq(group_size=64), Awq(group_size=64, n_grid=4),
)  # fmt: skip
CLAIMED = [
    (family, variant) for family in SHAPES for variant in SCHEMES if family != "mixtral" or is_data_free(variant)
]
Quantize = Callable[[Path, Variant], Path]


@pytest.fixture(scope="module")
def quantize(tool_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Quantize:
    toolchain = find_toolchain("llmcompressor", tool_home)
    make_ready(toolchain, lambda _message: None)
    calibration = tmp_path_factory.mktemp("calibration")
    rows = [json.dumps({"text": "", "input_ids": [(7 * n + k * k) % 256 for k in range(64)]}) for n in range(8)]
    (calibration / "calibration.jsonl").write_text("\n".join(rows))

    def run(source: Path, variant: Variant) -> Path:
        work = tmp_path_factory.mktemp("quantize")
        for name in ("output", "scratch"):
            (work / name).mkdir()
        free = is_data_free(variant)
        run_worker_process(
            WorkerJob(
                stage="quantize:tiny", python=toolchain.python,
                script=WORKERS / ("llmcompressor_stream.py" if free else "llmcompressor_quantize.py"),
                params={"scheme": variant.scheme, "options": quantizer_options(variant), "keep": list(variant.keep)},
                inputs={"checkpoint": source} if free else {"checkpoint": source, "calibration": calibration},
                output=work / "output", scratch=work / "scratch", work=work, threads=2, timeout_s=600,
                on_event=lambda _event: None,
            )
        )  # fmt: skip
        return work / "output"

    return run


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sources")
    return {family: write_shape(folder / family, family) for family in SHAPES}


@pytest.mark.parametrize(("family", "variant"), CLAIMED, ids=[f"{f}-{v.scheme}" for f, v in CLAIMED])
def test_nothing_is_found_wrong(quantize: Quantize, sources: dict[str, Path], family: Family, variant: Variant) -> None:
    assert ARCHITECTURES[family] in RUN["llm-compressor"]
    output = quantize(sources[family], variant)
    assert [str(finding) for finding in findings_on(sources[family], output, variant)] == []


def test_what_the_table_does_not_claim_is_refused(sources: dict[str, Path]) -> None:
    facts = facts_of_checkpoint(read_checkpoint(sources["mixtral"]))
    (problem,) = problems_with_shape("gptq", Gptq(group_size=64), facts)
    assert "names that no server loads" in str(problem)
    assert "fp8, int4" in str(problem)
    assert list(problems_with_shape("fp8", Fp8(), facts)) == []


def test_round_to_nearest_is_the_same_shard_by_shard(quantize: Quantize, sources: dict[str, Path]) -> None:
    """One shard or three, the tensors are the same, byte for byte."""
    from builders.tensor_values import TensorFiles

    whole = write_tiny(sources["llama"].parent / "whole", "llama", convention="v5", dtype="float16", vocab=333)
    one, three = (TensorFiles(quantize(source, Fp8())) for source in (whole, sources["llama"]))
    assert set(one) == set(three)
    assert all(one.raw(name).tobytes() == three.raw(name).tobytes() for name in one)
