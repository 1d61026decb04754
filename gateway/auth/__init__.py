"""Whose request is this? Headers → Caller."""

from gateway.auth.authenticator import Authenticator
from gateway.auth.directory import Directory, FileDirectory, Found

__all__ = ["Authenticator", "Directory", "FileDirectory", "Found"]
