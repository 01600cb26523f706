"""Codecs: what encrypts values before a store sees them, and decrypts them after it.

A codec turns bytes into other bytes and back. Beside the bytes it is given facts about them (`About`): what kind of
value they are, of which run, and where they lie. A codec that binds them to the facts as associated data has every
value refused that was moved to another place. `orchestrator.stores.aes_gcm` has the codec that comes with the library.

Values that were stored before the codec was set are clear. They are accepted, unless the codec has an attribute `clear`
that says "refuse": then they count as damaged, since who has no key can write such values, too.

An encoded value is kept as `$encrypted KEY BASE64`, so that a reader without the codec can say which key it needs.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from orchestrator.errors import EncryptionKeyMissing, InvalidValue, StoreUnavailable, message_of
from orchestrator.stores.rows import MARK

About: TypeAlias = Mapping[str, str]
"""Facts about a value: `kind`, and what else says where it lies (`run_id`, `seq`, ...). They do not change."""

MAX_KEY_ID = 200


@runtime_checkable
class Codec(Protocol):
    """Encrypts and decrypts values. Both methods are sync and are called on the event loop: they must not wait.

    A codec that asks a key service keeps data keys, and asks once for many values.
    """

    @property
    def key_id(self) -> str:
        """Names the key that `encode` uses: 1 to 200 printable characters without a space. It is stored in clear."""
        ...

    def encode(self, data: bytes, *, about: About) -> bytes:
        """Encode a value.

        Args:
            data: the value.
            about: facts that `decode` will be given again.
        """
        ...

    def decode(self, data: bytes, *, key_id: str, about: About) -> bytes:
        """Decode a value.

        Args:
            data: what `encode` returned.
            key_id: the `key_id` that the codec had then.
            about: the same facts, if the value was not moved.

        Raises:
            LookupError: this key is missing; the message says why, and never holds a key.
            ValueError: the value is damaged, or belongs to another place.
        """
        ...


class WrongKey(LookupError):
    """Raised by codecs when the key of this id is another one than the value was encoded with."""


class Damaged(ValueError):
    """Raised when an encoded value cannot be decoded although its key is there."""


class Coding:
    """Encodes and decodes with a codec, and turns its errors into those of stores."""

    def __init__(self, codec: Codec) -> None:
        if isinstance(codec, type) or not isinstance(codec, Codec):
            kind = f"the class {codec.__name__}" if isinstance(codec, type) else f"of type {type(codec).__name__}"
            raise InvalidValue(
                f"codec= is {kind}: give a codec: an object with key_id, encode and decode", where="codec"
            )
        self._codec = codec
        check_key_id(codec.key_id)
        self.refuses_clear = check_clear(getattr(codec, "clear", "accept")) == "refuse"
        """True if values that are not encoded count as damaged."""

    def encode(self, data: bytes, about: About) -> tuple[str, bytes]:
        """The id of the key that was used, and the encoded value.

        Raises:
            StoreUnavailable: the codec failed.
            EncryptionKeyMissing: the key is missing.
        """
        key_id = self._codec.key_id
        try:
            return key_id, self._codec.encode(data, about=about)
        except LookupError as error:
            raise EncryptionKeyMissing(described(about), key_id, message_of(error)) from error
        except Exception as error:  # of the user's: a key service may be away
            raise _failed(error) from error

    def decode(self, key_id: str, data: bytes, about: About) -> bytes:
        """The value.

        Raises:
            EncryptionKeyMissing: the key is missing, or another one.
            Damaged: the value is damaged, or was moved here.
            StoreUnavailable: the codec failed.
        """
        try:
            return self._codec.decode(data, key_id=key_id, about=about)
        except LookupError as error:
            raise EncryptionKeyMissing(described(about), key_id, message_of(error)) from error
        except ValueError as error:
            raise Damaged("it cannot be decrypted: it was changed, or belongs to another place") from error
        except Exception as error:
            raise _failed(error) from error


def _failed(error: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"the codec failed ({type(error).__name__}); nothing was changed")


def check_key_id(key_id: object) -> str:
    """Refuse an id of a key that cannot be stored beside a value.

    Raises:
        InvalidValue: it cannot be.
    """
    if not isinstance(key_id, str) or not 0 < len(key_id) <= MAX_KEY_ID or not key_id.isprintable() or " " in key_id:
        raise InvalidValue(
            f"the key id of a codec is {key_id!r:.80}: give 1 to {MAX_KEY_ID} printable characters without a space",
            where="codec",
        )
    return key_id


Clear: TypeAlias = Literal["accept", "refuse"]
"""What a codec says of values that are not encoded: they are read as they are, or count as damaged."""


def check_clear(clear: object) -> Clear:
    """What is said of values that are not encoded, if it is one of the two.

    Raises:
        InvalidValue: it is not.
    """
    if clear == "accept":
        return "accept"
    if clear == "refuse":
        return "refuse"
    raise InvalidValue(f"clear={clear!r:.80} of a codec: use 'accept' or 'refuse'", where="codec")


def described(about: About) -> str:
    """What a value is, for messages."""
    if about.get("run_id"):
        return f"run {about['run_id']!r}"
    return f"{about['kind']} {about.get('name', '')!r}"


def about_bytes(about: About) -> bytes:
    """Facts as bytes, the same for equal facts: associated data for codecs."""
    return json.dumps(dict(about), sort_keys=True, separators=(",", ":")).encode()


# -- how encoded values are kept ---------------------------------------------------------------------------------------


def as_text(key_id: str, data: bytes) -> str:
    """An encoded value as text."""
    return f"{MARK} {key_id} {base64.b64encode(data).decode()}"


def of_text(text: str) -> tuple[str, bytes] | None:
    """The id of the key and the encoded value of a text; None: the text is not encoded.

    Raises:
        Damaged: it was, and is cut off or changed.
    """
    if not text.startswith(f"{MARK} "):
        return None
    return key_of(text), decoded_base64(text.rpartition(" ")[2])


def key_of(text: str) -> str:
    """The id of the key of an encoded text; empty: the text is not encoded.

    Raises:
        Damaged: the text is cut off.
    """
    if not text.startswith(f"{MARK} "):
        return ""
    parts = text.split(" ")
    if len(parts) != 3 or not parts[1]:
        raise Damaged("it is cut off")
    return parts[1]


def decoded_base64(text: str) -> bytes:
    """Bytes that were written in base64.

    Raises:
        Damaged: they were changed.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Damaged("it is no base64") from error


def encoded_in(value: Mapping[str, object]) -> str | None:
    """The encoded text of an object; None: the object is not encoded."""
    found = value.get(MARK)
    return found if isinstance(found, str) and found.startswith(f"{MARK} ") else None
