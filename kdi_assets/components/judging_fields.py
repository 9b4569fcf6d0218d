"""The fields of a stream that say when what becomes of its messages is no longer right."""

from __future__ import annotations

from typing import Annotated, cast

from pydantic import AfterValidator, BeforeValidator, Field

from kdi_assets.components import checks
from kdi_assets.components.strict import Fields
from kdi_assets.message_rules import Contract, ContractPolicy, DeadLetterLimit, Expectation, ExpectationAction


class ExpectationFields(Fields):
    """A condition that every message that is to be a row should meet, and what happens where one does not."""

    sql: Annotated[str, AfterValidator(checks.sql)] = Field(
        description="Spark SQL condition over the same names as `date`. What is not true (false, or null, or it raises)"
        " does not meet it.",
        examples=["status BETWEEN 100 AND 599"],
    )
    then: Annotated[str, BeforeValidator(checks.expectation_action)] = Field(
        default=Expectation("").then,
        description="warn: the message is a row and is counted; dead_letter: it becomes one, `expectation_not_met`;"
        " fail: the drain stops before anything is committed.",
        examples=["warn"],
    )

    def expectation(self) -> Expectation:
        """What these fields describe."""
        return Expectation(self.sql, cast(ExpectationAction, self.then))


class ContractFields(Fields):
    """What becomes of messages that are other than the record says."""

    new_columns: Annotated[str, BeforeValidator(checks.contract_policy)] = Field(
        default=Contract().new_columns,
        description="Messages with fields that the record has not. discard_value: the fields are left out; discard_row:"
        " the message is a dead letter, `unknown_field`; freeze: the drain stops before anything is committed; evolve:"
        " the table gets the columns, in the commit of the rows. Each field is counted by name in any case.",
        examples=["evolve"],
    )

    types: Annotated[str, BeforeValidator(checks.contract_policy)] = Field(
        default=Contract().types,
        description="Messages with values that do not suit the declared type. discard_row: the message is a dead"
        " letter; discard_value: the field is null, counted by name, and the message is a row (JSON alone); freeze: the"
        " drain stops before anything is committed; evolve: the column gets a wider type in the commit of the rows, of"
        " a table that delta-rs then reads no rows of.",
        examples=["discard_value"],
    )

    def contract(self) -> Contract:
        """What these fields describe."""
        return Contract(cast(ContractPolicy, self.new_columns), cast(ContractPolicy, self.types))


class DeadLetterLimitFields(Fields):
    """A drain stops before it commits a plan with more than `count` dead letters that are also more than `share`."""

    share: Annotated[float, BeforeValidator(checks.share)] = Field(
        default=DeadLetterLimit().share,
        description="Share of dead letters among the messages of one plan that should become rows (rows and dead"
        " letters; neither tombstones nor what is filtered). 1 is no limit.",
        examples=[0.1],
    )
    count: int = Field(
        default=DeadLetterLimit().count,
        strict=True,
        ge=0,
        description="So many dead letters of one plan are allowed, whatever their share.",
        examples=[1000],
    )

    def limit(self) -> DeadLetterLimit:
        """What these fields describe."""
        return DeadLetterLimit(self.share, self.count)
