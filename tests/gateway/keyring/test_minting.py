"""Are new secrets beyond guessing, and do ids fit?"""

import hashlib
import re

from gateway.keyring import minting


def test_a_secret_names_its_key_and_carries_256_random_bits() -> None:
    secret = minting.new_secret("acme-1")

    assert re.fullmatch(r"sk-acme-1-[A-Za-z0-9_-]{43}", secret)
    assert secret != minting.new_secret("acme-1")


def test_an_id_is_made_of_the_tenants_and_fits_however_long_that_is() -> None:
    assert re.fullmatch(r"acme-[0-9a-f]{8}", minting.new_id("acme"))
    assert len(minting.new_id("t" * 64)) <= 64
    assert minting.new_id("acme") != minting.new_id("acme")


def test_the_hash_is_of_the_whole_secret() -> None:
    assert minting.sha256("sk-a-b") == hashlib.sha256(b"sk-a-b").hexdigest()
