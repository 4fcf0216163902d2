"""Which router routes which source partitions: a plain function, which the leader of the consumer group asks (``app``)."""

from collections.abc import Collection, Mapping


def deal(
    subscriptions: Mapping[str, Collection[str]], partitions: Mapping[str, Collection[int]]
) -> dict[str, dict[str, list[int]]]:
    """The partitions of each member, by topic; members without a partition are in it too.

    Each partition goes to the member with the fewest so far, of those that subscribe to its topic: no two have numbers that
    differ by more than one where all subscribe to the same. The same members get the same again.

    Args:
        subscriptions: topics of each member. They differ while routers with another list of sources take over.
        partitions: those of each topic; of a topic that nobody has made yet there are none.
    """
    dealt: dict[str, dict[str, list[int]]] = {member: {} for member in subscriptions}
    counts = dict.fromkeys(sorted(subscriptions), 0)
    for topic, partition in sorted((topic, each) for topic, found in partitions.items() for each in found):
        able = [member for member in counts if topic in subscriptions[member]]
        if able:
            chosen = min(able, key=counts.__getitem__)
            counts[chosen] += 1
            dealt[chosen].setdefault(topic, []).append(partition)
    return dealt
