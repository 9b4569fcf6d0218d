"""The Terraform files: the units' command lines, a bucket that Delta can trust, and no more rights than needed.

They were never applied. The provider cannot be fetched where the tests run, so that Terraform itself only formats them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kdi_assets.documents.model.connections.kinesis import FanOut
from kdi_assets.messages.kinesis.rights import rights_of
from kdi_assets.runtime.driver.control import address_file
from kdi_assets.runtime.driver.drivers import driver_folder
from kdi_assets.runtime.emr.batch import BATCH_TAG
from tests.deployment.deployed import DEPLOY, Unit, example_environment, unit_names

AWS = DEPLOY / "aws"


def parsed() -> dict[str, dict[str, dict[str, Any]]]:
    """Resources and data by type and name."""
    import hcl2

    found: dict[str, dict[str, dict[str, Any]]] = {}
    for file in sorted(AWS.glob("*.tf")):
        content = hcl2.loads(file.read_text())
        for block in (*content.get("resource", ()), *content.get("data", ())):
            for kind, named in block.items():
                for name, body in named.items():
                    found.setdefault(kind.strip('"'), {})[name.strip('"')] = body
    return found


@pytest.fixture(scope="module")
def resources() -> dict[str, dict[str, dict[str, Any]]]:
    return parsed()


def text() -> str:
    return (AWS / "dagster.tf").read_text()


def words(command: str) -> list[str]:
    """The words of a list in Terraform."""
    return [found.strip('"') for found in re.findall(r'each\.key|"[^"]*"', command)]


@pytest.mark.parametrize("name", unit_names())
def test_a_container_runs_the_command_of_its_unit(name: str) -> None:
    unit = Unit.read(name)
    commands = [words(found) for found in re.findall(r"command\s*=\s*\[(.*?)\]", text(), re.DOTALL)]

    usual = {
        "0.0.0.0": "127.0.0.1",
        "each.key": "kdi_assets",
        "${local.home}/workspace.yaml": "/etc/kdi/workspace.yaml",
    }
    assert unit.command in [[usual.get(word, word) for word in command] for command in commands]


def test_each_further_driver_has_its_number_and_its_file_and_is_restarted_alone() -> None:
    """Not the first one: ECS never restarts a container that ended soon after its start; then the task is replaced."""
    (further,) = re.findall(r"^  drivers = .*?^  \)\] \}$", text(), re.DOTALL | re.MULTILINE)

    assert 'concat(local.driver.command, ["--number", tostring(number)])' in further
    assert str(address_file(driver_folder(Path("${local.home}"), 7))).replace("7", "${number}") in further
    assert re.search(
        r"essential\s+= false\s+restartPolicy = \{ enabled = true.*\s+\} : key => value if number > 1 \}", further
    )
    assert further.count("key => value if") == 1, "nothing else differs"
    (first,) = re.findall(r"^  driver = .*?^  \}\)$", text(), re.DOTALL | re.MULTILINE)
    assert "essential" not in first
    assert re.search(r"^    essential\s+= true$", text(), re.MULTILINE), "what containers have in common"


def test_the_code_server_has_its_memory_for_each_driver() -> None:
    """Each driver has four runs, in the code server's container."""
    (memory,) = re.findall(r'name = "code-server".*?memory +=([^\n]*)', text(), re.DOTALL)

    assert memory.partition("#")[0].split() == ["2048", "*", "each.value.drivers"]


def test_the_code_server_ends_before_all_its_drivers_and_waits_at_the_start_for_the_first_one() -> None:
    """ECS ends a container before those that it depends on; a run in a further driver would lose it at every stop."""
    (depends,) = re.findall(r'name = "code-server".*?dependsOn +=([^\n]*)', text(), re.DOTALL)

    assert "for driver in local.drivers[each.key]" in depends
    assert 'driver.name == "driver" ? "HEALTHY" : "START"' in depends


def test_a_location_may_not_have_the_name_of_a_service_of_dagster_or_of_another_location(
    resources: dict[str, dict[str, dict[str, Any]]],
) -> None:
    """Both would have the same service of ECS, and the same task definitions."""
    variables = (AWS / "variables.tf").read_text()
    services = {name.strip('"') for name in resources["aws_ecs_task_definition"]["dagster"]["for_each"]}
    (taken,) = re.findall(r"setintersection\(keys\(var\.locations\), \[(.*?)\]\)\) == 0", variables)
    (compared,) = re.findall(r"distinct\(\[for name in keys\(var\.locations\) : (replace\(.*?\))\]\)", variables)

    assert set(words(taken)) == services
    assert compared.replace("name", "each.key") in str(resources["aws_ecs_service"]["code"]["name"])


