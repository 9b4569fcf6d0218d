# The processes of deploy/systemd as tasks. Runs reach the warm driver over the loopback, with a secret in its home, so they
# share a task with it and with the code server that starts them.
locals {
  home     = "/var/lib/kdi"
  settings = yamldecode(file("${path.module}/../dagster.yaml"))
  runs     = local.settings.concurrency.runs
  storage  = local.settings.storage.custom
  threads  = max(local.settings.sensors.num_workers, 4 * length(var.locations)) # ticks that wait must not delay others
  dagster = yamlencode(merge(local.settings, {
    sensors = merge(local.settings.sensors, { num_workers = local.threads })
    # Dagster opens a second connection inside some transactions.
    storage = { custom = merge(local.storage, { config = merge(local.storage.config, { max_connections = 2 * local.threads }) }) }
    concurrency = merge(local.settings.concurrency, {
      runs = { # each location takes as many runs for each driver as one machine, also while others have none
        max_concurrent_runs = local.runs.max_concurrent_runs * sum([for location in var.locations : location.drivers])
        tag_concurrency_limits = concat(local.runs.tag_concurrency_limits, [for name, location in var.locations : {
          key   = "dagster/code_location"
          value = name
          limit = local.runs.max_concurrent_runs * location.drivers
        }])
      }
    })
  }))
  workspace = yamlencode({
    load_from = [for name, _ in var.locations : {
      grpc_server = {
        host          = "${aws_service_discovery_service.code[name].name}.${aws_service_discovery_private_dns_namespace.dagster.name}"
        port          = 4266
        location_name = name
      }
    }]
  })
  environment = {
    KDI_HOME         = local.home
    KDI_LAKE         = "s3://${aws_s3_bucket.lake.bucket}/lake"
    KDI_DRIVER       = "shared"
    KDI_AUTOMATION   = var.automation ? "on" : "off"
    KDI_SPARK_MASTER = "local[*]"
    DAGSTER_HOME     = "${local.home}/dagster"
    PGHOST           = var.database.host
    PGUSER           = var.database.user
    PGDATABASE       = var.database.name
    PGSSLMODE        = "require"
  }
  # What all containers of a task have in common.
  container = {
    image                  = var.image
    essential              = true
    readonlyRootFilesystem = true
    user                   = "990:990"
    linuxParameters        = { initProcessEnabled = true, capabilities = { drop = ["ALL"] } }
    secrets                = [{ name = "PGPASSWORD", valueFrom = var.secrets["PGPASSWORD"] }]
    mountPoints = [
      { sourceVolume = "home", containerPath = local.home },
      { sourceVolume = "tmp", containerPath = "/tmp" },
    ]
    logConfiguration = {
      logDriver = "awslogs"
      options = {
        awslogs-group         = aws_cloudwatch_log_group.dagster.name
        awslogs-region        = data.aws_region.here.region
        awslogs-stream-prefix = "kdi"
      }
    }
  }
  # Those that reach Kafka have all secrets; the others only the password of Dagster's database.
  code_container = merge(local.container, { secrets = [for name, arn in var.secrets : { name = name, valueFrom = arn }] })
  # Fills the home: a volume starts empty, and Dagster's settings must be in a folder that it can write to.
  fill_home = <<-EOT
    ln -sfn /opt/kdi/home/jars ${local.home}/jars && mkdir -p ${local.home}/dagster
    printf %s "$DAGSTER" > ${local.home}/dagster/dagster.yaml && printf %s "$WORKSPACE" > ${local.home}/workspace.yaml
  EOT
  # The first warm driver of a task: if it ends, ECS replaces the task. It restarts a further one alone, and runs use the others
  # meanwhile; but not one that ended within restartAttemptPeriod (60 s is the least): then the first one serves all runs.
  driver = merge(local.code_container, {
    name      = "driver"
    command   = ["/opt/kdi/venv/bin/kdi", "driver", "run", "--idle-exit", "0"]
    dependsOn = [{ containerName = "migrate", condition = "SUCCESS" }]
    healthCheck = { # the driver writes this file once runs can attach
      command     = ["CMD", "test", "-f", "${local.home}/driver.json"]
      interval    = 15
      timeout     = 5
      retries     = 8 # it is away for some seconds whenever the driver replaces its JVM
      startPeriod = 120
    }
    stopTimeout = 30
  })
  drivers = { for name, location in var.locations : name => [for number in range(1, location.drivers + 1) : merge(
    local.driver,
    { for key, value in {
      name          = "driver-${number}"
      command       = concat(local.driver.command, ["--number", tostring(number)])
      healthCheck   = merge(local.driver.healthCheck, { command = ["CMD", "test", "-f", "${local.home}/drivers/${number}/driver.json"] })
      essential     = false
      restartPolicy = { enabled = true, restartAttemptPeriod = 60 }
    } : key => value if number > 1 },
  )] }
  prepare = merge(local.container, {
    name      = "home"
    essential = false
    command   = ["sh", "-ec", local.fill_home]
    secrets   = []
    environment = [
      { name = "DAGSTER", value = local.dagster },
      { name = "WORKSPACE", value = local.workspace },
    ]
  })
  after_home = [{ containerName = "home", condition = "SUCCESS" }]
  listens = { for name, port in { code = 4266, webserver = 3000, metrics = 9464 } : name => {
    command     = ["CMD", "bash", "-c", "</dev/tcp/127.0.0.1/${port}"]
    interval    = 30
    timeout     = 5
    retries     = 5
    startPeriod = 120
  } }
}

