"""Codecs, which encrypt values before they are stored and decrypt them after they are read.

A codec turns bytes into other bytes and back. It is also given facts about the bytes (`About`): the kind of the value,
its run, and its place. A codec that binds values to the facts as associated data refuses every value that was moved to
another place. `AESGCMCodec` is one.

Values that were stored before the codec was set are clear. They are accepted, unless the codec has an attribute `clear`
with the value "refuse": then they count as damaged, since a writer without the key can make such values, too.

An encoded value is stored as `$encrypted KEY BASE64`, so that a reader without the codec can report which key it needs.

`AESGCMCodec` is AES-256-GCM (NIST SP 800-38D) of the package `cryptography`, the extra `encryption`. Each value has a
random nonce of 96 bits. Each run has a key of its own, which HKDF (RFC 5869) derives from the codec's key and the run's
id, and so has each memory item and schedule. So the bound of 2^32 values for one key and random nonces holds for each
of them, not for the store. The kind and place of a value are associated data.

An encoded value consists of the version (1 byte), a check of the key (8 bytes), the nonce (12), and the ciphertext
with its tag. The check is derived from the key, like the keys of runs; it distinguishes a wrong key from damage.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import os
import secrets
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

from orchestrator.errors import EncryptionKeyMissing, InvalidValue, StoreUnavailable, install_command, message_of
from orchestrator.redaction import know
from orchestrator.stores.rows import MARK

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


About: TypeAlias = Mapping[str, str]
"""Facts about a value: its `kind` and its place (`run_id`, `seq`, ...). They do not change."""

MAX_KEY_ID = 200


@runtime_checkable
class Codec(Protocol):
    """Encrypts and decrypts values. Both methods are sync and are called on the event loop: they must not wait.

    A codec that uses a key service caches data keys, and makes one request for many values.
    """

    @property
    @abstractmethod
    def key_id(self) -> str:
        """Id of the key that `encode` uses: 1 to 200 printable characters without a space. It is stored in clear."""
        ...

    @abstractmethod
    def encode(self, data: bytes, *, about: About) -> bytes:
        """Encode a value.

        Args:
            data: the value.
            about: facts that `decode` receives again.
        """
        ...

    @abstractmethod
    def decode(self, data: bytes, *, key_id: str, about: About) -> bytes:
        """Decode a value.

        Args:
            data: what `encode` returned.
            key_id: the `key_id` of the codec at that time.
            about: the same facts, if the value was not moved.

        Raises:
            LookupError: this key is missing; the message gives the reason and never contains a key.
            ValueError: the value is damaged, or belongs to another place.
        """
        ...


class WrongKey(LookupError):
    """Raised by codecs when the key with this id is not the key with which the value was encoded."""


class Damaged(ValueError):
    """Raised when an encoded value cannot be decoded although its key is known."""


class Coding:
    """Encodes and decodes with a codec, and turns its errors into those of stores."""

    def __init__(self, codec: Codec) -> None:
        if isinstance(codec, type) or not isinstance(codec, Codec):
            kind = f"the class {codec.__name__}" if isinstance(codec, type) else f"of type {type(codec).__name__}"
            raise InvalidValue(f"codec= is {kind}: give an object with key_id, encode and decode", where="codec")
        self._codec = codec
        check_key_id(codec.key_id)
        self.refuses_clear = check_clear(getattr(codec, "clear", "accept")) == "refuse"
        """True if values that are not encoded count as damaged."""

    def encode(self, data: bytes, about: About) -> tuple[str, bytes]:
        """Return the id of the key that was used, and the encoded value.

        Raises:
            StoreUnavailable: the codec failed.
            EncryptionKeyMissing: the key is missing.
        """
        key_id = self._codec.key_id
        try:
            return key_id, self._codec.encode(data, about=about)
        except LookupError as error:
            raise EncryptionKeyMissing(described(about), key_id, message_of(error)) from error
        except Exception as error:  # a codec of the user may raise any error: a key service may be down
            raise _failed(error) from error

    def decode(self, key_id: str, data: bytes, about: About) -> bytes:
        """Return the decoded value.

        Raises:
            EncryptionKeyMissing: the key is missing, or is a different one.
            Damaged: the value is damaged, or was moved to this place.
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
    """Refuse the id of a key that cannot be stored with a value.

    Raises:
        InvalidValue: the id is not valid.
    """
    if not isinstance(key_id, str) or not 0 < len(key_id) <= MAX_KEY_ID or not key_id.isprintable() or " " in key_id:
        raise InvalidValue(
            f"the key id of a codec is {key_id!r:.80}: give 1 to {MAX_KEY_ID} printable characters without a space",
            where="codec",
        )
    return key_id


