"""Documents of `kdi import-kdi` in Spark: `kdi check` passes, and values are those of kafka-delta-ingest's JMESPath."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import jmespath
import pytest
from jmespath import functions
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from kdi_assets.cli.documents.check import check_with_spark
from kdi_assets.documents.loading.loader import read_streams
from kdi_assets.settings import Settings
from kdi_assets.tools.predecessor.command import Given
from kdi_assets.tools.predecessor.message_fields import ddl_lines
from kdi_assets.tools.predecessor.transforms import translate_transforms
from tests.formats.fake_registry import RunningRegistry
from tests.predecessor.calls import AVRO, CALLS, columns_type, write_tables
from tests.typed import typed


def test_kdi_check_passes_the_documents_of_every_call(
    registry: RunningRegistry,
    spark: SparkSession,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Each call in a folder of its own; their documents are checked together, as one folder."""
    monkeypatch.setenv("KDI_DRIVER", settings.driver)
    registry.register("default-value", AVRO)
    imported = [call for call in CALLS if call.stream]
    for n, call in enumerate(imported):
        folder = tmp_path / str(n)
        write_tables(folder, call.table)
        (folder / "defs").mkdir()
        monkeypatch.chdir(folder)
        for name, text in call.files.items():
            (folder / name).write_text(text)
        with monkeypatch.context() as variables:
            variables.delenv("KDI_LAKE", raising=False)
            for name, value in call.variables.items():
                variables.setenv(name, value)
            kdi = typed(variables, capsys, "import-kdi", "--defs", "defs", "--yes")
            words = [word.replace("http://localhost:8081", registry.url) for word in call.words]
            assert kdi(*words).code == 0, call.name
        loaded = read_streams(folder / "defs")
        if "--json" in call.words and "" not in call.words:
            continue  # its subject is the one of Avro
        for name in ("SCHEMA_REGISTRY_USERNAME", "SCHEMA_REGISTRY_PASSWORD"):
            monkeypatch.setenv(name, "kdi")
        found = check_with_spark(loaded)
        assert ([m.text() for m in found.mistakes], found.refusals) == ([], {}), call.name


class ItsFunctions(functions.Functions):  # type: ignore[misc]
    """Its functions, after its source: numbers are cut off, and a fraction is printed with three or six digits."""

    @functions.signature({"types": ["string"]}, {"types": ["number"]}, {"types": ["number"]})  # type: ignore[untyped-decorator]
    def _func_substr(self, text: str, skip: float, take: float) -> str:
        return text[max(0, int(skip)) :][: max(0, int(take))]

    @functions.signature({"types": ["number"]})  # type: ignore[untyped-decorator]
    def _func_epoch_seconds_to_iso8601(self, n: float) -> str:
        return iso8601(int(n) * 1_000_000)

    @functions.signature({"types": ["number"]})  # type: ignore[untyped-decorator]
    def _func_epoch_millis_to_iso8601(self, n: float) -> str:
        return iso8601(int(n) * 1000)

    @functions.signature({"types": ["number"]})  # type: ignore[untyped-decorator]
    def _func_epoch_micros_to_iso8601(self, n: float) -> str:
        return iso8601(int(n))

    @functions.signature({"types": ["number"]})  # type: ignore[untyped-decorator]
    def _func_epoch_millis_to_micro(self, n: float) -> int:
        return int(n) * 1000


