"""The table's columns are those that the document declares."""

from __future__ import annotations

from kdi_assets.checks.finding import Finding
from kdi_assets.checks.subject import Subject
from kdi_assets.drain.evolution import evolved
from kdi_assets.drain.refusals import SchemaDisagrees
from kdi_assets.drain.shape import analyse
from kdi_assets.drain.table_schema import refuse_other_schema


def schema_as_declared(subject: Subject) -> Finding:
    """Whether the next drain would find the columns that it gives; it refuses anything else.

    Types of SQL expressions are Spark's to say, so this needs a session; it reads no data.

    Raises:
        ShapeMistake: The document itself does not work.
    """
    if subject.log is None:
        return Finding("passed", "there is no table yet")
    stream = evolved(subject.stream, subject.lake, subject.session())
    wanted = analyse(stream, subject.session())
    numbers = {"columns": len(subject.log.schema["fields"]), "columns_declared": len(wanted.fields)}
    try:
        refuse_other_schema(stream, subject.uri, wanted)
    except SchemaDisagrees as refusal:
        said, differences = refusal.parts()[0], refusal.differences
        return Finding("error", said, {**numbers, "differences": len(differences)}, {"differences": differences})
    return Finding("passed", "the table has the columns of the document", {**numbers, "differences": 0})
