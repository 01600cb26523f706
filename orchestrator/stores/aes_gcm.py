"""The codec that comes with the library: AES-256-GCM by the package `cryptography` (extra `encryption`).

NIST SP 800-38D. Each value has a random nonce of 96 bits. Each run has a key of its own, which HKDF (RFC 5869)
derives from the codec's key and the run's id, and so has each memory item and schedule. So the bound of 2^32 values for
one key and random nonces holds for each of them, not for the store. What a value is and where it lies is associated
data.

An encoded value is: the version (1 byte), a check of the key (8 bytes), the nonce (12), the ciphertext with its tag.
The check is derived from the key, as the run's keys are; it tells another key of the same id from damage.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING

from orchestrator.errors import InvalidValue, install_command
from orchestrator.redaction import know
from orchestrator.stores.codec import About, Clear, WrongKey, about_bytes, check_clear, check_key_id

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
_VERSION = b"\x01"
_CHECK = 8
_NONCE = 12
_TAG = 16
_HEAD = len(_VERSION) + _CHECK
_MOST_CIPHERS = 512
"""Derived keys that are kept: of the runs that were used last."""
_ENV = "env:"


def new_key() -> str:
    """A new random key as text, for an environment variable or a vault."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


class AESGCMCodec:
    """Encrypts values with AES-256-GCM. Needs the extra `encryption`.

        codec = AESGCMCodec({"2026": "env:RUNS_KEY_2026", "2025": "env:RUNS_KEY_2025"})
        Executor(store="sqlite:///runs.db", codec=codec)

    Args:
        keys: key id -> key: `env:NAME`, which is read from the environment when the key is first used, or 32 bytes. The
            environment has 32 bytes in base64 (see `new_key`). The first key writes, all of them read. Ids are stored
            in clear.
        clear: `accept`: values that are not encrypted are read as they are, as those from before the codec was set.
            `refuse`: they are damaged. Use it for stores that had a codec from the beginning, or are encrypted copies:
            who can write to the store, and has no key, cannot add values then.

    Raises:
        InvalidValue: there is no key, an id cannot be stored, a key is none, or `clear` is neither.
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
        """Look all keys up now, to learn early that one is missing.

        Raises:
            LookupError: a variable is not set, or holds no key.
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
            raise WrongKey("the key that is here under this id is another one, or the value was changed")
        try:
            return cipher.decrypt(data[_HEAD : _HEAD + _NONCE], data[_HEAD + _NONCE :], about_bytes(about))
        except InvalidTag:
            raise ValueError("it does not fit its key and its place") from None

    def _cipher(self, key_id: str, about: About) -> tuple[bytes, AESGCM]:
        """The check of a key, and the cipher with the key of a run."""
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
                raise LookupError(f"the codec has {', '.join(map(repr, self._given))}, and not this one")
            self._keys[key_id] = _looked_up(self._given[key_id])
        return self._keys[key_id]


def _derived(key: bytes, purpose: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY_BYTES, salt=None, info=b"orchestrator values 1 " + purpose).derive(key)


def _checked(name: str, key: object) -> str | bytes:
    """A key as it was given, if it is a reference or long enough."""
    if isinstance(key, str):
        if key.startswith(_ENV) and len(key) > len(_ENV):
            return key
        raise InvalidValue(
            f"key {name!r} is a text that is no reference: write 'env:NAME', and set that variable to 32 bytes in "
            "base64, or give the bytes",
            where="keys",
        )
    if not isinstance(key, bytes):
        raise InvalidValue(f"key {name!r} is of type {type(key).__name__}: give 'env:NAME' or 32 bytes", where="keys")
    if len(key) != KEY_BYTES:
        raise InvalidValue(f"key {name!r} has {len(key)} bytes: give {KEY_BYTES} random bytes", where="keys")
    return key


def _looked_up(given: str | bytes) -> bytes:
    """The bytes of a key.

    Raises:
        LookupError: the environment does not have it, or has no key there.
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
