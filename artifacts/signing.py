"""Sign a release, and say whose signature it bears: OpenSSF model signing with key pairs.

``signatures/<key>.json`` beside the manifest is a Sigstore bundle over the digests of every file, the manifest among
them. The library is given the digests that the registry has on record: nothing is read again in order to sign. Its own
command verifies a pulled release with them.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, cast

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from model_signing import manifest as signed
from model_signing._hashing.hashing import Digest
from model_signing._signing import sign_ec_key
from model_signing._signing.sign_sigstore_pb import Signature
from model_signing._signing.signing import Payload

from artifacts.policy import Policy
from artifacts.registry import ATTACHED, MANIFEST, SIGNATURES, Registry
from artifacts.release import Release, ReleaseRef
from recipes.errors import BadRequest, Problem

SERIALIZATION = {
    "method": "files",
    "hash_type": "sha256",
    "allow_symlinks": False,
    "ignore_paths": [SIGNATURES.rstrip("/")],
}


def sign(registry: Registry, ref: ReleaseRef, private_key: Path, password: str | None = None) -> str:
    """Add a signature by the elliptic-curve key in the PEM file ``private_key``. Returns the key's name.

    Raises :class:`BadRequest` for a key that can't be used, :class:`RegistryError` as :meth:`Registry.release`.
    """
    name = _name_of_private(private_key, password)
    payload = Payload(_as_signed(str(ref), digests(registry, registry.release(ref))))
    signature = sign_ec_key.Signer(private_key, cast("Any", password.encode() if password else None)).sign(payload)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "signature"
        signature.write(path)
        registry.storage.create(f"{ref.prefix}/{SIGNATURES}{name}.json", path.read_bytes())
    return name


def digests(registry: Registry, release: Release) -> dict[str, str]:
    """Path → hex SHA-256 of all that a signature covers: the manifest, its files, and what is attached to them."""
    found = {entry.path: entry.sha256 for entry in release.files}
    for name in (MANIFEST, *ATTACHED):
        if (data := registry.storage.read(f"{release.ref.prefix}/{name}")) is not None:
            found[name] = hashlib.sha256(data).hexdigest()
    return found


def trusted_signatures(registry: Registry, release: Release, policy: Policy, today: date) -> Iterator[str | Problem]:
    """For each trusted key its name in the policy, or why its signature does not count."""
    covered = digests(registry, release)
    for name, key in policy.trusted_keys.items():
        where = f"signature {name}"
        path = Path(key.public_key)
        data = registry.storage.read(f"{release.ref.prefix}/{SIGNATURES}{name_of_public(path)}.json")
        if data is None:
            yield Problem(where, "none", f"one by {path.name}", "OpenSSF model-signing makes it.")
        elif key.not_after is not None and today > key.not_after:
            yield Problem(where, f"the key expired on {key.not_after}", "a key that is valid today")
        elif why := _refuted(data, path, covered):
            yield Problem(where, why, "a signature over these very files")
        else:
            yield name


def name_of_public(path: Path) -> str:
    """First 16 hex digits of the SHA-256 of the public key in PEM. Raises :class:`BadRequest`."""
    try:
        key = load_pem_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise BadRequest(Problem("trusted_keys", f"{path} ({_said(error)})", "a public key in PEM")) from None
    return _name(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def _name_of_private(path: Path, password: str | None) -> str:
    try:
        key = load_pem_private_key(path.read_bytes(), password.encode() if password else None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        hint = "A locked one: set ENGINEWORKS_SIGNING_PASSWORD." if "assword" in str(error) else ""
        raise BadRequest(Problem("--key", f"{path} ({_said(error)})", "a private key in PEM", hint)) from None
    if not isinstance(key, EllipticCurvePrivateKey) or key.curve.name not in ("secp256r1", "secp384r1", "secp521r1"):
        raise BadRequest(
            Problem("--key", f"{path} is of another kind", "an elliptic-curve key on P-256, P-384 or P-521")
        )
    return _name(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def _said(error: Exception) -> str:
    return error.strerror or "unreadable" if isinstance(error, OSError) else type(error).__name__


def _name(pem: bytes) -> str:
    return hashlib.sha256(pem).hexdigest()[:16]


def _as_signed(name: str, covered: dict[str, str]) -> signed.Manifest:
    serialization = signed.SerializationType.from_args(SERIALIZATION)
    items = [
        serialization.new_item(path, Digest("sha256", bytes.fromhex(digest)))
        for path, digest in sorted(covered.items())
    ]
    return signed.Manifest(name, items, serialization)


def _refuted(bundle: bytes, public_key: Path, covered: dict[str, str]) -> str:
    """Why a bundle does not vouch for ``covered``, or an empty string."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "signature"
        path.write_bytes(bundle)
        try:
            vouched = sign_ec_key.Verifier(public_key).verify(Signature.read(path))
        except InvalidSignature:
            return "it is not by this key, or has been changed"
        except Exception as error:  # the library raises what its parsers raise
            return f"it can't be read ({type(error).__name__})"
    said = {item.identifier: item.digest.digest_hex for item in vouched.resource_descriptors()}
    if said == covered:
        return ""
    other = sorted(path for path in said.keys() | covered.keys() if said.get(path) != covered.get(path))
    return f"it is over other files ({', '.join(other[:3])})"
