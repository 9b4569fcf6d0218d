"""What a replay of dates proposes where Kafka no longer holds all of their messages."""

from __future__ import annotations

from datetime import date

from kdi_assets.replay.gone import MessagesNotInKafka, Missing

DAY = date(2026, 1, 2)


def test_the_command_that_leaves_what_is_missing_keeps_what_the_replay_was_told() -> None:
    def proposed(flags: str) -> list[str]:
        missing = Missing(messages=3, rows_by_date={DAY: 3})
        gone = MessagesNotInKafka(stream="orders", first=DAY, last=DAY, messages=9, missing=missing, flags=flags)
        return [each.split("   (")[0] for each in gone.parts()[2].split(", or ")]

    asked = "kdi replay orders --from 2026-01-02 --to 2026-01-02"
    assert proposed("") == [f"{asked} --leave-missing", f"{asked} --into TABLE"]
    # A look takes letters as they come, and refuses the flag.
    assert proposed(" --accept-dead-letters") == [
        f"{asked} --leave-missing --accept-dead-letters",
        f"{asked} --into TABLE",
    ]
