# Dagster on ECS (Fargate), tables on S3, Spark in the tasks. The state of a deployment belongs into a backend of yours.
terraform {
  required_version = ">= 1.9"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.0"
    }
  }
}
