"""A tap on the wire: everything that passes between sites and server, in both directions, byte by byte."""

from __future__ import annotations

import socket
import threading
from types import TracebackType

__all__ = ["Tap"]


class Tap:
    """Listens at a port of its own and passes all on to another."""

    def __init__(self, port: int) -> None:
        self._onward = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._pieces: list[bytearray] = []
        self._threads: list[threading.Thread] = []
        self._ends: list[socket.socket] = []

    def __enter__(self) -> Tap:
        self._run(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._ends:
            _hang_up(end)
        for thread in self._threads:
            thread.join(10)

    def recorded(self) -> bytes:
        """Each connection's bytes of one direction after the other."""
        return b"\0".join(bytes(piece) for piece in self._pieces)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._onward))
            except OSError:
                near.close()
                continue
            self._ends += [near, far]
            for source, target in ((near, far), (far, near)):
                piece = bytearray()
                self._pieces.append(piece)
                self._run(self._pass_on, source, target, piece)

    def _run(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _pass_on(self, source: socket.socket, target: socket.socket, piece: bytearray) -> None:
        try:
            while some := source.recv(1 << 16):
                piece += some
                target.sendall(some)
        except OSError:
            pass
        for end in (source, target):
            _hang_up(end)
        source.close()


def _hang_up(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
