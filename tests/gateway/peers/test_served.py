"""Is what was served told as sums that only rise, for those only who were served of late?"""

from gateway.peers.served import MOST, RECENT_S, Served


def test_work_is_added_up_by_model_and_tenant() -> None:
    served = Served()
    for model, tenant, work in (
        ("m", "acme", 10.0),
        ("m", "globex", 1.0),
        ("n", "acme", 2.0),
        ("m", "acme", 5.0),
    ):
        served.add(model, tenant, work, 0.0)
    assert served.recent(0.0) == {"m": {"acme": 15.0, "globex": 1.0}, "n": {"acme": 2.0}}


def test_who_was_not_served_for_a_minute_is_forgotten_and_begins_at_nothing() -> None:
    served = Served()
    served.add("m", "acme", 10.0, 0.0)
    served.add("m", "globex", 10.0, 0.0)
    served.add("m", "acme", 10.0, 1.0)
    assert served.recent(RECENT_S) == {"m": {"globex": 10.0, "acme": 20.0}}
    assert served.recent(RECENT_S + 0.5) == {"m": {"acme": 20.0}}
    served.add("m", "globex", 1.0, RECENT_S + 0.5)
    assert served.recent(RECENT_S + 0.5) == {"m": {"acme": 20.0, "globex": 1.0}}


def test_of_too_many_the_one_served_longest_ago_is_forgotten() -> None:
    served = Served()
    for number in range(MOST):
        served.add("m", f"t{number}", 1.0, 0.0)
    served.add("m", "t0", 1.0, 1.0)
    served.add("m", "new", 1.0, 1.0)
    told = served.recent(1.0)["m"]
    assert len(told) == MOST
    assert "t1" not in told
    assert told["t0"] == 2.0


def test_sums_do_not_fall() -> None:
    served = Served()
    served.add("m", "acme", 10.0, 0.0)
    served.add("m", "acme", -4.0, 0.0)
    served.add("m", "globex", 0.0, 0.0)
    assert served.recent(0.0) == {"m": {"acme": 10.0}}
