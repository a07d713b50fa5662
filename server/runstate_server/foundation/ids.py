"""Ids and tokens: opaque strings on the wire, made by the server."""

import hashlib
import secrets
import time
import uuid


def new_id() -> uuid.UUID:
    """A UUID of version 7 (RFC 9562, section 5.7): random, but near in time is near in the index."""
    millis = time.time_ns() // 1_000_000
    value = (millis & (2**48 - 1)) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return uuid.UUID(int=value)


def parse_id(text: str) -> uuid.UUID | None:
    """The id in the one spelling the server hands out; None for anything else, which is then NOT_FOUND."""
    try:
        value = uuid.UUID(text)
    except ValueError:
        return None
    return value if str(value) == text else None


def new_token() -> str:
    """128 random bits as 32 hex digits: whoever shows it holds the lease."""
    return secrets.token_hex(16)


def new_api_key() -> str:
    """A fresh API key: a fixed prefix that secret scanners know, 160 random bits, and six digits of a
    checksum."""
    secret = secrets.token_hex(20)
    return f"rs_{secret}{hashlib.sha256(secret.encode()).hexdigest()[:6]}"


def key_hash(api_key: str) -> bytes:
    """What is stored of an API key. Its 128 random bits and more need no slow hash."""
    return hashlib.sha256(api_key.encode()).digest()
