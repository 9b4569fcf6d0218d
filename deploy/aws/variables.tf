variable "name" {
  description = "Prefix of everything that is made."
  type        = string
  default     = "kdi"
}

variable "image" {
  description = "Image made from deploy/Dockerfile, with your documents in /etc/kdi/streams."
  type        = string
}

variable "bucket" {
  description = "Name of the bucket of the tables; it is made."
  type        = string
}

variable "vpc_id" {
  description = "Network of brokers and database."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets with a route to the brokers, Kinesis, the database, S3, ECR, CloudWatch and Secrets Manager."
  type        = list(string)
}

variable "database" {
  description = "PostgreSQL for Dagster: a server that exists, with a database of this name."
  type = object({
    host = string
    name = optional(string, "dagster")
    user = optional(string, "kdi")
  })
}

variable "secrets" {
  description = "Environment variable to the ARN of its secret: PGPASSWORD, and what the KafkaCluster documents name."
  type        = map(string)

  validation {
    condition     = contains(keys(var.secrets), "PGPASSWORD")
    error_message = "secrets needs PGPASSWORD: the ARN of the secret with the database's password."
  }
}

variable "automation" {
  description = "Whether sensors and schedules are on: true for one deployment of a lake; off, people start runs in the UI."
  type        = bool
  default     = true
}

variable "env" {
  description = "More variables of the tasks of the code that are no secrets, such as KDI_CATALOG, OPENLINEAGE_URL, STATSD_ENDPOINT."
  type        = map(string)
  default     = {}
}

variable "readable_secret_arns" {
  description = "ARNs of the secrets that documents name as {aws_secret: NAME}; the code reads them itself."
  type        = list(string)
  default     = []
}

variable "kinesis_stream_arns" {
  description = "ARNs of the streams of Kinesis that KinesisTable documents name; the code may read them."
  type        = list(string)
  default     = []
}

variable "kinesis_fan_out_stream_arns" {
  description = "ARNs of the streams whose documents have consumer: {mode: efo}; the code may register consumers, and deregister its own."
  type        = list(string)
  default     = []
}

variable "kinesis_key_arns" {
  description = "ARNs of the keys of encrypted streams of Kinesis."
  type        = list(string)
  default     = []
}

variable "glue_databases" {
  description = "Databases of AWS Glue in which KDI_CATALOG=glue registers tables; they must exist."
  type        = list(string)
  default     = []
}

variable "emr_role_arns" {
  description = "ARNs of the roles of clusters of EMR that batches name: that of the service and that of the instances; the code may start such clusters."
  type        = list(string)
  default     = []
}

variable "kms_key_arn" {
  description = "Key of the bucket, the logs and the secrets; null: keys of AWS."
  type        = string
  default     = null
}

variable "locations" {
  description = "A task for each: code server with its runs, warm drivers, metrics. Sizes are those of Fargate. Before you rename or remove one, stop its sensors and let its runs end."
  type = map(object({
    documents     = optional(string, "/etc/kdi/streams") # folder in the image
    cpu           = optional(number, 4096)
    memory        = optional(number, 8192) # MiB; of this, the code server takes 2048 for each driver, metrics 1024, and Spark the rest
    drivers       = optional(number, 1)    # warm drivers, which share the runs (docs/many-streams.md)
    driver_memory = optional(string, "2g") # heap of each driver
    scratch_gib   = optional(number, 40)   # disk of the task, for shuffles and cached messages
  }))
  default = { kdi_assets = {} }

  validation {
    condition     = length(setintersection(keys(var.locations), ["daemon", "webserver"])) == 0
    error_message = "locations: daemon and webserver are services of their own; choose another name."
  }

  validation {
    condition     = length(distinct([for name in keys(var.locations) : replace(name, "_", "-")])) == length(var.locations)
    error_message = "locations: two have the same name, in which _ and - are the same."
  }
}

variable "ui_security_group_id" {
  description = "Who may open Dagster's UI: the group of a load balancer with authentication. Anyone who can open it can start runs."
  type        = string
}

variable "metrics_security_group_id" {
  description = "Who may read the metrics: the group of Prometheus. Null: nobody."
  type        = string
  default     = null
}

variable "alarm_topic_arn" {
  description = "SNS topic of the alarms."
  type        = string
}

variable "noncurrent_days" {
  description = "Days for which a deleted or replaced object can be brought back."
  type        = number
  default     = 30
}

variable "log_days" {
  description = "Days for which logs are kept."
  type        = number
  default     = 365
}
