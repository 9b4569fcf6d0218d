"""JMESPath expressions of kafka-delta-ingest's transforms as Spark SQL over the record.

Source: JMESPath specification; kafka-delta-ingest at c6d42de, ``src/transforms.rs``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kdi_assets.messages.formats.rules import literal as text_literal
from kdi_assets.tools.predecessor.errors import NotTranslated
from kdi_assets.tools.predecessor.jmespath_tree import KAFKA, Node, constant_of, parse_expression, path_of
from kdi_assets.tools.predecessor.message_fields import (
    DATE_OF_ROW,
    INTEGERS,
    NUMBER,
    NUMBER_OR_TEXT,
    NUMBERS,
    TEXT,
    DeltaType,
    MessageFields,
    Path,
    ddl,
    is_number,
    sql_path,
)
from kdi_assets.tools.predecessor.sql_types import (
    BY_HAND,
    DAY,
    INSTANT,
    TEXT_OF_NUMBER,
    TypedSql,
    literal,
    to_type,
    type_in_words,
)

_EPOCHS = {
    "epoch_seconds_to_iso8601": "timestamp_seconds",
    "epoch_millis_to_iso8601": "timestamp_millis",
    "epoch_micros_to_iso8601": "timestamp_micros",
}
_OPERATORS = {"eq": "<=>", "ne": "<=>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_REASONS = {
    "current": "`@` is the whole message, and Spark SQL knows only its fields",
    "filter_projection": "`[?…]` filters an array",
    "value_projection": "`*` takes all values of an object",
    "flatten": "`[]` flattens arrays",
    "slice": "`[a:b]` takes a part of an array",
    "expref": "`&` is an expression as an argument",
    "pipe": "`|` hands one result to another expression",
}


class Translator:
    """Translates expressions; the record learns which fields they read."""

    def __init__(self, fields: MessageFields) -> None:
        self.fields = fields

    def source(self, text: str, wanted: DeltaType) -> TypedSql:
        """The source of a transform: one of Kafka's fields, or an expression.

        Args:
            wanted: The type of the column that it fills.

        Raises:
            NotTranslated: With the reason.
        """
        if text in KAFKA:
            return TypedSql(*KAFKA[text])
        return self.sql(parse_expression(text), wanted)

    def sql(self, node: Node, wanted: DeltaType) -> TypedSql:
        """Spark SQL of a node; ``wanted`` decides the type of fields that the table does not have."""
        if path := path_of(node):
            return self._field(path, wanted)
        match node["type"]:
            case "literal":
                return literal(node["value"])
            case "function_expression":
                return self._function(node["value"], node["children"], wanted)
            case "or_expression":
                return self._or(node["children"], wanted)
            case "comparator":
                return self._comparison(node)
            case "not_expression":
                return TypedSql(f"NOT {self._condition(node['children'][0])}", "boolean")
            case "and_expression":
                return TypedSql(
                    "(" + " AND ".join(self._condition(child) for child in node["children"]) + ")", "boolean"
                )
            case "multi_select_list":
                return self._list(node["children"], wanted)
            case "multi_select_dict":
                return self._object(node["children"], wanted)
            case "projection":
                return self._projection(node)
        raise NotTranslated(f"{_REASONS.get(node['type'], node['type'])}; {BY_HAND}")

    def _field(self, path: Path, wanted: DeltaType) -> TypedSql:
        if path[0] == "kafka":
            raise NotTranslated(
                "it reads the message's own field `kafka`, and here `kafka` is Kafka's part of a message; its sources "
                f"of that name are {', '.join(KAFKA)}"
            )
        return TypedSql(sql_path(path), self.fields.read(path, wanted), may_be_null=True)

    def _text(self, node: Node) -> str:
        return to_type(self.sql(node, TEXT), "string")

    def _number(self, node: Node) -> TypedSql:
        found = self.sql(node, NUMBER)
        return found if is_number(found.type) else TypedSql(to_type(found, "double"), "double", found.may_be_null)

    def _whole(self, node: Node) -> str:
        """A number without its fraction, as Rust's ``as i64`` takes it."""
        found = self.sql(node, NUMBER)
        return found.text if found.type in INTEGERS else f"CAST({self._number(node).text} AS bigint)"

    def _condition(self, node: Node) -> str:
        found = self.sql(node, "boolean")
        if found.type != "boolean":
            raise NotTranslated(f"{found.text} is not a condition: JMESPath takes empty values for false; {BY_HAND}")
        return f"coalesce({found.text}, false)" if found.may_be_null else found.text

    def _or(self, children: Sequence[Node], wanted: DeltaType) -> TypedSql:
        """The first that is not null and not empty; both have one type."""
        parts = [self.sql(child, wanted) for child in children]
        if all(part.type == "boolean" for part in parts):
            return TypedSql("(" + " OR ".join(self._condition(child) for child in children) + ")", "boolean")
        common = parts[0].type if parts[0].type == parts[1].type else wanted
        if common not in ("string", *NUMBERS, INSTANT):
            raise NotTranslated(
                f"`||` between {type_in_words(parts[0].type)} and {type_in_words(parts[1].type)}; {BY_HAND}"
            )
        first, second = (part.text if part.type == common else to_type(part, common) for part in parts)
        first = f"nullif({first}, '')" if common == "string" else first
        return TypedSql(f"coalesce({first}, {second})", common, all(part.may_be_null for part in parts))

    def _comparison(self, node: Node) -> TypedSql:
        operator, children = node["value"], node["children"]
        literals = [self.sql(child, None).type for child in children if child["type"] == "literal"]
        wanted = literals[0] if literals else TEXT if operator in ("eq", "ne") else NUMBER
        wanted = NUMBER if is_number(wanted) else wanted
        both = [self.sql(child, wanted) for child in children]
        if any(is_number(one.type) for one in both):
            left, right = (self._number(child).text for child in children)
        elif both[0].type == both[1].type:
            left, right = (one.text for one in both)
        else:
            types = " and ".join(type_in_words(one.type) for one in both)
            raise NotTranslated(f"a comparison of {types}; {BY_HAND}")
        compared = f"({left} {_OPERATORS[operator]} {right})"
        return TypedSql(f"NOT {compared}", "boolean") if operator == "ne" else TypedSql(
            compared, "boolean", may_be_null=operator != "eq"
        )  # fmt: skip

    def _list(self, children: Sequence[Node], wanted: DeltaType) -> TypedSql:
        element = wanted["elementType"] if isinstance(wanted, dict) and wanted["type"] == "array" else "string"
        values = [to_type(self.sql(child, element), element) for child in children]
        return TypedSql(f"array({', '.join(values)})", {"type": "array", "elementType": element, "containsNull": True})

    def _object(self, children: Sequence[Node], wanted: DeltaType) -> TypedSql:
        if not isinstance(wanted, dict) or wanted["type"] != "struct":
            raise NotTranslated(f"`{{…}}` makes an object, and the column is not a struct; {BY_HAND}")
        given = {pair["value"]: pair["children"][0] for pair in children}
        fields = []
        for field in wanted["fields"]:
            node = given.get(field["name"])
            value = (
                to_type(self.sql(node, field["type"]), field["type"]) if node else f"CAST(null AS {ddl(field['type'])})"
            )
            fields.append(f"{text_literal(field['name'])}, {value}")
        return TypedSql(f"named_struct({', '.join(fields)})", wanted)

    def _projection(self, node: Node) -> TypedSql:
        """``items[*].sku``: the field of each element, without those that are null."""
        items, each = (path_of(child) for child in node["children"])
        if items is None or each is None or any(isinstance(step, int) for step in each):
            unknown = next((c["type"] for c in node["children"] if path_of(c) is None), "projection")
            inner = "slice" if unknown == "index_expression" else unknown
            raise NotTranslated(f"{_REASONS.get(inner, '`[*]` takes a field of each element')}; {BY_HAND}")
        first = self._field((*items, 0, *each), "string")
        array = sql_path(items)
        field = sql_path(("_e", *each))
        of_each = f"transform({array}, _e -> {field})" if each else array
        type_ = {"type": "array", "elementType": first.type, "containsNull": True}
        return TypedSql(f"filter({of_each}, _e -> _e IS NOT NULL)", type_, may_be_null=True)

    def _function(self, name: str, arguments: Sequence[Node], wanted: DeltaType) -> TypedSql:
        if name in _EPOCHS:
            self._arity(name, arguments, 1)
            return TypedSql(f"{_EPOCHS[name]}({self._whole(arguments[0])})", INSTANT)
        if name not in _FUNCTIONS:
            known = ", ".join(sorted([*_FUNCTIONS, *_EPOCHS]))
            raise NotTranslated(f"{name}() has no translation (those of {known} have); {BY_HAND}")
        number, translate = _FUNCTIONS[name]
        self._arity(name, arguments, number)
        return translate(self, arguments, wanted)

    def _arity(self, name: str, arguments: Sequence[Node], number: int | None) -> None:
        if number is not None and len(arguments) != number:
            raise NotTranslated(f"{name}() takes {number} arguments, not {len(arguments)}")

    def _substr(self, arguments: Sequence[Node], wanted: DeltaType) -> TypedSql:
        of, skip, take = arguments
        first = constant_of(skip)
        start = str(first + 1) if first is not None else f"greatest({self._whole(skip)}, 0) + 1"
        count = constant_of(take)
        length = str(count) if count is not None else f"greatest({self._whole(take)}, 0)"
        found = self.sql(of, TEXT)
        if found.type == INSTANT and (first, count) == (0, 10):
            return TypedSql(f"to_date({found.text})", DAY) if wanted in ("date", DATE_OF_ROW) else TypedSql(
                f"date_format({found.text}, 'yyyy-MM-dd')", "string"
            )  # fmt: skip
        return TypedSql(f"substr({to_type(found, 'string')}, {start}, {length})", "string")

    def _millis_to_micro(self, arguments: Sequence[Node], wanted: DeltaType) -> TypedSql:
        return TypedSql(f"{self._whole(arguments[0])} * 1000", "long")

    def _to_number(self, arguments: Sequence[Node], wanted: DeltaType) -> TypedSql:
        found = self.sql(arguments[0], NUMBER_OR_TEXT)
        if is_number(found.type):
            return found
        return TypedSql(to_type(found, "string"), TEXT_OF_NUMBER, may_be_null=True)

    def _to_string(self, arguments: Sequence[Node], wanted: DeltaType) -> TypedSql:
        found = self.sql(arguments[0], "string")
        return TypedSql(to_type(found, "string"), "string", found.may_be_null)

    def _join(self, arguments: Sequence[Node], wanted: DeltaType) -> TypedSql:
        glue, parts = arguments
        if parts["type"] == "multi_select_list":
            between = f" || {self._text(glue)} || "
            return TypedSql(f"({between.join(self._text(part) for part in parts['children'])})", "string")
        array = self.sql(parts, {"type": "array", "elementType": "string", "containsNull": True})
        return TypedSql(f"array_join({array.text}, {self._text(glue)})", "string")

    def _contains(self, arguments: Sequence[Node], wanted: DeltaType) -> TypedSql:
        subject = self.sql(arguments[0], TEXT)
        if isinstance(subject.type, dict) and subject.type["type"] == "array":
            of = subject.type["elementType"]
            return TypedSql(f"array_contains({subject.text}, {to_type(self.sql(arguments[1], of), of)})", "boolean")
        return TypedSql(f"contains({to_type(subject, 'string')}, {self._text(arguments[1])})", "boolean")

    def _length(self, arguments: Sequence[Node], wanted: DeltaType) -> TypedSql:
        found = self.sql(arguments[0], TEXT)
        if isinstance(found.type, dict):
            return TypedSql(f"size({found.text})", "integer")
        return TypedSql(f"char_length({to_type(found, 'string')})", "integer")

    def _not_null(self, arguments: Sequence[Node], wanted: DeltaType) -> TypedSql:
        parts = [to_type(self.sql(argument, wanted), wanted) for argument in arguments]
        return TypedSql(f"coalesce({', '.join(parts)})", wanted, may_be_null=True)


