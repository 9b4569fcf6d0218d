# What AWS can see: tasks, memory, errors in the logs. What the streams do (lag, refusals, messages about to be deleted) is in
# the metrics, at port 9464 of the tasks of the code; deploy/prometheus/rules.yaml has the alerts.
locals {
  services = merge(
    { for name, service in aws_ecs_service.code : service.name => service.name },
    { for name, service in aws_ecs_service.dagster : name => service.name },
  )
}

resource "aws_cloudwatch_metric_alarm" "gone" {
  for_each            = local.services
  alarm_name          = "${var.name}-${each.key}-does-not-run"
  alarm_description   = "No task of ${each.key} runs: nothing is drained. The service's events and its log say why."
  namespace           = "ECS/ContainerInsights"
  metric_name         = "RunningTaskCount"
  dimensions          = { ClusterName = aws_ecs_cluster.dagster.name, ServiceName = each.value }
  statistic           = "Minimum"
  comparison_operator = "LessThanThreshold"
  threshold           = 1
  period              = 60
  evaluation_periods  = 5
  treat_missing_data  = "breaching"
  alarm_actions       = [var.alarm_topic_arn]
  ok_actions          = [var.alarm_topic_arn]
}

resource "aws_cloudwatch_metric_alarm" "memory" {
  for_each            = local.services
  alarm_name          = "${var.name}-${each.key}-memory"
  alarm_description   = "${each.key} uses more than 90 % of its memory; a task that exceeds it is killed and started again."
  namespace           = "AWS/ECS"
  metric_name         = "MemoryUtilization"
  dimensions          = { ClusterName = aws_ecs_cluster.dagster.name, ServiceName = each.value }
  statistic           = "Maximum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = 90
  period              = 60
  evaluation_periods  = 10
  alarm_actions       = [var.alarm_topic_arn]
  ok_actions          = [var.alarm_topic_arn]
}

resource "aws_cloudwatch_log_metric_filter" "errors" {
  name           = "${var.name}-errors"
  log_group_name = aws_cloudwatch_log_group.dagster.name
  pattern        = "{ $.level = \"error\" || $.level = \"critical\" }" # of Dagster's JSON lines

  metric_transformation {
    namespace     = var.name
    name          = "Errors"
    value         = "1"
    default_value = "0"
  }
}

resource "aws_cloudwatch_metric_alarm" "errors" {
  alarm_name          = "${var.name}-errors"
  alarm_description   = "Dagster logs errors for 15 minutes: ticks or runs fail. `kdi status` names the streams."
  namespace           = var.name
  metric_name         = aws_cloudwatch_log_metric_filter.errors.metric_transformation[0].name
  statistic           = "Sum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  period              = 300
  evaluation_periods  = 3
  treat_missing_data  = "notBreaching"
  alarm_actions       = [var.alarm_topic_arn]
  ok_actions          = [var.alarm_topic_arn]
}
