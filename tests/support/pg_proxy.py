"""A proxy between a PostgreSQL client and its server that reads their messages, and cuts a connection at one.

Requests of a client are counted in exchanges: a `Query` message, or all messages up to a `Sync`, with the answer up to
`ReadyForQuery` (https://www.postgresql.org/docs/current/protocol-message-formats.html). The exchange with a chosen
number is lost on one side or on the other:

- `before`: it does not reach the server;
- `after`: the server has done it, and the client gets no answer;
- `late`: the client loses its connection, and the exchange reaches the server when the test says so, as from a network
  or a pooler that stalled.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

Side = Literal["before", "after", "late"]
_SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102
"""Codes of a first packet that is no startup message."""
_LINGER_NOT = struct.pack("ii", 1, 0)
_LONGEST = 10.0


@dataclass(frozen=True)
class Exchange:
    """A request of a client."""

    connection: int
    """Its number, from 1."""
    text: str
    """The statements, cut short."""


class Proxy:
    """A proxy on a port of 127.0.0.1.

    Args:
        port: port of the server, on 127.0.0.1.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._pairs: dict[int, tuple[socket.socket, socket.socket]] = {}
        self._number = 0
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._wanted: Callable[[Exchange], bool] = lambda exchange: True
        self._place, self._side = 0, "before"
        self.seen: list[Exchange] = []
        """The exchanges since `watch`."""
        self.cuts = 0
        """How many connections were cut at an exchange since then."""
        self._held: list[tuple[socket.socket, bytes]] = []
        self._refusing = False
        self._spawn(self._accept)

    def watch(self, wanted: Callable[[Exchange], bool] = lambda exchange: True) -> None:
        """Count the exchanges that are wanted from now on, and cut no connection."""
        with self._lock:
            self._wanted, self._place, self.cuts = wanted, 0, 0
            self.seen = []

    def cut_at(self, place: int, side: Side, wanted: Callable[[Exchange], bool] = lambda exchange: True) -> None:
        """Cut the connection of the exchange with this number, from 1, among those that are wanted from now on."""
        self.watch(wanted)
        with self._lock:
            self._place, self._side = place, side

    def stop_watching(self) -> None:
        """Count no more exchanges, and cut no connection."""
        with self._lock:
            self._wanted, self._place = (lambda exchange: False), 0

    def cut_all(self) -> None:
        """Cut all connections now."""
        with self._lock:
            pairs = list(self._pairs.values())
        for pair in pairs:
            for one in pair:
                _reset(one)

    def refuse(self, refusing: bool) -> None:
        """Refuse connections from now on, or accept them again."""
        self._refusing = refusing

    def deliver(self) -> int:
        """Send the exchanges that were held up (`late`), wait until the server has done them. Return their number."""
        held, self._held = self._held, []
        for server, data in held:
            with contextlib.suppress(OSError):
                server.sendall(data)
                server.shutdown(socket.SHUT_WR)  # nobody is there any more who would ask further
                while server.recv(1 << 16):
                    pass
            server.close()
        return len(held)

    def close(self) -> None:
        """Close the proxy and all of its connections."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # closing it alone does not end `accept`
        self._listener.close()
        self.cut_all()
        for server, _ in self._held:
            server.close()
        for thread in self._threads:
            thread.join(_LONGEST)
            assert not thread.is_alive(), thread

    def _spawn(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                _reset(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                _reset(client)  # as if nothing listened here
                continue
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._number += 1
                self._pairs[self._number] = (client, server)
            connection = _Connection(self, self._number, client, server)
            self._spawn(connection.asks)
            self._spawn(connection.answers)

    def _begins(self, exchange: Exchange) -> Side | None:
        """Count an exchange, and return the side on which it is lost; None: it is not lost."""
        with self._lock:
            if not self._wanted(exchange):
                return None
            self.seen.append(exchange)
            if len(self.seen) != self._place:
                return None
            self.cuts += 1
            return self._side  # type: ignore[return-value]  set by `cut_at` only

    def _hold(self, server: socket.socket, data: bytes) -> None:
        with self._lock:
            self._held.append((server, data))

    def _gone(self, number: int) -> None:
        with self._lock:
            self._pairs.pop(number, None)


class _Connection:
    def __init__(self, proxy: Proxy, number: int, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._number, self._client, self._server = proxy, number, client, server
        self._statements: dict[bytes, str] = {}
        self._held = False
        self._losing = threading.Event()
        """The client does not get the answer that the server gives next."""

    def asks(self) -> None:
        """Forward what the client sends, until the client or the server has closed its connection."""
        with contextlib.suppress(OSError, EOFError):
            if self._startup():
                self._hand_on()
        _reset(self._client)
        if not self._held:
            _reset(self._server)
        self._proxy._gone(self._number)

    def answers(self) -> None:
        """Forward what the server answers. An answer that must be lost is first read to its end."""
        with contextlib.suppress(OSError, EOFError):
            while True:
                kind, data = _message(self._server)
                if self._losing.is_set():
                    if kind == b"Z":
                        break
                else:
                    self._client.sendall(data)
        if not self._held:
            for one in (self._client, self._server):
                _reset(one)

    def _startup(self) -> bool:
        while True:
            size = _exactly(self._client, 4)
            packet = size + _exactly(self._client, int.from_bytes(size) - 4)
            code = int.from_bytes(packet[4:8])
            if code in (_SSL, _GSS):
                self._client.sendall(b"N")
                continue
            self._server.sendall(packet)
            return code != _CANCEL

    def _hand_on(self) -> None:
        pending, texts = b"", []
        while True:
            kind, data = _message(self._client)
            pending += data
            texts += self._texts(kind, data)
            if kind == b"X":
                self._server.sendall(pending)
                return
            if kind == b"p":  # the answer to a question for a password
                self._server.sendall(pending)
                pending = b""
                continue
            if kind not in (b"Q", b"S"):
                continue
            side = self._proxy._begins(Exchange(self._number, "; ".join(texts)))
            if side == "late":
                self._held = True
                self._proxy._hold(self._server, pending)
            if side in ("before", "late"):
                return
            if side == "after":
                self._losing.set()
            self._server.sendall(pending)
            pending, texts = b"", []

    def _texts(self, kind: bytes, data: bytes) -> list[str]:
        body = data[5:]
        if kind == b"Q":
            return [_short(body.rstrip(b"\0"))]
        if kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            self._statements[name] = _short(text)
            if name:
                return [f"prepare: {_short(text)}"]
        elif kind == b"B":
            _, name, _ = body.split(b"\0", 2)
            return [self._statements.get(name, "?")]
        return []


@contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    """Open a proxy of the server at a port of 127.0.0.1, and close it at the end."""
    found = Proxy(port)
    try:
        yield found
    finally:
        found.close()


def _short(text: bytes) -> str:
    return " ".join(text.decode(errors="replace").split())[:200]


def _exactly(one: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        data = one.recv(size - len(found))
        if not data:
            raise EOFError
        found += data
    return found


def _message(one: socket.socket) -> tuple[bytes, bytes]:
    """Return the next message: its type, and all of its bytes."""
    head = _exactly(one, 5)
    return head[:1], head + _exactly(one, int.from_bytes(head[1:]) - 4)


def _reset(one: socket.socket) -> None:
    """Reset a connection: the other side gets an error at once when it reads or writes."""
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        one.shutdown(socket.SHUT_RDWR)
    one.close()
