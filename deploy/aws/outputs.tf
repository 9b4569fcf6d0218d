output "lake" {
  description = "KDI_LAKE for commands that administrators run elsewhere."
  value       = local.environment.KDI_LAKE
}

output "code_role_arn" {
  description = "The role with the rights on the bucket."
  value       = aws_iam_role.code.arn
}