def _texts(function: str, result: DeltaType) -> Callable[[Translator, Sequence[Node], DeltaType], TypedSql]:
    return lambda to, arguments, _: TypedSql(f"{function}({', '.join(map(to._text, arguments))})", result)


def _of_number(function: str, result: DeltaType) -> Callable[[Translator, Sequence[Node], DeltaType], TypedSql]:
    def translate(to: Translator, arguments: Sequence[Node], _: DeltaType) -> TypedSql:
        found = to._number(arguments[0])
        return TypedSql(f"{function}({found.text})", result or found.type)

    return translate


_FUNCTIONS: Mapping[str, tuple[int | None, Callable[[Translator, Sequence[Node], DeltaType], TypedSql]]] = {
    "substr": (3, Translator._substr),
    "epoch_millis_to_micro": (1, Translator._millis_to_micro),
    "to_number": (1, Translator._to_number),
    "to_string": (1, Translator._to_string),
    "join": (2, Translator._join),
    "contains": (2, Translator._contains),
    "starts_with": (2, _texts("startswith", "boolean")),
    "ends_with": (2, _texts("endswith", "boolean")),
    "length": (1, Translator._length),
    "abs": (1, _of_number("abs", None)),
    "ceil": (1, _of_number("ceil", "long")),
    "floor": (1, _of_number("floor", "long")),
    "not_null": (None, Translator._not_null),
}
"""Number of arguments and translation of each function; the epochs are apart."""
