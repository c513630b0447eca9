"""The profile of tools of the S3 protocol: ~/.aws/credentials and ~/.aws/config, as far as a cold tier needs it.

Taken are a profile's keys, its region and its endpoint. Profiles that get their keys from somewhere else (single
sign-on, another role, a process) are not: `aws configure export-credentials` writes such keys for an environment.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

_HOME: Final = ".aws"


class Profile(msgspec.Struct, frozen=True):
    """What one profile says."""

    TRUSTED_S: ClassVar[int] = 60
    """How long its keys are used before they are read again."""

    access_key: str = ""
    secret_key: str = ""
    token: str = ""
    region: str | None = None
    endpoint: str | None = None

    @property
    def has_keys(self) -> bool:
        """Whether it has keys of its own."""
        return bool(self.access_key and self.secret_key)


def read_profile(environ: Mapping[str, str]) -> Profile:
    """The profile that AWS_PROFILE names, else `default`; files that are not there or not readable say nothing."""
    name = environ.get("AWS_PROFILE") or "default"
    home = os.path.join(environ.get("HOME", "/nonexistent"), _HOME)
    keys = _section(environ.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.join(home, "credentials"), name)
    section = name if name == "default" else f"profile {name}"
    config = _section(environ.get("AWS_CONFIG_FILE") or os.path.join(home, "config"), section)
    both = {**config, **keys}
    return Profile(
        access_key=both.get("aws_access_key_id", ""),
        secret_key=both.get("aws_secret_access_key", ""),
        token=both.get("aws_session_token", ""),
        region=both.get("region") or None,
        endpoint=both.get("endpoint_url") or None,
    )


def _section(path: str, name: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError, OSError):
        return {}
    return dict(parser[name]) if parser.has_section(name) else {}