def iso8601(micros: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    digits = f"{fraction:06}"
    return text + ("" if not fraction else f".{digits[:3]}" if digits.endswith("000") else f".{digits}") + "Z"


TABLE = columns_type(
    {
        "text": "string", "whole": "long", "real": "double", "is_so": "boolean", "at": "timestamp", "date": "string",
        "texts": ["string"], "items": [{"sku": "string", "n": "long"}], "of": {"a": "string", "b": "long"},
    }
)  # fmt: skip
MESSAGES: list[dict[str, Any]] = [
    {
        "name": "William ÄÖ😀x", "s": 1626823098.51995, "ms": 1732279537028, "us": 1732279537028123, "n": "17",
        "neg": -3.5,
        "empty": "", "first": "a'b", "kind": "order", "texts": ["x", "y"],
        "items": [{"sku": "k1", "n": 1}, {"n": 2}, {"sku": "k3", "n": 3}], "deep": {"er": {"name": "d"}},
    },
    {"name": "", "s": 0, "ms": 1000, "us": 1_500_000, "n": "x", "neg": 2.0, "empty": "e", "first": "z", "kind": "else",
     "texts": [], "items": [], "deep": {"er": {"name": "\\"}}},
]  # fmt: skip
TRANSFORMS = {
    "substr(name, `0`, `4`)": "text", "substr(name, `3`, `40`)": "text", "substr(name, `9`, `3`)": "text",
    "substr(name, `-2`, `2`)": "text", "substr(name, `50`, `1`)": "text",
    "epoch_seconds_to_iso8601(s)": "text", "epoch_millis_to_iso8601(ms)": "text", "epoch_micros_to_iso8601(us)": "text",
    "substr(epoch_micros_to_iso8601(us), `0`, `10`)": "text", "substr(epoch_millis_to_iso8601(ms), `11`, `5`)": "text",
    "epoch_millis_to_micro(ms)": "whole", "to_number(n)": "real", "abs(neg)": "real", "ceil(neg)": "whole",
    "floor(neg)": "whole", "empty || first": "text", "missing || 'none'": "text", "join('-', [first, kind])": "text",
    "join(', ', texts)": "text", "contains(name, 'ill')": "is_so", "contains(texts, 'y')": "is_so",
    "starts_with(name, 'W')": "is_so", "ends_with(name, 'x')": "is_so", "kind == 'order'": "is_so",
    "kind != 'order'": "is_so", "!(kind == 'order')": "is_so", "kind == 'order' && neg < `0`": "is_so",
    "kind == first": "is_so", "ms > us": "is_so", "neg >= `2`": "is_so",
    "length(name)": "whole", "length(texts)": "whole", "items[*].sku": "texts", "items[0].sku": "text",
    "items[-1].n": "whole", "deep.er.name": "text", "\"deep\".er.name": "text", "[first, kind]": "texts",
    "{a: first, b: ms}": "of", "not_null(missing, kind)": "text", "to_string(kind)": "text", "'it\\'s'": "text",
}  # fmt: skip


@pytest.mark.parametrize("source", [*TRANSFORMS])
def test_a_translated_expression_gives_what_jmespath_gives(spark: SparkSession, source: str) -> None:
    target = TRANSFORMS[source]
    columns = translate_transforms([Given("-t", f"{target}: {source}", "")], TABLE, explodes=False, of_schema=False)
    assert [note.here for note in columns.notes if note.undecided] == []
    record = re.sub(r"\n", " ", "\n".join(ddl_lines(columns.fields.record)))
    messages = spark.createDataFrame([(json.dumps(m, ensure_ascii=False),) for m in MESSAGES], "value string")
    records = messages.select(F.from_json("value", record).alias("m")).select("m.*")

    rows = records.select(F.expr(columns.columns[target]).alias("v")).collect()

    options = jmespath.Options(custom_functions=ItsFunctions())
    expected = [jmespath.search(source, message, options=options) for message in MESSAGES]
    # Null leaves the target as the message has it.
    expected = [m.get(target) if e is None else e for e, m in zip(expected, MESSAGES, strict=True)]
    assert [row.asDict(recursive=True)["v"] for row in rows] == expected


def test_times_and_dates_get_the_types_of_their_columns(spark: SparkSession) -> None:
    given = ["at: epoch_micros_to_iso8601(us)", "date: substr(epoch_seconds_to_iso8601(s), `0`, `10`)"]
    columns = translate_transforms([Given("-t", text, "") for text in given], TABLE, explodes=False, of_schema=False)
    record = " ".join(ddl_lines(columns.fields.record))
    messages = spark.createDataFrame([(json.dumps(MESSAGES[0]),)], "value string")

    row = (
        messages.select(F.from_json("value", record).alias("m"))
        .select(F.expr(columns.columns["at"].replace("us", "m.us")), F.expr(columns.date.replace("(s ", "(m.s ")))
        .first()
    )

    assert row is not None
    assert row[0].astimezone(UTC) == datetime(2024, 11, 22, 12, 45, 37, 28123, UTC)
    assert row[1] == date(2021, 7, 20)
