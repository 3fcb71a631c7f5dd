"""A Hugging Face Hub of one repository, on loopback: just what the client asks of the real one."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlparse

REPO = "org/tiny"


class FakeHub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, folder: Path, commit: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.commit = commit
        self.asked: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def fake_hub(folder: Path, commit: str) -> Generator[FakeHub]:
    server = FakeHub(folder, commit)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *_args: object) -> None:  # noqa: A002
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = unquote(urlparse(self.path).path)
        self.server.asked.append(f"{self.command} {path}")
        files = {
            p.relative_to(self.server.folder).as_posix(): p
            for p in sorted(self.server.folder.rglob("*"))
            if p.is_file()
        }
        commit = self.server.commit
        if path.startswith(f"/api/models/{REPO}/tree/"):
            entries = [{"type": "file", "path": n, "size": p.stat().st_size, "oid": _oid(p)} for n, p in files.items()]
            self._send(json.dumps(entries).encode(), {"Content-Type": "application/json"}, body=body)
        elif path in (f"/api/models/{REPO}", *(f"/api/models/{REPO}/revision/{r}" for r in ("main", commit))):
            info = {"id": REPO, "modelId": REPO, "sha": commit, "private": False, "tags": [], "downloads": 0,
                    "siblings": [{"rfilename": name} for name in files]}  # fmt: skip
            self._send(json.dumps(info).encode(), {"Content-Type": "application/json"}, body=body)
        elif path.startswith(f"/api/models/{REPO}/revision/"):
            self._send(b"{}", {"X-Error-Code": "RevisionNotFound"}, status=404, body=body)
        elif path.startswith(f"/{REPO}/resolve/") and (name := path.split("/", 5)[5]) in files:
            data = files[name].read_bytes()
            headers = {"ETag": f'"{_oid(files[name])}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
            if span := self.headers.get("Range"):
                first, _, last = span.removeprefix("bytes=").partition("-")
                data = data[int(first) : int(last or len(data)) + 1]
                headers["Content-Range"] = f"bytes {first}-{int(first) + len(data) - 1}/{files[name].stat().st_size}"
            self._send(data, headers, status=206 if span else 200, body=body)
        elif path.startswith(f"/{REPO}/resolve/"):
            self._send(b"", {"X-Error-Code": "EntryNotFound"}, status=404, body=body)
        else:
            self._send(b"{}", {"X-Error-Code": "RepoNotFound"}, status=404, body=body)

    def _send(self, data: bytes, headers: dict[str, str], *, status: int = 200, body: bool) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)


def _oid(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()
