"""Does a release show what a channel wants?"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from artifacts.channel import Channel
from artifacts.manifest import FileEntry
from artifacts.policy import ChannelPolicy, Policy
from artifacts.registry import Progress, Registry
from artifacts.release import Release
from artifacts.verify import verify
from recipes.errors import Problem


def unmet(
    release: Release, channel: str, wants: ChannelPolicy, earlier: Channel | None, now: datetime
) -> Iterator[Problem]:
    """What the policy wants of the release's claims and past. ``earlier``: the channel that ``wants.after`` names."""
    outcome = release.verdict.outcome
    if outcome not in wants.verdicts:
        yield Problem("verdict", outcome, " or ".join(wants.verdicts), f"Policy of {channel}.")
    for pattern in wants.evidence:
        if not any(fnmatchcase(entry.path, pattern) for entry in release.files):
            yield Problem("evidence", "none", pattern, f"Policy of {channel}.")
    if wants.after is not None:
        yield from _soaked(release, wants.after, timedelta(hours=wants.soak_hours), earlier, now)


def _soaked(
    release: Release, after: str, wanted: timedelta, earlier: Channel | None, now: datetime
) -> Iterator[Problem]:
    stays = [stay for stay in earlier.stays() if stay.release_id == release.release_id] if earlier else []
    if not stays:
        yield Problem(after, "never pointed at it", f"a stay in {after} first", f"Promote it to {after}.")
    elif stays[-1].withdrawn:
        yield Problem(after, "was rolled back from it", f"a stay in {after} that ended well")
    elif (lasted := max(stay.lasted(now) for stay in stays)) < wanted:
        yield Problem(after, f"pointed at it for {_hours(lasted)} h", f"{_hours(wanted)} h")


def damage(
    registry: Registry, release: Release, *, every_byte: bool, progress: Progress = lambda _done, _total: None
) -> list[Problem]:
    """What is missing from the registry, or not as the manifest says. No override lifts this."""
    ref = release.ref
    if every_byte:
        return list(verify(registry, ref, progress))

    def has(entry: FileEntry) -> bool:
        return registry.storage.has(f"{ref.prefix}/{entry.path}", entry)

    with ThreadPoolExecutor(8) as pool:
        there = pool.map(has, release.files)
        return [
            Problem(entry.path, "missing or changed", f"{entry.size} bytes, sha256 {entry.sha256[:16]}")
            for entry, found in zip(release.files, there, strict=True)
            if not found
        ]


def signature_problems(registry: Registry, release: Release, policy: Policy, today: datetime) -> list[Problem]:
    """Why no trusted key vouches for the release; nothing when one does."""
    from artifacts.signing import trusted_signatures

    found = list(trusted_signatures(registry, release, policy, today.date()))
    problems = [result for result in found if isinstance(result, Problem)]
    return problems if len(problems) == len(found) else []


def _hours(duration: timedelta) -> str:
    return f"{round(duration.total_seconds() / 3600, 2):g}"
