"""`make impressions`: impressions and unique users of each campaign by date, with rows that arrive days late.

Late rows change their dates and no others: the files of the other dates stay. The numbers are compared with a
computation in Python over what was published.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, date, datetime, timedelta
from random import Random

from demo.parts import PartFailed, say
from demo.scene import Message, Scene, compare, perform

GOLD = "gold/campaigns"
CAMPAIGNS = ("shoes", "tea", "trains")
IMPRESSIONS, LATE, USERS, DAYS = 100_000, 1_000, 5_000, 5
SKETCH_ERROR = 0.06  # more than three times the standard error of the sketch
Seen = tuple[date, str, str]
"""Date, campaign and user of an impression."""


def play(on: Scene, random: Random) -> None:
    """Impressions of some days, then late ones of two of them."""
    days = [datetime.now(UTC).date() - timedelta(days=ago) for ago in range(DAYS)]
    all_seen = impressions(random, IMPRESSIONS, days)
    publish(on, all_seen)
    on.follow()
    show(on, all_seen, days)
    before, late = files(on), impressions(random, LATE, days[2:4])
    say(f"{LATE:,} late impressions of {days[3]} and {days[2]}:")
    publish(on, late)
    touched = on.follow()[GOLD].dates
    show(on, all_seen + late, touched)
    compare("dates that were touched", touched, tuple(sorted(days[2:4])))
    after = files(on)
    compare("files of all other dates", *({d: f[d] for d in days if d not in touched} for f in (after, before)))


def impressions(random: Random, count: int, days: list[date]) -> list[Seen]:
    """Impressions of some days; some users see much more than others."""
    users = (min(random.randrange(USERS), random.randrange(USERS)) for _ in range(count))
    return [(random.choice(days), random.choice(CAMPAIGNS), f"u{user}") for user in users]


def publish(on: Scene, seen: list[Seen]) -> None:
    """A message for each impression."""
    on.publish(message(*one) for one in seen)


def message(day: date, campaign: str, user: str) -> Message:
    """JSON, with noon as its time."""
    return user.encode(), json.dumps({"campaign": campaign, "user": user, "at": f"{day}T12:00:00Z"}).encode()


def show(on: Scene, seen: list[Seen], days: Collection[date]) -> None:
    """Print these dates of the table, and compare all of it with what was published."""
    users: dict[tuple[date, str], list[str]] = defaultdict(list)
    for day, campaign, user in seen:
        users[day, campaign].append(user)
    rows = {(r["date"], r["campaign"]): (r["impressions"], r["unique_users"]) for r in on.rows(GOLD)}
    for (day, campaign), (count, unique) in sorted(rows.items()):
        if day in days:
            say(f"  {day}  {campaign:8} {count:7,} impressions  {unique:6,} users")
    compare("impressions", {key: count for key, (count, _) in rows.items()}, {k: len(u) for k, u in users.items()})
    worst = max(abs(unique / len(set(users[key])) - 1) for key, (_, unique) in rows.items())
    if worst > SKETCH_ERROR:
        raise PartFailed(f"unique users differ by {worst:.1%}")
    say(f"unique users, counted by sketches: at most {worst:.1%} from the exact number")


def files(on: Scene) -> dict[date, set[str]]:
    """The files of the table, by date."""
    found: dict[date, set[str]] = defaultdict(set)
    for path in on.files(GOLD):
        found[date.fromisoformat(path.partition("/date=")[2][:10])].add(path)
    return found


if __name__ == "__main__":
    perform("impressions", play)
