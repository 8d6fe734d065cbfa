"""A proxy before PostgreSQL that cuts a connection at the worst moment: around the COMMIT of a transaction."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

COMMIT: Final = b"COMMIT"


class CuttingProxy:
    """Listens in `folder` as PostgreSQL does and forwards to the socket `server`.

    cut_next: "" forwards all; "before": the next COMMIT does not reach the server; "after": its answer does not reach
    the client. is_target: whether a connection is to be cut, by everything the client has said so far.
    """

    def __init__(self, folder: Path, server: Path) -> None:
        self.folder, self.cut_next, self.n_cut = folder, "", 0
        self.is_target: Callable[[bytes], bool] = lambda said: True
        self._server = server
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(folder / ".s.PGSQL.5432"))
        self._door.listen(50)
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for link in (self._door, *self._open):
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._server))
            self._open += [client, server]
            _Link(self, client, server).start()


class _Link:
    def __init__(self, proxy: CuttingProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._said, self._mute = b"", False

    def start(self) -> None:
        threading.Thread(target=self._forward, args=(self._client, self._server, self._ask), daemon=True).start()
        threading.Thread(target=self._forward, args=(self._server, self._client, self._answer), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, look: Callable[[bytes], bool]) -> None:
        try:
            while data := source.recv(65536):
                if not look(data):
                    break
                target.sendall(data)
        except OSError:
            pass
        for link in (self._client, self._server):
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def _ask(self, data: bytes) -> bool:
        self._said = (self._said + data)[-200_000:]
        if self._proxy.cut_next and COMMIT in data and self._proxy.is_target(self._said):
            how, self._proxy.cut_next = self._proxy.cut_next, ""
            self._proxy.n_cut += 1
            self._mute = how == "after"
            return self._mute
        return True

    def _answer(self, data: bytes) -> bool:
        return not self._mute
