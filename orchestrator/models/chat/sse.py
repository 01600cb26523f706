"""Server-sent events, as far as chat completions use them: the data of each, as it comes.

https://html.spec.whatwg.org/multipage/server-sent-events.html. The `openai` package reads them too, in generators
that it does not close: on trio, each stream that is left early, or that ends with `[DONE]`, leaves some behind.
"""

from __future__ import annotations

from collections.abc import Iterator

_BOM = b"\xef\xbb\xbf"


class EventDecoder:
    """Bytes in, however they are cut; the data of whole events out."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._return = False
        self._first = True

    def feed(self, received: bytes) -> Iterator[str]:
        """The data of the events that end in these bytes. Those without data, and comments, are left out.

        Raises:
            UnicodeDecodeError: it is no UTF-8.
        """
        for line in self._lines(received):
            if line:
                self._field(line)
            elif self._data:
                data = b"\n".join(self._data)
                self._data.clear()
                if data:
                    yield data.decode()

    def rest(self) -> Iterator[str]:
        """The data of an event that the stream ended in. A stream that was cut off may have one that is not whole."""
        yield from self.feed(b"\n\n")

    def _lines(self, received: bytes) -> Iterator[bytes]:
        """Lines end with `\\n`, `\\r` or both."""
        if self._return and received[:1] == b"\n":
            received = received[1:]
        if received:
            self._return = received.endswith(b"\r")
        lines = received.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines[:-1]:
            self._line += line
            if self._first:
                self._first = False
                del self._line[: 3 * self._line.startswith(_BOM)]
            yield bytes(self._line)
            self._line.clear()
        self._line += lines[-1]

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":  # what is a comment, an id or a kind says nothing here
            self._data.append(value.removeprefix(b" "))