resource "aws_ecs_cluster" "dagster" {
  name = var.name

  setting { # the alarms need its metrics
    name  = "containerInsights"
    value = "enabled"
  }
}

resource "aws_cloudwatch_log_group" "dagster" {
  name              = "/${var.name}/dagster"
  retention_in_days = var.log_days
  kms_key_id        = var.kms_key_arn
}

resource "aws_service_discovery_private_dns_namespace" "dagster" {
  name        = "${var.name}.internal"
  description = "Where Dagster finds its code servers"
  vpc         = var.vpc_id
}

resource "aws_service_discovery_service" "code" {
  for_each = var.locations
  name     = replace(each.key, "_", "-")

  dns_config {
    namespace_id = aws_service_discovery_private_dns_namespace.dagster.id

    dns_records {
      type = "A"
      ttl  = 5
    }
  }
}

resource "aws_ecs_task_definition" "code" {
  for_each                 = var.locations
  family                   = "${var.name}-${replace(each.key, "_", "-")}"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = each.value.cpu
  memory                   = each.value.memory
  execution_role_arn       = aws_iam_role.start.arn
  task_role_arn            = aws_iam_role.code.arn

  ephemeral_storage {
    size_in_gib = each.value.scratch_gib
  }

  dynamic "volume" {
    for_each = toset(["home", "tmp"])

    content {
      name = volume.value
    }
  }

  container_definitions = jsonencode([
    for container in concat([
      local.prepare,
      merge(local.container, {
        name      = "migrate" # creates or migrates Dagster's tables
        essential = false
        command   = ["/opt/kdi/venv/bin/dagster", "instance", "migrate"]
        dependsOn = local.after_home
      }),
      ], local.drivers[each.key], [
      merge(local.code_container, {
        name = "code-server"
        command = [
          "/opt/kdi/venv/bin/python", "-P", "-m", "kdi_assets.resources.code_server", "--module-name", "kdi_assets.definitions",
          "--location-name", each.key, "--host", "0.0.0.0", "--port", "4266", "--lazy-load-user-code", "--log-format", "json",
        ]
        # It waits for the first driver only; but at a stop, ECS ends it before all that it depends on.
        dependsOn    = [for driver in local.drivers[each.key] : { containerName = driver.name, condition = driver.name == "driver" ? "HEALTHY" : "START" }]
        healthCheck  = local.listens.code
        memory       = 2048 * each.value.drivers # with four runs of each
        portMappings = [{ containerPort = 4266, protocol = "tcp" }]
        # The most that Fargate allows. A run that takes longer is killed and retried, which loses time and no message.
        stopTimeout = 120
      }),
      merge(local.code_container, {
        name         = "metrics"
        command      = ["/opt/kdi/venv/bin/kdi", "metrics", "serve", "--host", "0.0.0.0", "--port", "9464"]
        dependsOn    = local.after_home
        healthCheck  = local.listens.metrics
        memory       = 1024
        portMappings = [{ containerPort = 9464, protocol = "tcp" }]
        stopTimeout  = 30
      }),
      ]) : merge({
      environment = [for name, value in merge(local.environment, {
        KDI_DEFS            = each.value.documents
        SPARK_DRIVER_MEMORY = each.value.driver_memory
      }, var.env) : { name = name, value = value }]
    }, container)
  ])
}