Clear: TypeAlias = Literal["accept", "refuse"]
"""A codec's rule for values that are not encoded: they are accepted, or count as damaged."""


def check_clear(clear: object) -> Clear:
    """Return the rule for values that are not encoded, if it is valid.

    Raises:
        InvalidValue: it is not one of the two rules.
    """
    if clear == "accept":
        return "accept"
    if clear == "refuse":
        return "refuse"
    raise InvalidValue(f"clear={clear!r:.80} of a codec: use 'accept' or 'refuse'", where="codec")


def described(about: About) -> str:
    """Return a value's kind and place, for messages."""
    if about.get("run_id"):
        return f"run {about['run_id']!r}"
    return f"{about['kind']} {about.get('name', '')!r}"


def about_bytes(about: About) -> bytes:
    """Return facts as bytes, equal for equal facts: associated data for codecs."""
    return json.dumps(dict(about), sort_keys=True, separators=(",", ":")).encode()


# -- encoded values as strings -----------------------------------------------------------------------------------------


def as_text(key_id: str, data: bytes) -> str:
    """Return an encoded value as text."""
    return f"{MARK} {key_id} {base64.b64encode(data).decode()}"


def of_text(text: str) -> tuple[str, bytes] | None:
    """Return the key id and the encoded value in a string; None if the string is not encoded.

    Raises:
        Damaged: the string is truncated or changed.
    """
    if not text.startswith(f"{MARK} "):
        return None
    return key_of(text), decoded_base64(text.rpartition(" ")[2])


def key_of(text: str) -> str:
    """Return the key id of an encoded string; empty if the string is not encoded.

    Raises:
        Damaged: the string is truncated.
    """
    if not text.startswith(f"{MARK} "):
        return ""
    parts = text.split(" ")
    if len(parts) != 3 or not parts[1]:
        raise Damaged("it is cut off")
    return parts[1]


def decoded_base64(text: str) -> bytes:
    """Return the bytes that a base64 string encodes.

    Raises:
        Damaged: the string was changed.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Damaged("it is not base64") from error


def encoded_in(value: Mapping[str, object]) -> str | None:
    """Return the encoded string in an object; None if the object is not encoded."""
    found = value.get(MARK)
    return found if isinstance(found, str) and found.startswith(f"{MARK} ") else None


KEY_BYTES = 32
_VERSION = b"\x01"
_CHECK = 8
_NONCE = 12
_TAG = 16
_HEAD = len(_VERSION) + _CHECK
_MOST_CIPHERS = 512
"""Maximum number of cached keys: those of the runs that were used last."""
_ENV = "env:"


def new_key() -> str:
    """Return a new random key as text, for an environment variable or a vault."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


