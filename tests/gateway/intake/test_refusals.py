"""A refusal names the parameter, and says what to do or whom to ask."""

from gateway.intake.refusals import not_allowed, unsupported


def test_a_parameter_that_nobody_may_send_is_refused_with_a_remedy() -> None:
    error = unsupported("best_of", "Leave it out.")
    assert error.message == "The parameter 'best_of' is not supported. Leave it out."
    assert (error.status, error.param, error.code) == (400, "best_of", "unsupported_parameter")


def test_a_parameter_that_others_may_send_is_refused_with_who_can_allow_it() -> None:
    error = not_allowed("logprobs", "allow_logprobs")
    assert error.message == (
        "The parameter 'logprobs' is not allowed for this key. "
        "Whoever runs this gateway can allow it to your tenant ('allow_logprobs')."
    )
    assert (error.status, error.param, error.code) == (400, "logprobs", "unsupported_parameter")
