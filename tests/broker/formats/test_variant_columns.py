"""Variant columns in tables: drained, audited, replayed, compacted, refined; and who reads them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.upkeep import Upkeep
from kdi_assets.follow.refine.audit.audit import audit_refined
from kdi_assets.follow.refine.refine import refine
from kdi_assets.operate.erase.erase import erase
from kdi_assets.operate.erase.selection import EraseFilter
from kdi_assets.streams.replay.replay_dates import replay_dates
from tests.broker.tables.compacting import keep
from tests.conftest import DrivenFactory
from tests.driven import AS_DECODED, DrivenStream
from tests.readers import by_duckdb
from tests.refined import refined_table

FIELDS: dict[str, Any] = {**AS_DECODED, "record_ddl": "id bigint, payload variant", "rescued": "extra variant"}
NESTED = '{"id": 1, "payload": {"b": [1, "x"], "a": 1.50}, "more": {"y": null}}'
OF_ONE = (1, '{"a":1.5,"b":[1,"x"]}', '{"more":{"y":null}}')
SQL = "SELECT id, payload, variant_get(payload, '$.a', 'double') AS a, kafka.offset AS at, date FROM events"


def rows(web: DrivenStream, uri: str, *columns: str) -> list[tuple[Any, ...]]:
    read = web.session().read.format("delta").load(uri)
    return sorted(tuple(row) for row in read.selectExpr(*columns).collect())


def rows_of(web: DrivenStream) -> list[tuple[Any, ...]]:
    return rows(web, web.uri, "id", "to_json(payload)", "to_json(extra)")


@pytest.mark.core
def test_a_table_with_variants_is_drained_audited_compacted_replayed_refined_and_erased_from(
    driven: DrivenFactory,
) -> None:
    """Purpose: nothing that works with a table's log or rows stops at Delta's feature `variantType`.
    Procedure: drain, one message a dead letter; compact; refine by append and by upsert; replay; erase.
    Pass: the values are those of the messages; audit and comparison with Kafka agree; so do the refined tables' audits.
    """
    web = driven(partitions=1, upkeep=Upkeep(small_files=2), **FIELDS)
    web.send(NESTED, '{"id": 2, "payload": 1e999}')
    web.drain()
    for text in ('{"id": 3, "payload": [true]}', '{"id": 4, "payload": null}'):
        web.send(text)
        web.drain()
    expected = [OF_ONE, (3, "[true]", None), (4, None, None)]
    of = {"from": [{"table": web.stream.table, "as": "events"}], "sql": SQL}
    upsert = {"upsert": {"keys": ["id"], "sequence_by": "at"}}
    silver = refined_table(**{"table": "silver/events", **of})
    newest = refined_table(**{"table": "silver/newest", "mode": upsert, "partition_by": None, **of})

    kept = keep(web, thorough=True)
    for table in (silver, newest):
        refine(table, lake=web.lake, session=web.session)

    assert kept.all_errors == () and TableLog.existing(web.uri).commit(web.version()).operation == "OPTIMIZE"
    assert rows_of(web) == expected
    assert web.letters("reason", "field") == [("out_of_range", "payload")]
    assert web.audit().complete and web.compare().agrees
    for table in (silver, newest):
        uri, checked = table.table_uri(web.lake), audit_refined(table, lake=web.lake, session=web.session)
        assert rows(web, uri, "id", "to_json(payload)") == [row[:2] for row in expected]
        assert (checked.rows, checked.missing, checked.surplus) == (3, 0, 0)

    today, other = datetime.now(UTC).date(), replace(web.stream, columns={"kind": "schema_of_variant(payload)"})
    web.session().sql(f"ALTER TABLE delta.`{web.uri}` ADD COLUMNS (kind string)")
    replay_dates(other, lake=web.lake, session=web.session, first=today - timedelta(days=2), last=today)
    chosen = EraseFilter("variant_get(payload, '$.a', 'double') = 1.5")
    done = erase(other, lake=web.lake, session=web.session, chosen=chosen, decided_by="me", because="asked")
    for table in (silver, newest):
        refine(table, lake=web.lake, session=web.session)

    assert done.rows == 1
    assert rows(web, web.uri, "id", "kind") == [(3, "ARRAY<BOOLEAN>"), (4, None)]
    assert rows(web, newest.table_uri(web.lake), "id") == [(3,), (4,)]
    assert web.with_definition(columns=other.columns).audit().complete


def test_delta_rs_reads_a_variant_as_bytes_and_duckdb_as_its_own_type(driven: DrivenFactory) -> None:
    """What docs/json.md says of other readers."""
    web = driven(partitions=1, **FIELDS)
    web.send(NESTED)
    web.drain()
    table = DeltaTable(web.uri)

    [row] = table.to_pyarrow_table().to_pylist()
    [in_duckdb] = by_duckdb(web.uri, "id, CAST(payload.a AS DOUBLE) AS a, CAST(payload AS VARCHAR) AS text").to_pylist()

    assert table.protocol().reader_features == ["variantType"]
    assert row["id"] == 1 and row["payload"].keys() == {"metadata", "value"}
    assert (in_duckdb["id"], in_duckdb["a"]) == (1, 1.5)
    with pytest.raises(OSError, match="Unsupported Arrow type VARIANT"):
        by_duckdb(web.uri)
