"""Inputs and outputs of the models in a Triton repository for a decoder-only TensorRT-LLM engine.

Names, types and dimensions are those of TensorRT-LLM's own Triton repository (``triton_backend/all_models/
inflight_batcher_llm``, release 1.x), so clients written for it work unchanged. What a text model never takes (images,
encoders, LoRA weights) is left out; all of it is optional there.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Port:
    """An input or output of a model. Dimensions are without the batch's own."""

    name: str
    type: str
    dims: tuple[int, ...] = (1,)
    optional: bool = True
    ragged: bool = False
    """Requests of different lengths may share a batch."""
    scalar: bool = False
    """The backend sees no dimension but the batch's."""


REQUEST = (
    Port("text_input", "STRING", optional=False),
    Port("max_tokens", "INT32", optional=False),
    Port("bad_words", "STRING", (-1,)),
    Port("stop_words", "STRING", (-1,)),
    Port("exclude_input_in_output", "BOOL"),
    Port("end_id", "INT32"),
    Port("pad_id", "INT32"),
    Port("top_k", "INT32"),
    Port("top_p", "FP32"),
    Port("temperature", "FP32"),
    Port("length_penalty", "FP32"),
    Port("repetition_penalty", "FP32"),
    Port("min_tokens", "INT32"),
    Port("presence_penalty", "FP32"),
    Port("frequency_penalty", "FP32"),
    Port("seed", "UINT64"),
    Port("return_log_probs", "BOOL"),
    Port("beam_width", "INT32"),
    Port("stream", "BOOL"),
)
"""What a client sends to ``ensemble`` or ``tensorrt_llm_bls``."""

RESPONSE = (
    Port("text_output", "STRING", (-1,)),
    Port("cum_log_probs", "FP32", (-1,)),
    Port("output_log_probs", "FP32", (-1, -1)),
    Port("batch_index", "INT32"),
    Port("sequence_index", "INT32"),
)

PREPROCESSING_IN = (
    Port("QUERY", "STRING", optional=False),
    Port("REQUEST_OUTPUT_LEN", "INT32", optional=False),
    Port("BAD_WORDS_DICT", "STRING", (-1,)),
    Port("STOP_WORDS_DICT", "STRING", (-1,)),
    Port("END_ID", "INT32"),
    Port("PAD_ID", "INT32"),
)
PREPROCESSING_OUT = (
    Port("INPUT_ID", "INT32", (-1,)),
    Port("REQUEST_INPUT_LEN", "INT32"),
    Port("BAD_WORDS_IDS", "INT32", (2, -1)),
    Port("STOP_WORDS_IDS", "INT32", (2, -1)),
    Port("REQUEST_OUTPUT_LEN", "INT32"),
    Port("OUT_END_ID", "INT32"),
    Port("OUT_PAD_ID", "INT32"),
)

ENGINE_IN = (
    Port("input_ids", "INT32", (-1,), ragged=True),
    Port("input_lengths", "INT32", optional=False, scalar=True),
    Port("request_output_len", "INT32", optional=False, scalar=True),
    Port("end_id", "INT32", scalar=True),
    Port("pad_id", "INT32", scalar=True),
    Port("stop_words_list", "INT32", (2, -1), ragged=True),
    Port("bad_words_list", "INT32", (2, -1), ragged=True),
    Port("beam_width", "INT32", scalar=True),
    Port("temperature", "FP32", scalar=True),
    Port("runtime_top_k", "INT32", scalar=True),
    Port("runtime_top_p", "FP32", scalar=True),
    Port("len_penalty", "FP32", scalar=True),
    Port("repetition_penalty", "FP32", scalar=True),
    Port("min_tokens", "INT32", scalar=True),
    Port("presence_penalty", "FP32", scalar=True),
    Port("frequency_penalty", "FP32", scalar=True),
    Port("seed", "UINT64", scalar=True),
    Port("return_log_probs", "BOOL", scalar=True),
    Port("exclude_input_in_output", "BOOL", scalar=True),
    Port("stop", "BOOL", scalar=True),
    Port("streaming", "BOOL", scalar=True),
)
ENGINE_OUT = (
    Port("output_ids", "INT32", (-1, -1)),
    Port("sequence_length", "INT32", (-1,)),
    Port("cum_log_probs", "FP32", (-1,)),
    Port("output_log_probs", "FP32", (-1, -1)),
    Port("batch_index", "INT32"),
    Port("sequence_index", "INT32"),
)

POSTPROCESSING_IN = (
    Port("TOKENS_BATCH", "INT32", (-1, -1), optional=False),
    Port("SEQUENCE_LENGTH", "INT32", (-1,), optional=False),
)
POSTPROCESSING_OUT = (Port("OUTPUT", "STRING", (-1,)),)

ENSEMBLE = (
    (
        "preprocessing",
        {
            "QUERY": "text_input",
            "REQUEST_OUTPUT_LEN": "max_tokens",
            "BAD_WORDS_DICT": "bad_words",
            "STOP_WORDS_DICT": "stop_words",
            "END_ID": "end_id",
            "PAD_ID": "pad_id",
        },
        {
            "INPUT_ID": "_INPUT_ID",
            "REQUEST_INPUT_LEN": "_REQUEST_INPUT_LEN",
            "REQUEST_OUTPUT_LEN": "_REQUEST_OUTPUT_LEN",
            "STOP_WORDS_IDS": "_STOP_WORDS_IDS",
            "BAD_WORDS_IDS": "_BAD_WORDS_IDS",
            "OUT_END_ID": "_END_ID",
            "OUT_PAD_ID": "_PAD_ID",
        },
    ),
    (
        "tensorrt_llm",
        {
            "input_ids": "_INPUT_ID",
            "input_lengths": "_REQUEST_INPUT_LEN",
            "request_output_len": "_REQUEST_OUTPUT_LEN",
            "end_id": "_END_ID",
            "pad_id": "_PAD_ID",
            "stop_words_list": "_STOP_WORDS_IDS",
            "bad_words_list": "_BAD_WORDS_IDS",
            "beam_width": "beam_width",
            "temperature": "temperature",
            "runtime_top_k": "top_k",
            "runtime_top_p": "top_p",
            "len_penalty": "length_penalty",
            "repetition_penalty": "repetition_penalty",
            "min_tokens": "min_tokens",
            "presence_penalty": "presence_penalty",
            "frequency_penalty": "frequency_penalty",
            "seed": "seed",
            "return_log_probs": "return_log_probs",
            "exclude_input_in_output": "exclude_input_in_output",
            "streaming": "stream",
        },
        {
            "output_ids": "_TOKENS_BATCH",
            "sequence_length": "_SEQUENCE_LENGTH",
            "cum_log_probs": "cum_log_probs",
            "output_log_probs": "output_log_probs",
            "batch_index": "batch_index",
            "sequence_index": "sequence_index",
        },
    ),
    (
        "postprocessing",
        {"TOKENS_BATCH": "_TOKENS_BATCH", "SEQUENCE_LENGTH": "_SEQUENCE_LENGTH"},
        {"OUTPUT": "text_output"},
    ),
)
"""The ensemble's steps: model, its inputs from, its outputs to (names with ``_`` are between steps)."""
