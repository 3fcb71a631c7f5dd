"""Is an output what it should be? Read from its own files, not from what the tool that wrote them says."""

from builders.integrity.findings import Finding, Integrity, read_integrity, read_life, write_integrity

__all__ = ["Finding", "Integrity", "read_integrity", "read_life", "write_integrity"]
