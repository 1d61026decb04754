"""What do the two ports offer? Told in OpenAPI 3.1."""

from gateway.openapi.document import Api, Described, document
from gateway.openapi.parts import answer, refusals
from gateway.openapi.public import public_document

__all__ = ["Api", "Described", "answer", "document", "public_document", "refusals"]
