"""The Hugging Face Hub: commits, headers and snapshots. Endpoint, token, cache and offline mode as for ``hf``
(``HF_ENDPOINT``, ``HF_TOKEN``, ``HF_HOME``, ``HF_HUB_OFFLINE``)."""

# pyright: reportUnknownVariableType=false
from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from artifacts.files import write_atomic
from builders.checkpoint import read_checkpoint
from builders.model_facts import ModelFacts, facts_of_checkpoint, facts_of_tensors
from recipes.errors import BadRequest, EngineworksError, Problem, StageFailed
from recipes.sources import COMMIT

PICKLE_PATTERNS = ["*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl"]
OTHER_FRAMEWORKS = [
    "*.msgpack",
    "*.h5",
    "*.onnx",
    "*.onnx_data",
    "*.gguf",
    "*.tflite",
    "original/*",
    "onnx/*",
    "coreml/*",
    "metal/*",
]


def resolve_commit(repo: str, revision: str, memory: Path | None = None) -> str:
    """The commit that a branch, tag or (short) commit stands for now; offline, what it stood for when last asked.

    ``memory``: folder that remembers answers, since the Hub's cache knows no branch of a snapshot fetched by commit.
    """
    if COMMIT.fullmatch(revision):
        return revision
    from huggingface_hub import HfApi, constants, errors, snapshot_download

    note = memory / f"{repo.replace('/', '--')}@{revision.replace('/', '--')}" if memory else None
    with _explained(repo, revision):
        if not constants.HF_HUB_OFFLINE:
            commit = str(HfApi().model_info(repo, revision=revision).sha)
            if note is not None:
                note.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(note, commit.encode())
            return commit
        try:
            folder = snapshot_download(repo, revision=revision, local_files_only=True, allow_patterns=["config.json"])
            return Path(folder).name
        except errors.LocalEntryNotFoundError:
            if note is None or not note.is_file():
                raise
            return note.read_text(encoding="utf-8")


def model_facts(repo: str, commit: str, *, allow_pickle: bool) -> ModelFacts:
    """Shapes from the safetensors headers, which are read without their data. Refuses a pickle-only repository."""
    from huggingface_hub import HfApi, constants, get_safetensors_metadata, hf_hub_download, snapshot_download
    from huggingface_hub.errors import NotASafetensorsRepoError

    with _explained(repo, commit):
        if constants.HF_HUB_OFFLINE:
            folder = Path(snapshot_download(repo, revision=commit, local_files_only=True))
            return facts_of_checkpoint(read_checkpoint(folder, "source.repo", allow_pickle=allow_pickle))
        config = json.loads(Path(hf_hub_download(repo, "config.json", revision=commit)).read_text(encoding="utf-8"))
        try:
            metadata = get_safetensors_metadata(repo, revision=commit)
        except NotASafetensorsRepoError:
            if allow_pickle:
                return facts_of_tensors(config, {})
            names = [name for name in HfApi().list_repo_files(repo, revision=commit) if Path(name).match("*.bin")]
            raise BadRequest(
                Problem(
                    "source.repo",
                    f"{repo} holds pickle weights ({', '.join(names[:3]) or 'no safetensors'})",
                    "safetensors",
                    "Use a revision with safetensors, or set source.allow_pickle: true if you trust it",
                )
            ) from None
    tensors = {
        name: (str(tensor.dtype), tuple(tensor.shape))
        for file in metadata.files_metadata.values()
        for name, tensor in file.tensors.items()
    }
    return facts_of_tensors(config, tensors)


def download(repo: str, commit: str, *, allow_pickle: bool) -> Path:
    """The snapshot in the Hub's own cache, resuming what was begun. Raises :class:`StageFailed` (``network``)."""
    from huggingface_hub import snapshot_download

    with _explained(repo, commit):
        ignore = OTHER_FRAMEWORKS + ([] if allow_pickle else PICKLE_PATTERNS)
        return Path(snapshot_download(repo, revision=commit, ignore_patterns=ignore))


@contextmanager
def _explained(repo: str, revision: str) -> Generator[None]:
    """The Hub's errors in the recipe's words."""
    from huggingface_hub import errors

    try:
        yield
    except EngineworksError:
        raise
    except errors.GatedRepoError:
        raise BadRequest(
            Problem(
                "source.repo",
                f"{repo} is gated",
                "a token that may read it",
                "Accept its licence on the Hub and set HF_TOKEN",
            )
        ) from None
    except errors.RepositoryNotFoundError:
        raise BadRequest(
            Problem(
                "source.repo",
                f"no repository {repo!r} that this token may see",
                "ORG/NAME on the Hub",
                "Check the name, or set HF_TOKEN",
            )
        ) from None
    except errors.RevisionNotFoundError:
        raise BadRequest(Problem("source.revision", repr(revision), f"a branch, tag or commit of {repo}")) from None
    except errors.LocalEntryNotFoundError:
        raise _unreachable(repo, revision) from None
    except errors.EntryNotFoundError as error:
        raise BadRequest(
            Problem("source.repo", f"{repo} at {revision[:12]} lacks a file ({error})", "a checkpoint")
        ) from None
    except (errors.OfflineModeIsEnabled, errors.HfHubHTTPError, errors.HTTPError, OSError) as error:  # pyright: ignore[reportPrivateImportUsage]
        raise _unreachable(repo, revision, error) from None


def _unreachable(repo: str, revision: str, error: Exception | None = None) -> StageFailed:
    reason = f" ({type(error).__name__})" if error is not None else ""
    return StageFailed(
        "source",
        "network",
        f"{repo}@{revision[:12]} is not in the local cache and the Hub can't be reached{reason}",
        hint="Check the network, HF_ENDPOINT and HF_HUB_OFFLINE, or use a path: source",
    )
