"""`make customers`: a table of customers from Debezium's messages, which arrive twice, late and out of order.

`silver/customers` has the newest state of each customer, `silver/customers_history` all states. Both are compared with
a sequential computation in Python.
"""

from __future__ import annotations

from random import Random

from demo.changes import Change, changes, history, states
from demo.parts import say
from demo.scene import Scene, compare, perform

CHANGES, CUSTOMERS = 3_000, 300


def play(on: Scene, random: Random) -> None:
    """Publish all changes in two halves, each out of order, and compare after both."""
    source = changes(random, count=CHANGES, customers=CUSTOMERS)
    late = set(random.sample(range(CHANGES // 2), 100))  # of the first half, but they arrive with the second
    first = [change for place, change in enumerate(source[: CHANGES // 2]) if place not in late]
    second = [source[place] for place in sorted(late)] + source[CHANGES // 2 :]
    publish(on, first, random)
    on.follow()
    say(f"{len(late)} changes of the first half, all later ones, and 200 of the first half again:")
    publish(on, second + random.sample(first, 200), random)
    on.follow()
    show(on, source)


def publish(on: Scene, some: list[Change], random: Random) -> None:
    """Publish changes out of order; a tombstone follows its delete."""
    shuffled = random.sample(some, len(some))
    on.publish(message for change in shuffled for message in change.messages())


def show(on: Scene, source: list[Change]) -> None:
    """Print one customer's states, and compare both tables."""
    newest = {row["id"]: (row["id"], row["name"], row["city"]) for row in on.rows("silver/customers")}
    spans = {
        ((row["id"], row["name"], row["city"]), row["valid_from"], row["valid_to"])
        for row in on.rows("silver/customers_history")
    }
    shown = next(iter(newest))
    say(f"customer {shown} lives in {newest[shown][2]}; silver/customers_history has:")
    for (_, _, city), since, until in sorted((span for span in spans if span[0][0] == shown), key=lambda s: s[1]):
        say(f"  {city:8} from lsn {since}" + (f" to {until}" if until else ""))
    compare(f"silver/customers, {len(newest):,} customers", newest, states(source))
    compare(f"silver/customers_history, {len(spans):,} states", spans, history(source))


if __name__ == "__main__":
    perform("customers", play)
