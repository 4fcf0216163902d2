"""A batch that hangs keeps its thread, and gives its turn."""

from spark.tenant.turn_shares import TurnShares

OF, SHARE_S = 4, 30.0


def shares_of(*running: tuple[str, str]) -> TurnShares:
    """With these tenants' batches, which began at 0."""
    shares = TurnShares(OF, share_s=SHARE_S)
    for tenant, warehouse in running:
        shares.begin(tenant, warehouse, now_s=0.0)
    return shares


def test_four_batches_that_hang_give_all_their_turns() -> None:
    """The one that has run for longest first, and none before it is overdue."""
    shares = shares_of(*((f"t{number}", "lake") for number in range(OF)))
    assert shares.free == 0
    assert shares.look(now_s=SHARE_S - 1) == []
    assert not shares.can_lend

    assert shares.look(now_s=SHARE_S) == ["t0", "t1", "t2", "t3"]
    assert [shares.lend() for _ in range(OF + 1)] == [True, True, True, True, False]

    assert (shares.free, shares.at_work, len(shares.running)) == (OF, 0, OF)
    shares.end("t2")
    assert (shares.free, sorted(shares.overdue)) == (OF, ["t0", "t1", "t3"])


def test_who_was_overdue_has_half_of_the_turns_until_a_batch_ends_in_time() -> None:
    shares = shares_of(("a", "lake"), ("b", "bay"), ("c", "cove"))
    shares.look(now_s=SHARE_S)
    for tenant in "abc":
        shares.end(tenant)

    shares.begin("a", "lake", now_s=40.0)
    assert shares.may_begin("b", "bay")
    shares.begin("b", "bay", now_s=40.0)
    assert not shares.may_begin("c", "cove")
    assert shares.may_begin("d", "cove")

    shares.end("a")
    assert shares.may_begin("c", "cove")
    shares.begin("a", "lake", now_s=41.0)  # it is not slow any more
    assert shares.may_begin("c", "cove")


def test_a_warehouse_in_which_two_hang_has_half_of_the_turns_until_one_ends_in_time() -> None:
    """Its tenants are many: each would hang once, and hold a thread, before it is known as slow."""
    shares = shares_of(("a", "lake"), ("b", "lake"))
    shares.look(now_s=SHARE_S)
    assert shares.lend()
    assert shares.lend()
    assert shares.may_begin("c", "lake")
    shares.begin("c", "lake", now_s=31.0)
    shares.begin("d", "lake", now_s=31.0)
    assert not shares.may_begin("e", "lake")
    assert shares.may_begin("e", "bay")

    shares.end("c")  # the warehouse answers
    shares.begin("e", "lake", now_s=32.0)
    assert shares.may_begin("f", "lake")
    shares.look(now_s=33.0)  # a and b hang on: nothing new
    assert shares.may_begin("f", "lake")


def test_one_that_hangs_says_nothing_of_its_warehouse() -> None:
    shares = shares_of(("a", "lake"))
    shares.look(now_s=SHARE_S)
    assert shares.lend()
    for number in range(OF):
        assert shares.may_begin(f"t{number}", "lake")
        shares.begin(f"t{number}", "lake", now_s=31.0)
    assert shares.free == 0


def test_threads_end_somewhere() -> None:
    """When too many hang, the rest keep their turns; those of a warehouse in doubt cannot have all of them."""
    shares, now_s = TurnShares(OF, share_s=SHARE_S), 0.0
    for number in range(1_000):
        if shares.free and shares.may_begin(f"t{number}", "lake"):
            shares.begin(f"t{number}", "lake", now_s=now_s)
        now_s += SHARE_S
        shares.look(now_s=now_s)
        while shares.lend():
            pass

    assert len(shares.running) < shares.most_running
    assert shares.free == OF // 2
    assert shares.may_begin("other", "bay")


def test_a_job_of_one_turn_goes_on_beside_one_that_hangs() -> None:
    shares = TurnShares(1, share_s=SHARE_S)
    shares.begin("a", "lake", now_s=0.0)
    shares.look(now_s=SHARE_S)
    assert shares.lend()
    assert shares.free == 1
    assert shares.may_begin("b", "lake")