resource "aws_ecs_task_definition" "dagster" {
  for_each = {
    daemon = {
      command = [
        "/opt/kdi/venv/bin/python", "-P", "-m", "kdi_assets.resources.daemon", "run", "--workspace", "${local.home}/workspace.yaml",
        "--log-format", "json",
      ]
      ports = []
      check = { # by its heartbeats in the database; a start of Python costs two CPU seconds
        command     = ["CMD", "/opt/kdi/venv/bin/dagster-daemon", "liveness-check"]
        interval    = 120
        timeout     = 60
        retries     = 3
        startPeriod = 300
      }
    }
    webserver = {
      command = [
        "/opt/kdi/venv/bin/python", "-P", "-m", "kdi_assets.resources.webserver", "--workspace", "${local.home}/workspace.yaml",
        "--host", "0.0.0.0", "--port", "3000", "--log-format", "json",
      ]
      ports = [{ containerPort = 3000, protocol = "tcp" }]
      check = local.listens.webserver
    }
  }
  family                   = "${var.name}-${each.key}"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = 512
  memory                   = 1024
  execution_role_arn       = aws_iam_role.start.arn # and no task role: neither of them needs a right in AWS

  dynamic "volume" {
    for_each = toset(["home", "tmp"])

    content {
      name = volume.value
    }
  }

  container_definitions = jsonencode([
    local.prepare,
    merge(local.container, {
      name         = each.key
      command      = each.value.command
      environment  = [for name, value in local.environment : { name = name, value = value }]
      dependsOn    = local.after_home
      healthCheck  = each.value.check
      portMappings = each.value.ports
      stopTimeout  = each.key == "daemon" ? 60 : 30
    }),
  ])
}

# The old task ends before the new one starts: Dagster must find the runs of a code server in the task that started them, and
# two daemons would request every run twice.
resource "aws_ecs_service" "code" {
  for_each                           = var.locations
  name                               = replace(each.key, "_", "-")
  cluster                            = aws_ecs_cluster.dagster.id
  task_definition                    = aws_ecs_task_definition.code[each.key].arn
  launch_type                        = "FARGATE"
  desired_count                      = 1
  deployment_minimum_healthy_percent = 0
  deployment_maximum_percent         = 100

  network_configuration {
    subnets         = var.subnet_ids
    security_groups = [aws_security_group.code.id]
  }

  service_registries {
    registry_arn = aws_service_discovery_service.code[each.key].arn
  }
}

resource "aws_ecs_service" "dagster" {
  for_each                           = aws_ecs_task_definition.dagster
  name                               = each.key
  cluster                            = aws_ecs_cluster.dagster.id
  task_definition                    = each.value.arn
  launch_type                        = "FARGATE"
  desired_count                      = 1
  deployment_minimum_healthy_percent = 0
  deployment_maximum_percent         = 100

  network_configuration {
    subnets         = var.subnet_ids
    security_groups = [aws_security_group.dagster.id]
  }
}
