"""The Triton repository: right by Triton's own definition, wired right, and its Python models do their work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from builders.serving.triton import TritonOptions, check_repository, write_repository
from recipes.errors import StageFailed
from tests.builders.serving.fake_backend import InferenceResponse, Request, Server, Tensor, load, streamed

OPTIONS = TritonOptions(max_batch_size=64, eos_token_id=2, pad_token_id=0)
NAMES = {"ensemble", "preprocessing", "tensorrt_llm", "postprocessing", "tensorrt_llm_bls"}


def parsed(folder: Path, name: str) -> Any:
    return text_format.Parse((folder / name / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())


@given(
    st.builds(
        TritonOptions,
        max_batch_size=st.integers(1, 4096),
        max_beam_width=st.integers(1, 8),
        kv_cache_free_gpu_mem_fraction=st.floats(0.1, 1),
        enable_kv_cache_reuse=st.booleans(),
        batch_scheduler_policy=st.sampled_from(["max_utilization", "guaranteed_no_evict"]),
        max_attention_window_size=st.none() | st.integers(1, 65536),
        ranks=st.integers(1, 8),
        eos_token_id=st.integers(0, 300000),
        pad_token_id=st.integers(0, 300000),
        engine=st.text(min_size=1).filter(lambda text: "${" not in text),
    )
)
def test_whatever_the_options_it_parses_and_holds_them(options: TritonOptions) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "triton"
        write_repository(folder, options)
        check_repository(folder)
        engine = parsed(folder, "tensorrt_llm")
        assert {parsed(folder, name).max_batch_size for name in NAMES} == {options.max_batch_size}
        assert engine.parameters["gpt_model_path"].string_value == options.engine
        assert engine.parameters["gpt_model_type"].string_value == "inflight_fused_batching"
        reuse = engine.parameters["enable_kv_cache_reuse"].string_value
        assert reuse == ("true" if options.enable_kv_cache_reuse else "false")
        assert ("max_attention_window_size" in engine.parameters) is bool(options.max_attention_window_size)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_repository(tmp_path / "triton", OPTIONS)
    return tmp_path / "triton"


def test_all_five_models_are_there(repository: Path) -> None:
    assert {path.name for path in repository.iterdir()} == NAMES
    assert all((repository / name / "1").is_dir() for name in NAMES)
    for name in ("preprocessing", "postprocessing", "tensorrt_llm_bls"):
        compile((repository / name / "1" / "model.py").read_text(), name, "exec")


def test_requests_of_different_lengths_share_a_batch(repository: Path) -> None:
    """The engine is given ragged ids, and numbers without a dimension of their own."""
    ports = {port.name: port for port in parsed(repository, "tensorrt_llm").input}
    ragged = {name for name, port in ports.items() if port.allow_ragged_batch}
    assert ragged == {"input_ids", "stop_words_list", "bad_words_list"}
    scalars = {name for name, port in ports.items() if port.HasField("reshape")}
    assert scalars == set(ports) - ragged
    assert not any(ports[name].reshape.shape for name in scalars)


def edit(repository: Path, name: str, old: str, new: str) -> None:
    path = repository / name / "config.pbtxt"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("preprocessing", 'name: "QUERY"', 'name: "QUESTION"', "preprocessing has no input QUERY"),
        ("preprocessing", 'name: "INPUT_ID"', 'name: "IDS"', "preprocessing has no output INPUT_ID"),
        ("postprocessing", "TYPE_STRING", "TYPE_INT32", "output text_output comes from nowhere, or as another type"),
        ("postprocessing", "dims: -1\n  dims: -1", "dims: -1", "is fed from _TOKENS_BATCH, which is not there or of"),
        ("preprocessing", "dims: 2\n", "dims: 3\n", "is fed from _BAD_WORDS_IDS, which is not there or of another"),
        ("postprocessing", "max_batch_size: 64", "max_batch_size: sixty", "postprocessing/config.pbtxt"),
        ("tensorrt_llm", 'string_value: "engine"', 'string_value: "${engine_dir}"', "unfilled placeholder"),
        ("ensemble", 'value: "_TOKENS_BATCH"', 'value: "_TOKENS"', "is fed from _TOKENS_BATCH, which is not there"),
        ("tensorrt_llm", 'name: "tensorrt_llm"', 'name: "other"', "is of a model called 'other'"),
        (
            "ensemble",
            'model_name: "postprocessing"',
            'model_name: "post"',
            "calls post, which is not in the repository",
        ),
    ],
)
def test_damage_is_found(repository: Path, name: str, old: str, new: str, says: str) -> None:
    edit(repository, name, old, new)
    with pytest.raises(StageFailed, match=says.replace("$", r"\$")):
        check_repository(repository)


def test_a_missing_model_is_found(repository: Path) -> None:
    (repository / "postprocessing" / "config.pbtxt").unlink()
    with pytest.raises(StageFailed, match="no model postprocessing"):
        check_repository(repository)
    write_repository(repository.parent / "again", OPTIONS)
    (repository.parent / "again" / "preprocessing" / "1" / "model.py").unlink()
    with pytest.raises(StageFailed, match=r"without model\.py"):
        check_repository(repository.parent / "again")


def preprocessing() -> Any:
    return load("preprocessing", Server(), tokenizer_dir="tokenizer", add_special_tokens="true", end_id="2", pad_id="9")


def outputs(response: InferenceResponse) -> dict[str, Any]:
    assert not response.has_error(), response.failure and response.failure.message()
    return {tensor.name: tensor.values for tensor in response.tensors}


def texts(*rows: list[str]) -> Any:
    return np.array([[text.encode() for text in row] for row in rows], dtype=object)


def test_preprocessing_pads_a_batch_and_lists_words() -> None:
    request = Request(
        QUERY=texts(["hi"], ["h"]),
        REQUEST_OUTPUT_LEN=np.array([[5], [6]]),
        STOP_WORDS_DICT=texts(["ab", "c"], ["", "d"]),
    )
    (response,) = preprocessing().execute([request])
    found = outputs(response)
    assert found["INPUT_ID"].tolist() == [[0, 105, 106], [0, 105, 9]]
    assert found["REQUEST_INPUT_LEN"].tolist() == [[3], [2]]
    assert found["REQUEST_OUTPUT_LEN"].tolist() == [[5], [6]]
    assert found["OUT_END_ID"].tolist() == [[2], [2]]
    # ids of "ab" and "c" end to end, and under them where each word ends; -1 fills up
    assert found["STOP_WORDS_IDS"].tolist() == [[[98, 99, 100], [2, 3, -1]], [[101, 0, 0], [1, -1, -1]]]
    assert found["BAD_WORDS_IDS"].tolist() == [[[0], [-1]], [[0], [-1]]]


def test_preprocessing_answers_what_it_cannot_read() -> None:
    (response,) = preprocessing().execute([Request(REQUEST_OUTPUT_LEN=np.array([[5]]))])
    assert response.has_error()
    assert "preprocessing" in response.error().message()


def postprocessing() -> Any:
    return load("postprocessing", Server(), tokenizer_dir="tokenizer", skip_special_tokens="true")


def test_postprocessing_cuts_at_the_length() -> None:
    request = Request(TOKENS_BATCH=[[[105, 106, 0, 77]]], SEQUENCE_LENGTH=[[2]])
    (response,) = postprocessing().execute([request])
    assert outputs(response)["OUTPUT"].tolist() == [[b"hi"]]


def bls(engine: Any, *, accumulate: str = "false") -> Any:
    server = Server()
    server.models = {
        "preprocessing": lambda request: preprocessing().execute([request])[0],
        "postprocessing": lambda request: postprocessing().execute([request])[0],
        "tensorrt_llm": engine,
    }
    return load("tensorrt_llm_bls", server, accumulate_tokens=accumulate, tensorrt_llm_model_name="tensorrt_llm")


def asked(**more: Any) -> Request:
    return Request(text_input=texts(["hi"]), max_tokens=np.array([[8]]), **more)


def answers(request: Request) -> list[bytes]:
    assert request.sender.final
    return [outputs(response)["text_output"].tolist()[0][0] for response in request.sender.sent]


@pytest.mark.parametrize(("accumulate", "wanted"), [("false", ["a", "é", "b"]), ("true", ["a", "aé", "aéb"])])
def test_streaming_never_cuts_a_character(accumulate: str, wanted: list[str]) -> None:
    """The two bytes of é come in two tokens: the first is held back."""
    tokens = [byte + 1 for byte in "aéb".encode()]
    request = asked(stream=np.array([[True]]))
    bls(streamed(tokens), accumulate=accumulate).execute([request])
    assert answers(request) == [text.encode() for text in wanted]


def test_streaming_goes_on_after_text_that_a_tokenizer_would_tidy() -> None:
    text = "echo 'some words' and more"
    request = asked(stream=np.array([[True]]))
    bls(streamed([byte + 1 for byte in text.encode()])).execute([request])
    assert b"".join(answers(request)) == text.encode()


@pytest.mark.parametrize("accumulate", ["false", "true"])
def test_rows_of_a_batch_stream_apart(accumulate: str) -> None:
    """The engine answers a row at a time, in any order, and says which: a character of one is no part of another."""
    texts_of = ("aé", "ßb")
    queues = [list(text.encode()) for text in texts_of]

    def engine(_request: Request) -> Any:
        while any(queues):
            for row, queue in enumerate(queues):
                if queue:
                    ids = Tensor("output_ids", [[[queue.pop(0) + 1]]])
                    yield InferenceResponse([ids, Tensor("sequence_length", [[1]]), Tensor("batch_index", [[row]])])

    request = Request(
        text_input=texts(["p"], ["q"]), max_tokens=np.array([[8], [8]]), stream=np.array([[True], [True]])
    )
    bls(engine, accumulate=accumulate).execute([request])
    found: list[list[bytes]] = [[], []]
    for response in request.sender.sent:
        values = outputs(response)
        found[int(values["batch_index"][0][0])].append(values["text_output"][0][0])
    ends = [row[-1] if accumulate == "true" else b"".join(row) for row in found]
    assert ends == [text.encode() for text in texts_of]


def test_without_streaming_the_whole_answer_comes_at_once() -> None:
    ids = np.array([[[105, 106]]], np.int32)
    scores = Tensor("cum_log_probs", [[-1.5]])
    engine = InferenceResponse([Tensor("output_ids", ids), Tensor("sequence_length", [[2]]), scores])
    request = asked()
    bls(lambda _request: [engine]).execute([request])
    assert answers(request) == [b"hi"]
    assert outputs(request.sender.sent[0])["cum_log_probs"].tolist() == [[-1.5]]


def test_the_engine_gets_what_the_client_asked_for() -> None:
    seen: dict[str, Any] = {}

    def engine(request: Request) -> Any:
        seen.update({tensor.name: tensor.values for tensor in request.tensors})
        return []

    bls(engine).execute([asked(top_k=np.array([[4]]), temperature=np.array([[0.5]]), stop_words=texts(["x"]))])
    assert seen["runtime_top_k"].tolist() == [[4]]
    assert seen["temperature"].tolist() == [[0.5]]
    assert seen["input_ids"].tolist() == [[0, 105, 106]]
    assert seen["stop_words_list"].tolist() == [[[121], [1]]]
    assert "seed" not in seen


def test_an_engine_s_error_reaches_the_client() -> None:
    from tests.builders.serving.fake_backend import TritonError

    failed = InferenceResponse([], TritonError("out of blocks"))
    request = asked()
    bls(lambda _request: [failed]).execute([request])
    assert request.sender.final
    assert "out of blocks" in request.sender.sent[0].error().message()
