"""How is a caller told that a parameter, however well formed, is not taken?"""

from gateway.errors import BadRequest

CODE = "unsupported_parameter"


def unsupported(param: str, remedy: str) -> BadRequest:
    """Of a parameter that nobody may send."""
    message = f"The parameter '{param}' is not supported. {remedy}"
    return BadRequest(message, param=param, code=CODE)


def not_allowed(param: str, permission: str) -> BadRequest:
    """Of a parameter that others may send. permission: the tenant's setting that would let it pass."""
    message = (
        f"The parameter '{param}' is not allowed for this key. "
        f"Whoever runs this gateway can allow it to your tenant ('{permission}')."
    )
    return BadRequest(message, param=param, code=CODE)
