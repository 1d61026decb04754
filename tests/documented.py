"""Does an answer agree with an OpenAPI document?"""

import re
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

Json = dict[str, Any]

NOT_TOLD = {
    "content-type",
    "content-length",
    "date",
    "connection",
    "allow",
    "transfer-encoding",
}  # HTTP's own


class Documented:
    """A document by which answers are checked. Header names are in lower case."""

    def __init__(self, document: Json) -> None:
        self.document = document
        self.checked: set[tuple[str, str, int]] = set()  # method, path as documented, status

    def operation(self, method: str, path: str) -> tuple[str, Json] | None:
        """The path as it stands in the document, and what is said of the method there."""
        method = "get" if method == "HEAD" else method.lower()
        for template, methods in self.document["paths"].items():
            pattern = re.escape(template).replace(r"\{id\}", "[^/]+").replace(r"\{name\}", ".+")
            if re.fullmatch(pattern, path) and method in methods:
                return template, methods[method]
        return None

    def check(self, method: str, path: str, status: int, headers: Mapping[str, str], content: object) -> None:
        """Raises AssertionError or jsonschema's ValidationError. content: JSON that was read."""
        found = self.operation(method, path.partition("?")[0])
        if found is None:
            assert status in (401, 403, 404, 405), f"{method} {path} answers {status} and is not documented"
            self._validate({"$ref": "#/components/schemas/Error"}, content)
            return
        template, operation = found
        told = operation["responses"].get(str(status)) or operation["responses"].get(f"{status // 100}XX")
        assert told is not None, f"{method} {template} answers {status}, which is not documented"
        self._check_headers(told["headers"], headers)
        media_type = headers["content-type"].partition(";")[0]
        self._validate(told["content"][media_type]["schema"], content)
        self.checked.add((method, template, status))

    def _check_headers(self, told: Json, headers: Mapping[str, str]) -> None:
        for name, value in headers.items():
            if name not in NOT_TOLD:
                assert name in told, f"the header {name} is not documented"
                self._validate({"$ref": f"#/components/headers/{name}/schema"}, value)
        for name in ("x-request-id", "openai-processing-ms"):
            assert name in headers, f"the header {name} is missing"

    def _validate(self, schema: Json, content: object) -> None:
        whole = {**schema, "components": self.document["components"]}
        validator = Draft202012Validator(whole, format_checker=FormatChecker())
        validator.validate(content)
