"""A release: what is published, with its evidence. ``manifest.json`` at its root is this model's JSON."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from artifacts.digest import digest_json
from artifacts.manifest import FileEntry, Sha256
from recipes.errors import BadRequest, Problem
from recipes.models import Slug
from recipes.strict import Strict


class VerdictSummary(Strict):
    """The gate's finding. The whole of it is in ``evaluation/verdict.json``."""

    outcome: Literal["PASS", "FAIL", "INCONCLUSIVE", "ANOMALOUS", "NOT RUN"]
    drop: float | None
    """Accuracy of the original minus that of the variant, on the same documents."""
    upper_bound: float | None
    margin: float
    confidence: float
    documents: int


class EngineBuilt(Strict):
    """What a TensorRT-LLM engine was built on and for. Its own directory does not say, and it runs on nothing else."""

    gpu: str
    sm: int
    """Compute capability times ten."""
    driver: str
    tensorrt_llm: str
    tensorrt: str
    image: str | None
    """Container image by digest, as ``ENGINEWORKS_IMAGE`` gave it."""
    ranks: int


class Release(Strict):
    """Everything a release claims about itself. It holds no date, host or duration: same inputs, same bytes, same id.

    When and where it was built stands in ``build.json`` beside the manifest, for information only.
    """

    schema_version: Literal[1] = 1
    model: Slug
    variant: Slug
    scheme: str
    tool: str
    recipe: dict[str, JsonValue]
    """The recipe as built, with ``extends`` and ``--set`` applied."""
    source: dict[str, JsonValue]
    """The resolved source: its fields with the revision as a commit, and ``checkpoint``, the digest of its files."""
    toolchains: dict[str, Sha256]
    """Digest of the pinned requirements of every environment that took part."""
    calibration: Sha256 | None
    """Digest of the calibration samples."""
    targets: tuple[str, ...]
    engine: EngineBuilt | None = None
    """None: weights, for any GPU that can run the scheme."""
    verdict: VerdictSummary
    files: tuple[FileEntry, ...]

    @property
    def release_id(self) -> str:
        """The first 16 hex digits of the hash of everything above."""
        return digest_json(self)[:16]

    @property
    def ref(self) -> ReleaseRef:
        return ReleaseRef(model=self.model, variant=self.variant, release_id=self.release_id)

    @property
    def bytes(self) -> int:
        return sum(entry.size for entry in self.files)


ReleaseId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class ReleaseRef(Strict):
    """Name of one release."""

    model: Slug
    variant: Slug
    release_id: ReleaseId

    def __str__(self) -> str:
        return f"{self.model}/{self.variant}/{self.release_id}"

    @property
    def prefix(self) -> str:
        """Where its files lie in the registry, without a slash at the end."""
        return f"releases/{self}"


REFERENCE = re.compile(r"(?:(?P<model>[^/]+)/)?(?:(?P<variant>[^/]+)/)?(?P<release_id>[0-9a-f]{4,16})")


def parse_reference(text: str) -> tuple[str | None, str | None, str]:
    """Split ``MODEL/VARIANT/ID``, ``VARIANT/ID`` or ``ID`` (or its first digits, 4 at least).

    Raises :class:`BadRequest`.
    """
    if match := REFERENCE.fullmatch(text):
        model, variant = match["model"], match["variant"]
        return (None, model, match["release_id"]) if model and not variant else (model, variant, match["release_id"])
    raise BadRequest(Problem("release", repr(text), "a release id such as 3f2a9c0d or MODEL/VARIANT/ID"))
