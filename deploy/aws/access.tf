# Who may do what: the tasks of the code may use the bucket, and nobody else; ECS may read the secrets that it hands over.
data "aws_region" "here" {}

data "aws_caller_identity" "here" {}

locals {
  emr  = "arn:aws:elasticmapreduce:${data.aws_region.here.region}:${data.aws_caller_identity.here.account_id}"
  glue = "arn:aws:glue:${data.aws_region.here.region}:${data.aws_caller_identity.here.account_id}"
}

data "aws_iam_policy_document" "tasks" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ecs-tasks.amazonaws.com"]
    }

    condition { # not for tasks of other accounts
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [data.aws_caller_identity.here.account_id]
    }
  }
}

resource "aws_iam_role" "code" {
  name               = "${var.name}-code"
  assume_role_policy = data.aws_iam_policy_document.tasks.json
}

data "aws_iam_policy_document" "code" {
  statement {
    sid       = "List"
    actions   = ["s3:ListBucket", "s3:GetBucketLocation", "s3:ListBucketMultipartUploads"]
    resources = [aws_s3_bucket.lake.arn]
  }

  # Without the rights on versions: no process can delete for good what a drain, an upkeep or a mistake deleted.
  statement {
    sid       = "Tables"
    actions   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
    resources = ["${aws_s3_bucket.lake.arn}/*"]
  }

  dynamic "statement" {
    for_each = var.kms_key_arn == null ? [] : [var.kms_key_arn]

    content {
      sid       = "Key"
      actions   = ["kms:Decrypt", "kms:GenerateDataKey"]
      resources = [statement.value]
    }
  }

  dynamic "statement" { # those of documents: {aws_secret: NAME}
    for_each = length(var.readable_secret_arns) == 0 ? [] : [var.readable_secret_arns]

    content {
      sid       = "Secrets"
      actions   = ["secretsmanager:GetSecretValue"]
      resources = statement.value
    }
  }

  dynamic "statement" { # also where a consumer reads: a second client looks at single records
    for_each = length(concat(var.kinesis_stream_arns, var.kinesis_fan_out_stream_arns)) == 0 ? [] : [
      distinct(concat(var.kinesis_stream_arns, var.kinesis_fan_out_stream_arns))
    ]

    content {
      sid       = "Streams"
      actions   = ["kinesis:DescribeStreamSummary", "kinesis:ListShards", "kinesis:GetShardIterator", "kinesis:GetRecords"]
      resources = statement.value
    }
  }

  dynamic "statement" { # for consumer: {mode: efo}
    for_each = length(var.kinesis_fan_out_stream_arns) == 0 ? [] : [var.kinesis_fan_out_stream_arns]

    content {
      sid       = "NewConsumers"
      actions   = ["kinesis:RegisterStreamConsumer", "kinesis:ListStreamConsumers"]
      resources = statement.value
    }
  }

  dynamic "statement" {
    for_each = length(var.kinesis_fan_out_stream_arns) == 0 ? [] : [var.kinesis_fan_out_stream_arns]

    content {
      sid       = "Consumers"
      actions   = ["kinesis:DescribeStreamConsumer", "kinesis:SubscribeToShard"]
      resources = [for arn in statement.value : "${arn}/consumer/*"]
    }
  }

  dynamic "statement" { # no consumer of others, by whatever mistake in a document
    for_each = length(var.kinesis_fan_out_stream_arns) == 0 ? [] : [var.kinesis_fan_out_stream_arns]

    content {
      sid       = "OwnConsumers"
      actions   = ["kinesis:DeregisterStreamConsumer"]
      resources = [for arn in statement.value : "${arn}/consumer/kdi_*"]
    }
  }

  dynamic "statement" {
    for_each = length(var.kinesis_key_arns) == 0 ? [] : [var.kinesis_key_arns]

    content {
      sid       = "StreamKeys"
      actions   = ["kms:Decrypt"]
      resources = statement.value
    }
  }

  dynamic "statement" { # for KDI_CATALOG=glue
    for_each = var.glue_databases

    content {
      actions = ["glue:GetTable", "glue:GetTables", "glue:CreateTable", "glue:UpdateTable"]
      resources = [
        "${local.glue}:catalog",
        "${local.glue}:database/${statement.value}",
        "${local.glue}:table/${statement.value}/*",
      ]
    }
  }
}