class AESGCMCodec:
    """Encrypts values with AES-256-GCM. Needs the extra `encryption`.

        codec = AESGCMCodec({"2026": "env:RUNS_KEY_2026", "2025": "env:RUNS_KEY_2025"})
        Executor(store="sqlite:///runs.db", codec=codec)

    Args:
        keys: key id -> key: `env:NAME`, which is read from the environment when the key is first used, or 32 bytes. The
            environment has 32 bytes in base64 (see `new_key`). The first key writes, all of them read. Ids are stored
            in clear.
        clear: `accept`: values that are not encrypted are accepted, such as those from before the codec was set.
            `refuse`: they count as damaged. Use it for stores that always had a codec, or are encrypted copies:
            then a writer without the key cannot add values.

    Raises:
        InvalidValue: there is no key, an id cannot be stored, a key is not valid, or `clear` is neither value.
        ImportError: the package `cryptography` is missing.
    """

    def __init__(self, keys: Mapping[str, str | bytes], *, clear: Clear = "accept") -> None:
        try:
            import cryptography.hazmat.primitives.ciphers.aead  # noqa: F401  at once, not at the first write
        except ImportError as error:
            raise ImportError(f"AESGCMCodec needs the package cryptography: {install_command('encryption')}") from error
        if not keys:
            raise InvalidValue("AESGCMCodec was given no key: give one, such as {'2026': 'env:RUNS_KEY'}", where="keys")
        self.clear = check_clear(clear)
        self._given = {check_key_id(name): _checked(name, key) for name, key in keys.items()}
        self._key_id = next(iter(self._given))
        self._keys: dict[str, bytes] = {}
        self._ciphers: OrderedDict[tuple[str, str], tuple[bytes, AESGCM]] = OrderedDict()
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"AESGCMCodec(keys={[*self._given]})"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("an AESGCMCodec cannot be pickled: it holds keys")

    @property
    def key_id(self) -> str:
        """See `Codec`."""
        return self._key_id

    def check_keys(self) -> None:
        """Look up all keys now, to detect missing ones early.

        Raises:
            LookupError: a variable is not set, or does not contain a key.
        """
        for key_id in self._given:
            self._key(key_id)

    def encode(self, data: bytes, *, about: About) -> bytes:
        """See `Codec`."""
        check, cipher = self._cipher(self._key_id, about)
        nonce = os.urandom(_NONCE)
        return _VERSION + check + nonce + cipher.encrypt(nonce, data, about_bytes(about))

    def decode(self, data: bytes, *, key_id: str, about: About) -> bytes:
        """See `Codec`."""
        from cryptography.exceptions import InvalidTag

        check, cipher = self._cipher(key_id, about)
        if len(data) < _HEAD + _NONCE + _TAG or data[:1] != _VERSION:
            raise ValueError("no value of this codec")
        if not hmac.compare_digest(data[1:_HEAD], check):
            raise WrongKey("the key with this id is another one, or the value was changed")
        try:
            return cipher.decrypt(data[_HEAD : _HEAD + _NONCE], data[_HEAD + _NONCE :], about_bytes(about))
        except InvalidTag:
            raise ValueError("it does not match its key and its place") from None

    def _cipher(self, key_id: str, about: About) -> tuple[bytes, AESGCM]:
        """Return the check of a key, and the cipher with the key of a run."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        run_id = about.get("run_id")
        name = (key_id, f"run {run_id}" if run_id else f"value {about_bytes(about).decode()}")
        with self._lock:
            found = self._ciphers.get(name)
            if found is None:
                key = self._key(key_id)
                found = (
                    _derived(key, b"check")[:_CHECK],
                    AESGCM(_derived(key, name[1].encode("utf-8", "surrogatepass"))),
                )
                self._ciphers[name] = found
                if len(self._ciphers) > _MOST_CIPHERS:
                    self._ciphers.popitem(last=False)
            else:
                self._ciphers.move_to_end(name)
            return found

    def _key(self, key_id: str) -> bytes:
        if key_id not in self._keys:
            if key_id not in self._given:
                raise LookupError(f"the codec has no key with this id; it has {', '.join(map(repr, self._given))}")
            self._keys[key_id] = _looked_up(self._given[key_id])
        return self._keys[key_id]


def _derived(key: bytes, purpose: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY_BYTES, salt=None, info=b"orchestrator values 1 " + purpose).derive(key)


def _checked(name: str, key: object) -> str | bytes:
    """Return a key as given, if it is a reference or long enough."""
    if isinstance(key, str):
        if key.startswith(_ENV) and len(key) > len(_ENV):
            return key
        raise InvalidValue(
            f"key {name!r} is a string, but not a reference: write 'env:NAME', and set that variable to 32 bytes in "
            "base64, or give the bytes",
            where="keys",
        )
    if not isinstance(key, bytes):
        raise InvalidValue(f"key {name!r} is of type {type(key).__name__}: give 'env:NAME' or 32 bytes", where="keys")
    if len(key) != KEY_BYTES:
        raise InvalidValue(f"key {name!r} has {len(key)} bytes: give {KEY_BYTES} random bytes", where="keys")
    return key


def _looked_up(given: str | bytes) -> bytes:
    """Return the bytes of a key.

    Raises:
        LookupError: the environment variable is missing, or does not contain a key.
    """
    if isinstance(given, bytes):
        return given
    variable = given.removeprefix(_ENV)
    text = os.environ.get(variable, "").strip()
    if not text:
        raise LookupError(f"the environment variable {variable} is not set")
    know(text)
    try:
        key = base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise LookupError(f"the environment variable {variable} is not {KEY_BYTES} bytes in base64")
    return key
