"""A document that changed: what check, plan and drain say, and the ways that the page "Changing a table" describes."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.conftest import DrivenFactory
from tests.documents import written
from tests.driven import WEB_REQUESTS, DrivenStream, web_requests_document
from tests.typed import Kdi

TEXT_STATUS, LONG_STATUS = (WEB_REQUESTS.replace("status int", f"status {type_}") for type_ in ("string", "bigint"))
ALSO_BYTES = WEB_REQUESTS + ", bytes bigint"


@pytest.fixture
def web(driven: DrivenFactory) -> DrivenStream:
    """A stream that was drained, with a backlog."""
    web = driven()
    web.produce(20)
    web.drain()
    web.produce(10, seed=2)
    return web


@pytest.mark.parametrize(
    ("changed", "said", "advice"),
    [
        (
            {"schema": f'"{TEXT_STATUS}"'},
            "column status is int in the table and string in the stream",
            'other columns take a new table: docs/procedures.md, "Changing a table"',
        ),
        ({"schema": f'"{ALSO_BYTES}"'}, "column bytes is not in the table", "ADD COLUMNS (`bytes` bigint)"),
        (
            {"columns": "{site: \"parse_url(url, 'HOST')\"}"},
            "column site is not in the table",
            "ADD COLUMNS (`site` string)",
        ),
        (
            {"date": "cast(substr(meta.producer.timestamp, 1, 10) AS date)", "coordinates": "kafka"},
            "column kafka is not in the table",
            "ADD COLUMNS (`kafka` struct<",
        ),
    ],
    ids=["another type", "a new field", "a renamed column", "other coordinates"],
)
def test_check_and_plan_say_what_the_drain_would_say(
    web: DrivenStream, defs: Path, kdi: Kdi, changed: dict[str, str], said: str, advice: str
) -> None:
    version = web.version()
    written(defs, web=web_requests_document(web.stream.topic, **changed))

    answers = [kdi("check"), kdi("plan", web.stream.name), kdi("drain", web.stream.name)]

    for answer in answers:
        text = answer.out + answer.err
        assert (answer.code, said in text, advice in text, "…" in text) == (1, True, True, False), text
    assert web.version() == version


def test_a_retired_stream_may_have_another_table(web: DrivenStream, defs: Path, kdi: Kdi) -> None:
    written(defs, web=web_requests_document(web.stream.topic, schema=f'"{TEXT_STATUS}"', status="retired"))

    assert kdi("check").code == 0


def test_a_new_table_goes_on_where_the_old_one_ends_and_a_refined_table_is_both(
    web: DrivenStream, defs: Path, kdi: Kdi
) -> None:
    """Procedure: as the page says: pause the old stream, start a new one at its positions, refine both into one."""
    topic, produced = web.stream.topic, web.produce(0)
    written(defs, web=web_requests_document(topic, status="paused"))
    [planned] = kdi("plan", web.stream.name, "--json").objects
    start = {int(tp.rpartition("/")[2]): offset for tp, offset in planned["positions"].items()}
    new = web_requests_document(topic, table=f"bronze/{topic}_v2", schema=f'"{LONG_STATUS}"', start=str(start))
    both = f"""type: kdi_assets.components.RefinedTable
attributes:
  table: silver/both
  from: [bronze/{topic}, bronze/{topic}_v2]
  mode: replace_dates
  sql: |
    SELECT CAST(status AS bigint) AS status, meta, date FROM {topic}
    UNION ALL
    SELECT status, meta, date FROM {topic}_v2
"""
    written(defs, web=web_requests_document(topic, status="retired"), new=new, both=both)

    assert kdi("check").code == 0
    drained, refined = kdi("drain", f"bronze/{topic}_v2"), kdi("refine", "silver/both")

    assert (drained.code, refined.code) == (0, 0), drained.err + refined.err
    rows = DeltaTable(f"{web.lake}/silver/both").to_pyarrow_table().to_pylist()
    offsets = sorted((r["meta"]["kafka"]["partition"], r["meta"]["kafka"]["offset"]) for r in rows)
    assert offsets == sorted((m.topic_partition.partition, m.offset) for m in produced)