# For batches on EMR. Only clusters with the tag of a batch can be looked at and ended. That keeps mistakes away from the
# clusters of others, and no more: RunJobFlow with tags needs AddTags, and who may add tags may tag any cluster.
data "aws_iam_policy_document" "emr" {
  statement {
    sid       = "NewClusters"
    actions   = ["elasticmapreduce:RunJobFlow"]
    resources = ["*"] # AWS knows no other resource for it

    condition {
      test     = "Null"
      variable = "aws:RequestTag/kdi:batch"
      values   = ["false"]
    }
  }

  statement {
    sid       = "Names"
    actions   = ["elasticmapreduce:ListClusters"]
    resources = ["*"] # AWS knows no other resource for it
  }

  statement {
    sid       = "Tags"
    actions   = ["elasticmapreduce:AddTags"]
    resources = ["${local.emr}:cluster/*"]

    condition {
      test     = "Null"
      variable = "aws:RequestTag/kdi:batch"
      values   = ["false"]
    }
  }

  statement {
    sid       = "Clusters"
    actions   = ["elasticmapreduce:DescribeCluster", "elasticmapreduce:ListSteps", "elasticmapreduce:TerminateJobFlows"]
    resources = ["${local.emr}:cluster/*"]

    condition {
      test     = "Null"
      variable = "elasticmapreduce:ResourceTag/kdi:batch"
      values   = ["false"]
    }
  }

  statement {
    sid       = "Roles"
    actions   = ["iam:PassRole"]
    resources = var.emr_role_arns

    condition {
      test     = "StringEquals"
      variable = "iam:PassedToService"
      values   = ["elasticmapreduce.amazonaws.com", "ec2.amazonaws.com"]
    }
  }
}

resource "aws_iam_role_policy" "emr" {
  count  = length(var.emr_role_arns) == 0 ? 0 : 1
  name   = "emr"
  role   = aws_iam_role.code.id
  policy = data.aws_iam_policy_document.emr.json
}

resource "aws_iam_role_policy" "code" {
  name   = "lake"
  role   = aws_iam_role.code.id
  policy = data.aws_iam_policy_document.code.json
}

resource "aws_iam_role" "start" {
  name               = "${var.name}-start"
  assume_role_policy = data.aws_iam_policy_document.tasks.json
}

data "aws_iam_policy_document" "start" {
  statement {
    sid       = "Secrets"
    actions   = ["secretsmanager:GetSecretValue"]
    resources = distinct([for arn in values(var.secrets) : join(":", slice(split(":", arn), 0, 7))])
  }

  statement {
    sid       = "Logs"
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["${aws_cloudwatch_log_group.dagster.arn}:*"]
  }

  statement {
    sid     = "Image"
    actions = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    resources = [
      "arn:aws:ecr:${data.aws_region.here.region}:${data.aws_caller_identity.here.account_id}:repository/*"
    ]
  }

  statement {
    sid       = "Registry"
    actions   = ["ecr:GetAuthorizationToken"]
    resources = ["*"] # AWS knows no other resource for it
  }

  dynamic "statement" {
    for_each = var.kms_key_arn == null ? [] : [var.kms_key_arn]

    content {
      sid       = "Key"
      actions   = ["kms:Decrypt"]
      resources = [statement.value]
    }
  }
}

resource "aws_iam_role_policy" "start" {
  name   = "start"
  role   = aws_iam_role.start.id
  policy = data.aws_iam_policy_document.start.json
}

# Whoever reaches a code server can start runs in it: only the daemon and the webserver may.
resource "aws_security_group" "dagster" {
  name        = "${var.name}-dagster"
  description = "Daemon and webserver of KDI Assets"
  vpc_id      = var.vpc_id
}

resource "aws_security_group" "code" {
  name        = "${var.name}-code"
  description = "Code servers of KDI Assets"
  vpc_id      = var.vpc_id
}

resource "aws_vpc_security_group_ingress_rule" "code" {
  description                  = "Dagster's calls"
  security_group_id            = aws_security_group.code.id
  referenced_security_group_id = aws_security_group.dagster.id
  ip_protocol                  = "tcp"
  from_port                    = 4266
  to_port                      = 4266
}

resource "aws_vpc_security_group_ingress_rule" "metrics" {
  count                        = var.metrics_security_group_id == null ? 0 : 1
  description                  = "Prometheus"
  security_group_id            = aws_security_group.code.id
  referenced_security_group_id = var.metrics_security_group_id
  ip_protocol                  = "tcp"
  from_port                    = 9464
  to_port                      = 9464
}

resource "aws_vpc_security_group_ingress_rule" "ui" {
  description                  = "Dagster's UI, behind authentication"
  security_group_id            = aws_security_group.dagster.id
  referenced_security_group_id = var.ui_security_group_id
  ip_protocol                  = "tcp"
  from_port                    = 3000
  to_port                      = 3000
}

# To brokers, database, schema registries, S3, CloudWatch: their addresses and ports are not known here.
resource "aws_vpc_security_group_egress_rule" "all" {
  for_each          = { dagster = aws_security_group.dagster.id, code = aws_security_group.code.id }
  description       = "Brokers, database, registries, AWS"
  security_group_id = each.value
  ip_protocol       = "-1"
  cidr_ipv4         = "0.0.0.0/0"
}
