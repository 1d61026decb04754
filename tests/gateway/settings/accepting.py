"""What does a section or an item of a list take?"""

from pydantic import ValidationError

from gateway.configuration import SECTIONS, TABLES
from gateway.settings import Section

CLASSES = [*SECTIONS.values(), *TABLES.values()]
FIELDS = [(kind, name) for kind in CLASSES for name in kind.model_fields]
NUMBERS = [(kind, name) for kind, name in FIELDS if kind.model_fields[name].annotation is float]


def accepts(kind: type[Section], **fields: object) -> bool:
    """Whether these values pass; required fields that are not given do not count."""
    try:
        kind.model_validate(fields, strict=True)
    except ValidationError as error:
        return not {details["loc"][0] for details in error.errors()} & fields.keys()
    return True