def test_the_bucket_keeps_what_was_deleted_and_never_expires_what_a_table_names(
    resources: dict[str, dict[str, dict[str, Any]]],
) -> None:
    versioning = resources["aws_s3_bucket_versioning"]["lake"]["versioning_configuration"][0]
    (rule,) = resources["aws_s3_bucket_lifecycle_configuration"]["lake"]["rule"]
    public = resources["aws_s3_bucket_public_access_block"]["lake"]

    assert versioning["status"].strip('"') == "Enabled"
    assert rule["noncurrent_version_expiration"]
    assert "transition" not in rule and "days" not in rule["expiration"][0] and "date" not in rule["expiration"][0]
    assert rule["abort_incomplete_multipart_upload"]
    closed = ("block_public_acls", "block_public_policy", "ignore_public_acls", "restrict_public_buckets")
    assert [public[name] for name in closed] == [True] * 4
    assert resources["aws_s3_bucket_server_side_encryption_configuration"]["lake"]
    assert resources["aws_s3_bucket"]["lake"]["lifecycle"][0]["prevent_destroy"] is True


def statements(resources: dict[str, dict[str, dict[str, Any]]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """All statements by the name of their document, also those that depend on a variable."""
    for name, document in resources["aws_iam_policy_document"].items():
        for statement in document["statement"]:
            yield name, statement
        for _, statement in optional_statements(document):
            yield name, statement


def optional_statements(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The condition and the content of each statement that depends on a variable."""
    for block in document.get("dynamic", ()):
        (dynamic,) = block.values()
        yield str(dynamic["for_each"]), dynamic["content"][0]


def test_no_role_may_delete_versions_or_do_everything(resources: dict[str, dict[str, dict[str, Any]]]) -> None:
    allowed = [
        (name, action.strip('"'), statement)
        for name, statement in statements(resources)
        if statement.get("effect", "Allow").strip('"') == "Allow"
        for action in statement["actions"]
    ]

    assert allowed
    assert not [action for _, action, _ in allowed if "*" in action or "Version" in action]
    assert {(name, action) for name, action, _ in allowed if action.startswith("iam:")} == {("emr", "iam:PassRole")}
    everywhere = {a for _, a, s in allowed if [r.strip('"') for r in s.get("resources", ())] == ["*"]}
    of_emr = {"elasticmapreduce:RunJobFlow", "elasticmapreduce:ListClusters"}
    assert everywhere == {"ecr:GetAuthorizationToken", *of_emr}, "AWS knows no other resource for these"


def test_only_the_code_has_rights_on_the_bucket(resources: dict[str, dict[str, dict[str, Any]]]) -> None:
    tasks = resources["aws_ecs_task_definition"]

    assert tasks["code"]["task_role_arn"] == "${aws_iam_role.code.arn}"
    assert "task_role_arn" not in tasks["dagster"]
    with_s3 = {name for name, s in statements(resources) if any("s3:" in action for action in s["actions"])}
    assert with_s3 == {"code", "lake"}, "the role's policy, and the bucket's own, which only denies"


@pytest.mark.parametrize(
    ("variable", "actions"),
    [
        ("readable_secret_arns", {"secretsmanager:GetSecretValue"}),
        ("kinesis_key_arns", {"kms:Decrypt"}),
        ("glue_databases", {"glue:GetTable", "glue:GetTables", "glue:CreateTable", "glue:UpdateTable"}),
    ],
)
def test_the_code_may_read_secrets_and_register_tables_only_where_a_variable_names_them(
    variable: str, actions: set[str], resources: dict[str, dict[str, dict[str, Any]]]
) -> None:
    documents = resources["aws_iam_policy_document"]

    ((name, statement),) = [
        (name, content)
        for name, document in documents.items()
        for condition, content in optional_statements(document)
        if f"var.{variable}" in condition
    ]

    assert name == "code"
    assert {action.strip('"') for action in statement["actions"]} == actions
    assert "statement.value" in str(statement["resources"])
    always = {a.strip('"') for s in documents["code"]["statement"] for a in s["actions"]}
    assert not always & actions


def test_the_code_may_do_on_named_streams_of_kinesis_what_the_doctor_tries_and_no_more(
    resources: dict[str, dict[str, dict[str, Any]]],
) -> None:
    """A statement of both lists of streams is for both modes, one of the list for fan-out for that mode alone."""
    both, fan_out = set[tuple[str, str]](), set[tuple[str, str]]()

    for condition, content in optional_statements(resources["aws_iam_policy_document"]["code"]):
        actions = {action.strip('"') for action in content["actions"]}
        if any(action.startswith("kinesis:") for action in actions):
            assert "statement.value" in str(content["resources"])
            below = re.search(r"\$\{arn\}(/[^\"]+)", str(content["resources"]))
            of_mode = both if "var.kinesis_stream_arns" in condition else fan_out
            assert "var.kinesis_fan_out_stream_arns" in condition
            of_mode |= {(action, below[1] if below else "") for action in actions}

    tried = {(right.action, right.below) for right in rights_of(FanOut("kdi_x", is_ours=True, deregisters=True))}
    assert both == {(right.action, right.below) for right in rights_of(None)}
    assert both | fan_out == tried
    always = [s for document in resources["aws_iam_policy_document"].values() for s in document["statement"]]
    assert "kinesis:" not in str(always)


def test_the_code_may_use_emr_only_where_a_variable_names_roles_and_only_clusters_of_batches(
    resources: dict[str, dict[str, dict[str, Any]]],
) -> None:
    policy = resources["aws_iam_role_policy"]["emr"]

    assert policy["count"] == "${length(var.emr_role_arns) == 0 ? 0 : 1}"
    for statement in resources["aws_iam_policy_document"]["emr"]["statement"]:
        condition = (statement.get("condition") or [{}])[0]
        limits = {action.strip('"'): str(condition.get("variable", "")).strip('"') for action in statement["actions"]}
        for action, variable in limits.items():
            if action == "iam:PassRole":
                assert variable == "iam:PassedToService"
                assert statement["resources"] == "${var.emr_role_arns}"
            elif action != "elasticmapreduce:ListClusters":
                assert variable.endswith(f"Tag/{BATCH_TAG}")
                assert (condition["test"].strip('"'), condition["values"]) == ("Null", ['"false"'])


def test_one_task_of_each_service_runs_and_the_old_one_ends_first(
    resources: dict[str, dict[str, dict[str, Any]]],
) -> None:
    for service in resources["aws_ecs_service"].values():
        assert service["desired_count"] == 1
        assert (service["deployment_minimum_healthy_percent"], service["deployment_maximum_percent"]) == (0, 100)
        assert "assign_public_ip" not in service["network_configuration"][0]


def test_every_container_that_stays_is_checked_and_runs_as_nobody_special() -> None:
    source = text()

    assert re.search(r'user\s*= "990:990"', source)
    assert re.search(r"readonlyRootFilesystem = true", source)
    # One for each unit, where daemon and webserver share a definition with a check for each; one for further drivers.
    assert len(re.findall(r"^\s*healthCheck\s+=", source, re.MULTILINE)) == len(unit_names())
    assert len(re.findall(r"^\s*check\s+=", source, re.MULTILINE)) == 2


def test_a_task_has_every_variable_of_the_example_and_secrets_only_by_name() -> None:
    source = text()

    for name in example_environment():
        assert re.search(rf"^\s*{name}\s+=", source, re.MULTILINE), name
    assert not re.search(r"^\s*PGPASSWORD\s+=", source, re.MULTILINE)
    assert "valueFrom = arn" in source


def test_only_what_reaches_kafka_gets_all_secrets_and_variables_of_the_user() -> None:
    source = text()

    shared, own = re.findall(r"^ +secrets += (\[.*PGPASSWORD.*\])$|secrets = (\[for .*?\])", source, re.MULTILINE)
    assert shared[0] == '[{ name = "PGPASSWORD", valueFrom = var.secrets["PGPASSWORD"] }]'
    assert own[1] == "[for name, arn in var.secrets : { name = name, valueFrom = arn }]"
    every = re.findall(r"merge\(local\.code_container, \{\s+name\s+= \"([\w-]+)\"", source)
    assert every == ["driver", "code-server", "metrics"]
    before, _, after = source.partition('resource "aws_ecs_task_definition" "dagster"')
    assert (before.count("var.env)"), after.count("var.env"), after.count("code_container")) == (1, 0, 0)


def test_an_alarm_is_sent_when_a_service_does_not_run(resources: dict[str, dict[str, dict[str, Any]]]) -> None:
    alarms = resources["aws_cloudwatch_metric_alarm"]

    assert alarms["gone"]["treat_missing_data"].strip('"') == "breaching"
    for alarm in alarms.values():
        assert alarm["alarm_actions"] == ["${var.alarm_topic_arn}"]
