"""Names of the JVM and of PySpark that the adapters use, by the function that uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SPARK = "kdi_assets.runtime.spark_internals"
YARN = "kdi_assets.runtime.yarn"
GATEWAY = "kdi_assets.runtime.gateway"
NAMES = "kdi_assets.runtime.jvm_names"
DELTA = "kdi_assets.delta.internals"
KAFKA = "kdi_assets.messages.kafka.reader"
KINESIS = "kdi_assets.messages.kinesis.reader"

_HADOOP = "org.apache.hadoop.yarn"
_APPLICATION = f"{_HADOOP}.api.records.ApplicationReport"
_YARN_CLIENT = f"{_HADOOP}.client.api.YarnClient"
_SQL = "org.apache.spark.sql"
_CATALYST = f"{_SQL}.catalyst"
_NODES = f"{_CATALYST}.plans.logical"
_EXPRESSIONS = f"{_CATALYST}.expressions"
_SESSION = f"{_SQL}.classic.SparkSession"
_LOG = f"{_SQL}.delta.DeltaLog"
_SNAPSHOT = f"{_SQL}.delta.Snapshot"
_TRANSACTION = f"{_SQL}.delta.OptimisticTransaction"
_ACTIONS = f"{_SQL}.delta.actions"
_KAFKA = f"{_SQL}.kafka010"
_AVRO = "org.apache.avro"
_OPTION = "scala.Option.apply/1"

JVM: Mapping[str, Sequence[str]] = {
    f"{SPARK}:jvm_context": ["org.apache.spark.api.java.JavaSparkContext.sc/0"],
    f"{SPARK}:hadoop_setting": [
        "org.apache.spark.SparkContext.hadoopConfiguration/0",
        "org.apache.hadoop.conf.Configuration.get/1",
    ],
    f"{SPARK}:cancel_without_executor": ["kdi.runtime.ExecutorWatch.begin/4"],
    f"{YARN}:_client": [
        f"{_YARN_CLIENT}.createYarnClient/0",
        f"{_YARN_CLIENT}.init/1",
        f"{_YARN_CLIENT}.start/0",
        f"{_YARN_CLIENT}.stop/0",
        f"{_HADOOP}.conf.YarnConfiguration.<init>/0",
    ],
    f"{YARN}:_with_tag": [
        f"{_YARN_CLIENT}.getApplications/1",
        f"{_HADOOP}.api.protocolrecords.GetApplicationsRequest.newInstance/0",
        f"{_HADOOP}.api.protocolrecords.GetApplicationsRequest.setApplicationTags/1",
        "java.util.HashSet.<init>/0",
        "java.util.HashSet.add/1",
    ],
    f"{YARN}:_said": [
        f"{_APPLICATION}.getApplicationId/0",
        f"{_APPLICATION}.getYarnApplicationState/0",
        f"{_APPLICATION}.getDiagnostics/0",
    ],
    f"{YARN}:_kill": [f"{_APPLICATION}.getApplicationId/0", f"{_YARN_CLIENT}.killApplication/1"],
    f"{YARN}:_end": [
        f"{_HADOOP}.api.records.ApplicationId.fromString/1",
        f"{_YARN_CLIENT}.getApplicationReport/1",
        f"{_APPLICATION}.getFinalApplicationStatus/0",
        f"{_APPLICATION}.getDiagnostics/0",
    ],
    f"{SPARK}:empty_frame": ["java.util.ArrayList.<init>/0", f"{_SESSION}.createDataFrame/2"],
    f"{SPARK}:frame_of_internal_rows": [f"{_SESSION}.internalCreateDataFrame/3"],
    f"{SPARK}:scala_option": [_OPTION],
    f"{SPARK}:scala_seq": ["org.apache.spark.api.python.PythonUtils.toSeq/1"],
    f"{SPARK}:scala_map": ["org.apache.spark.api.python.PythonUtils.toScalaMap/1"],
    f"{SPARK}:listed": ["scala.collection.Seq.apply/1", "scala.collection.Seq.size/0"],
    f"{SPARK}:jvm_cpu_seconds": ["kdi.runtime.CpuSeconds.ofJvm/0"],
    f"{SPARK}:thread_cpu_seconds": ["kdi.runtime.CpuSeconds.ofThread/0"],
    f"{SPARK}:TaskSeconds": [
        f"{_SESSION}.sessionJobTag/0",
        "kdi.runtime.CpuSeconds.<init>/3",
        "kdi.runtime.CpuSeconds.ofTasks/0",
    ],
    f"{SPARK}:resolved_by_ivy": [
        "org.apache.spark.util.DependencyUtils.getIvyProperties/0",
        "org.apache.spark.util.DependencyUtils.resolveMavenDependencies/6",
        "org.apache.spark.util.IvyProperties.ivySettingsPath/0",
        "org.apache.spark.util.IvyProperties.repositories/0",
        "org.apache.spark.util.IvyProperties.ivyRepoPath/0",
        _OPTION,
        "scala.jdk.javaapi.CollectionConverters.asJava/1",
    ],
    f"{SPARK}:jvm_type": [f"{_SQL}.types.DataType.fromDDL/1", f"{_SQL}.types.DataType.fromJson/1"],
    f"{SPARK}:ddl_of": [f"{_SQL}.types.StructType.toDDL/0"],
    f"{SPARK}:try_eval": [f"{_EXPRESSIONS}.TryEval.<init>/1"],
    f"{SPARK}:kernel_call": [
        "java.lang.Class.forName/3",
        "java.lang.Thread.currentThread/0",
        "java.lang.Thread.getContextClassLoader/0",
        f"{_SQL}.types.ObjectType.<init>/1",
        f"{_EXPRESSIONS}.Literal.fromObject/2",
        f"{_EXPRESSIONS}.objects.StaticInvoke.<init>/9",
        "org.apache.spark.api.python.PythonUtils.toSeq/1",
        "scala.Option.empty/0",
    ],
    f"{SPARK}:referenced_names": [
        f"{_EXPRESSIONS}.Expression.collectLeaves/0",
        f"{_CATALYST}.analysis.UnresolvedAttribute.name/0",
        "java.lang.Class.getSimpleName/0",
        "java.lang.Object.getClass/0",
    ],
    f"{SPARK}:written_again": [f"{_EXPRESSIONS}.Expression.sql/0"],
    f"{SPARK}:_parsed": [
        f"{_SESSION}.sessionState/0",
        f"{_SQL}.internal.SessionState.sqlParser/0",
        f"{_CATALYST}.parser.ParserInterface.parseExpression/1",
    ],
    f"{SPARK}:_column": [f"{_SQL}.classic.ExpressionUtils.column/1"],
    f"{SPARK}:plan_physically": [
        f"{_SQL}.classic.Dataset.queryExecution/0",
        f"{_SQL}.execution.QueryExecution.sparkPlan/0",
    ],
    f"{SPARK}:analysed_plan": [
        f"{_SQL}.classic.Dataset.queryExecution/0",
        f"{_SQL}.execution.QueryExecution.analyzed/0",
    ],
    f"{SPARK}:last_expression": [f"{_NODES}.LogicalPlan.expressions/0"],
    f"{SPARK}:is_deterministic": [f"{_EXPRESSIONS}.Expression.deterministic/0"],
    f"{SPARK}:has_window": [f"{_NODES}.LogicalPlan.toString/0"],
    f"{SPARK}:has_subquery": [
        f"{_EXPRESSIONS}.Expression.containsPattern/1",
        f"{_CATALYST}.trees.TreePattern.PLAN_EXPRESSION/0",
    ],
    f"{SPARK}:has_clock": [
        f"{_EXPRESSIONS}.Expression.containsPattern/1",
        f"{_CATALYST}.trees.TreePattern.CURRENT_LIKE/0",
    ],
    f"{SPARK}:with_kernel_expressions": ["kdi.expressions.KernelExpressions.replacedIn/1"],
    f"{SPARK}:_patterns": [f"{_CATALYST}.trees.TreePattern"],
    f"{SPARK}:plan_nodes": ["kdi.expressions.PlanNodes.toJson/1"],
    f"{SPARK}:unread_frame": [
        f"{_CATALYST}.plans.physical.UnknownPartitioning.<init>/1",
        f"{_SQL}.execution.LogicalRDD.<init>/9",
        f"{_SQL}.classic.Dataset.queryExecution/0",
        f"{_SQL}.execution.QueryExecution.analyzed/0",
        f"{_SQL}.catalyst.plans.QueryPlan.output/0",
        f"{_SQL}.catalyst.plans.QueryPlan.outputOrdering/0",
        f"{_SQL}.classic.Dataset.ofRows/2",
    ],
    f"{SPARK}:optimised_leaves": [
        f"{_SQL}.classic.Dataset.queryExecution/0",
        f"{_SQL}.execution.QueryExecution.optimizedPlan/0",
        f"{_SQL}.classic.Dataset.ofRows/2",
    ],
    f"{SPARK}:_add_leaves": [
        f"{_NODES}.LogicalPlan.nodeName/0",
        f"{_NODES}.LogicalPlan.children/0",
        f"{_NODES}.LogicalPlan.subqueries/0",
        f"{_NODES}.LogicalPlan.output/0",
        f"{_NODES}.Filter.condition/0",
        f"{_EXPRESSIONS}.Attribute.metadata/0",
        f"{_SQL}.types.Metadata.json/0",
        "java.lang.Object.toString/0",
    ],
    f"{SPARK}:_conjuncts": [
        f"{_EXPRESSIONS}.And.left/0",
        f"{_EXPRESSIONS}.And.right/0",
        "java.lang.Class.getSimpleName/0",
        "java.lang.Object.getClass/0",
        "java.lang.Object.toString/0",
    ],
    f"{SPARK}:rows_ask_clock": ["kdi.expressions.PlanNodes.askClock/1"],
    f"{SPARK}:columns_of_bytes_as_text": ["kdi.expressions.PlanNodes.ofBytesAsText/1"],
    f"{SPARK}:avro_type": [
        f"{_SQL}.avro.SchemaConverters.toSqlType/1",
        f"{_SQL}.avro.SchemaConverters$SchemaType.dataType/0",
        f"{_SQL}.types.DataType.asNullable/0",
        f"{_SQL}.types.DataType.json/0",
    ],
    f"{SPARK}:avro_fingerprint": [
        f"{_AVRO}.NameValidator.NO_VALIDATION",
        f"{_AVRO}.Schema$Parser.<init>/1",
        f"{_AVRO}.SchemaNormalization.parsingFingerprint/2",
    ],
    f"{SPARK}:avro_incompatibilities": [
        f"{_AVRO}.SchemaCompatibility.checkReaderWriterCompatibility/2",
        f"{_AVRO}.SchemaCompatibility$SchemaPairCompatibility.getType/0",
        f"{_AVRO}.SchemaCompatibility$SchemaPairCompatibility.getResult/0",
        f"{_AVRO}.SchemaCompatibility$SchemaCompatibilityResult.getIncompatibilities/0",
        f"{_AVRO}.SchemaCompatibility$Incompatibility.getLocation/0",
        f"{_AVRO}.SchemaCompatibility$Incompatibility.getMessage/0",
        f"{_AVRO}.io.DecoderFactory.get/0",
        f"{_AVRO}.io.DecoderFactory.resolvingDecoder/3",
        "java.lang.Object.toString/0",
    ],
    f"{SPARK}:_avro_schema": [f"{_AVRO}.Schema$Parser.<init>/0", f"{_AVRO}.Schema$Parser.parse/1"],
    f"{GATEWAY}:hadoop_default": [
        "org.apache.hadoop.conf.Configuration.<init>/0",
        "org.apache.hadoop.conf.Configuration.get/1",
    ],
    f"{GATEWAY}:activate": [f"{_SESSION}.setActiveSession/1"],
    f"{GATEWAY}:has_ended": [
        "org.apache.spark.api.java.JavaSparkContext.sc/0",
        "org.apache.spark.SparkContext.isStopped/0",
    ],
    f"{GATEWAY}:shared_context": [
        "org.apache.spark.SparkContext$.getActive/0",
        "org.apache.spark.SparkContext.isStopped/0",
        "scala.Option.isEmpty/0",
        "scala.Option.get/0",
        "org.apache.spark.api.java.JavaSparkContext.fromSparkContext/1",
        "org.apache.spark.api.java.JavaSparkContext.getConf/0",
        "org.apache.spark.SparkConf.getAllWithPrefix/1",
    ],
    f"{GATEWAY}:job_tag": [f"{_SESSION}.sessionJobTag/0"],
    f"{GATEWAY}:cancel_jobs": [
        "org.apache.spark.SparkContext.cancelJobGroupAndFutureJobs/2",
        "org.apache.spark.SparkContext.cancelJobsWithTag/1",
    ],
    f"{GATEWAY}:active_jobs": [
        "org.apache.spark.SparkContext.statusTracker/0",
        "org.apache.spark.SparkStatusTracker.getActiveJobIds/0",
    ],
    f"{GATEWAY}:running_tasks": [
        "org.apache.spark.SparkContext.statusTracker/0",
        "org.apache.spark.SparkStatusTracker.getActiveJobIds/0",
        "org.apache.spark.SparkStatusTracker.getJobIdsForTag/1",
        "org.apache.spark.SparkStatusTracker.getJobInfo/1",
        "org.apache.spark.SparkStatusTracker.getStageInfo/1",
        "org.apache.spark.SparkJobInfo.stageIds/0",
        "org.apache.spark.SparkStageInfo.numCompletedTasks/0",
        "org.apache.spark.SparkStageInfo.numTasks/0",
        "scala.Option.isDefined/0",
        "scala.Option.get/0",
        "java.util.Arrays.toString/1",
    ],
    f"{GATEWAY}:ClientObjects": [
        "py4j.GatewayServer.getGateway/0",
        "py4j.Gateway.getBindings/0",
        "java.util.HashSet.<init>/1",
        "java.util.Map.keySet/0",
        "java.util.Set.retainAll/1",
    ],
    f"{DELTA}:delta_version": ["io.delta.package.VERSION/0"],
    f"{DELTA}:log_of": [f"{_SQL}.SparkSession.setActiveSession/1", f"{_LOG}.forTable/2"],
    f"{DELTA}:log_with_own_writer": ["kdi.parquet.WritingLog.<init>/1"],
    f"{DELTA}:latest_snapshot": [f"{_LOG}.update/3"],
    f"{DELTA}:snapshot_at": [f"{_LOG}.getSnapshotAt/4"],
    f"{DELTA}:snapshot_with_metadata": [
        f"{_SQL}.delta.DummySnapshot.<init>/5",
        f"{_SNAPSHOT}.protocol/0",
        f"{_SNAPSHOT}.logPath/0",
    ],
    f"{DELTA}:version_of": [f"{_SNAPSHOT}.version/0"],
    f"{DELTA}:forget_log": [f"{_LOG}.invalidateCache/2", "org.apache.hadoop.fs.Path.<init>/1"],
    f"{DELTA}:transaction_ids": [f"{_SNAPSHOT}.setTransactions/0", f"{_ACTIONS}.SetTransaction.appId/0"],
    f"{DELTA}:metadata_of": [f"{_SNAPSHOT}.metadata/0", f"{_TRANSACTION}.metadata/0"],
    f"{DELTA}:schema_text": [f"{_ACTIONS}.Metadata.schemaString/0"],
    f"{DELTA}:partition_columns": [f"{_ACTIONS}.Metadata.partitionColumns/0"],
    f"{DELTA}:id_of": [f"{_ACTIONS}.Metadata.id/0"],
    f"{DELTA}:has_change_feed": [f"{_SQL}.delta.commands.cdc.CDCReader.isCDCEnabledOnTable/2"],
    f"{DELTA}:new_metadata": [f"{_SQL}.delta.DeltaConfigs.validateConfigurations/1"],
    f"{DELTA}:metadata_like": [f"{_ACTIONS}.Metadata.configuration/0", f"{_ACTIONS}.Metadata.createdTime/0"],
    f"{DELTA}:_metadata": [
        f"{_ACTIONS}.Metadata.<init>/8",
        f"{_ACTIONS}.Format.<init>/2",
        f"{_SQL}.types.DataType.asNullable/0",
        f"{_SQL}.types.DataType.json/0",
    ],
    f"{DELTA}:start_transaction": [f"{_LOG}.startTransaction/2"],
    f"{DELTA}:read_version": [f"{_TRANSACTION}.readVersion/0"],
    f"{DELTA}:set_metadata": [f"{_TRANSACTION}.updateMetadata/2"],
    f"{DELTA}:set_first_metadata": [f"{_TRANSACTION}.updateMetadataForNewTable/1"],
    f"{DELTA}:set_transactions": [f"{_TRANSACTION}.updateSetTransaction/3"],
    f"{DELTA}:commit_actions": [
        f"{_SQL}.SaveMode.Append",
        f"{_SQL}.delta.DeltaOperations$Write.<init>/9",
        f"{_TRANSACTION}.commit/2",
    ],
    f"{DELTA}:is_conflict": [
        "java.lang.Class.getName/0",
        "java.lang.Object.getClass/0",
        "java.lang.Throwable.getMessage/0",
    ],
    f"{DELTA}:append_files": [
        f"{_SQL}.SaveMode.Append",
        f"{_SQL}.delta.commands.WriteIntoDelta.<init>/9",
        f"{_SQL}.delta.commands.WriteIntoDelta.writeAndReturnCommitData/4",
        f"{_SQL}.delta.commands.DMLUtils$TaggedCommitData.actions/0",
    ],
    f"{DELTA}:write_files": [f"{_TRANSACTION}.writeFiles/3"],
    f"{DELTA}:_options": [
        f"{_SQL}.delta.DeltaOptions.<init>/2",
        f"{_SESSION}.sessionState/0",
        f"{_SQL}.internal.SessionState.conf/0",
    ],
    f"{DELTA}:missing_files": [
        f"{_LOG}.dataPath/0",
        f"{_LOG}.newDeltaHadoopConf/0",
        "org.apache.hadoop.fs.Path.<init>/2",
        "org.apache.hadoop.fs.Path.getFileSystem/1",
        "org.apache.hadoop.fs.FileSystem.exists/1",
    ],
    f"{DELTA}:files_where": [
        f"{_SNAPSHOT}.allFiles/0",
        f"{_SQL}.classic.Dataset.where/1",
        f"{_SQL}.classic.Dataset.collectAsList/0",
    ],
    f"{DELTA}:files_from_json": [f"{_ACTIONS}.Action.fromJson/1"],
    f"{DELTA}:as_json": [f"{_ACTIONS}.Action.json/0"],
    f"{DELTA}:path_of": [f"{_ACTIONS}.AddFile.path/0"],
    f"{DELTA}:bytes_of": [f"{_ACTIONS}.AddFile.size/0"],
    f"{DELTA}:row_count": [
        f"{_ACTIONS}.AddFile.numLogicalRecords/0",
        "scala.Option.isDefined/0",
        "scala.Option.get/0",
    ],
    f"{DELTA}:removals": [f"{_ACTIONS}.AddFile.removeWithTimestamp/2"],
    f"{DELTA}:rows_of_files": [f"{_LOG}.createDataFrame/4"],
    f"{KAFKA}:_with_open_key": ["kdi.kafka.ClientKey.opened/2"],
    f"{KAFKA}:read_ranges": [
        f"{_KAFKA}.KafkaSourceProvider.kafkaParamsForExecutors/2",
        f"{_KAFKA}.KafkaOffsetRange.<init>/4",
        f"{_KAFKA}.KafkaSourceRDD.<init>/5",
        f"{_KAFKA}.KafkaSourceRDD.map/2",
        f"{_KAFKA}.KafkaRecordToRowConverter.<init>/0",
        f"{_KAFKA}.KafkaRecordToRowConverter.toInternalRowWithHeaders/0",
        f"{_KAFKA}.KafkaRecordToRowConverter.kafkaSchema/1",
        "org.apache.kafka.common.TopicPartition.<init>/2",
        f"{_CATALYST}.InternalRow",
        "java.lang.Class.forName/1",
        "scala.reflect.ClassTag.apply/1",
    ],
    f"{KINESIS}:read_shards": [
        "java.util.ArrayList.<init>/0",
        "java.util.ArrayList.add/1",
        "kdi.kinesis.ShardReader.rows/5",
    ],
    f"{KINESIS}:read_spans": [
        "java.util.ArrayList.<init>/0",
        "java.util.ArrayList.add/1",
        "kdi.kinesis.Spans.<init>/3",
        "kdi.kinesis.ShardReader.again/4",
    ],
    f"{KINESIS}:_jvm": ["kdi.kinesis.ShardReader"],
    f"{KINESIS}:_access": ["kdi.kinesis.Access.<init>/5"],
    f"{KINESIS}:_context": ["org.apache.spark.api.java.JavaSparkContext.fromSparkContext/1"],
    f"{KINESIS}:_shard_range": ["java.math.BigInteger.<init>/1", "kdi.kinesis.ShardRange.<init>/11"],
    f"{KINESIS}:rows_on_disk": [
        f"{_SQL}.classic.Dataset.queryExecution/0",
        f"{_SQL}.execution.QueryExecution.toRdd/0",
        "kdi.kinesis.RowsOnDisk.<init>/2",
        "kdi.kinesis.RowsOnDisk.forget/0",
    ],
    f"{KINESIS}:counted_rows": ["kdi.kinesis.RowsOnDisk.counted/0"],
    f"{KINESIS}:checked_rows": ["kdi.kinesis.RowsOnDisk.rows/3"],
}
"""``class.member/parameters``; a class or a static field without parameters; ``<init>`` is the constructor."""

PYSPARK: Mapping[str, Sequence[str]] = {
    f"{SPARK}:jvm_view": ["session._jvm"],
    f"{SPARK}:jvm_session": ["session._jsparkSession"],
    f"{SPARK}:jvm_context": ["session.sparkContext._jsc"],
    f"{SPARK}:jvm_frame": ["frame._jdf"],
    f"{SPARK}:frame_of": ["pyspark.sql.DataFrame"],
    f"{SPARK}:_column": ["pyspark.sql.classic.column.Column"],
    f"{SPARK}:avro_type": ["pyspark.sql.types._parse_datatype_json_string"],
    f"{SPARK}:_active_jvm": ["pyspark.SparkContext._active_spark_context", "session.sparkContext._jvm"],
    f"{GATEWAY}:gateway_of": ["session.sparkContext._gateway"],
    f"{GATEWAY}:current_gateway": ["pyspark.SparkContext._gateway"],
    f"{GATEWAY}:use_gateway": ["pyspark.SparkContext._ensure_initialized", "pyspark.SparkConf"],
    f"{GATEWAY}:forget_jvm": [
        "pyspark.SparkContext._gateway",
        "pyspark.SparkContext._jvm",
        "pyspark.SparkContext._active_spark_context",
        "pyspark.sql.SparkSession._instantiatedSession",
        "pyspark.sql.SparkSession._activeSession",
    ],
    f"{GATEWAY}:first_session": ["pyspark.sql.SparkSession._instantiatedSession"],
    f"{GATEWAY}:activate": [
        "pyspark.sql.SparkSession._get_j_spark_session_class",
        "pyspark.sql.SparkSession._activeSession",
        "pyspark.sql.SparkSession._instantiatedSession",
    ],
    f"{GATEWAY}:is_stopped": ["session.sparkContext._jsc"],
    f"{GATEWAY}:has_ended": ["session.sparkContext._jsc"],
    f"{GATEWAY}:ended_context": ["pyspark.SparkContext._active_spark_context"],
    f"{YARN}:open_on_yarn": ["pyspark.SparkConf.getAll"],
    f"{GATEWAY}:shared_context": ["pyspark.SparkConf", "pyspark.SparkConf.getAll"],
    f"{GATEWAY}:leave_context": [
        "session.sparkContext._jsc",
        "session.sparkContext._accumulatorServer",
        "pyspark.SparkContext._active_spark_context",
    ],
    f"{GATEWAY}:_disconnect": [
        "gateway._gateway_client.finalizer_deque",
        "gateway._gateway_client.is_connected",
        "py4j.clientserver.SHUTDOWN_FINALIZER_WORKER",
    ],
    f"{GATEWAY}:undone_on_failure": [
        "pyspark.SparkContext._active_spark_context",
        "py4j.clientserver.FinalizerWorker",
        "py4j.clientserver.SHUTDOWN_FINALIZER_WORKER",
    ],
    f"{NAMES}:_KnownView": ["gateway.jvm._id"],
    f"{NAMES}:_KnownPackage": ["gateway.jvm.org._fqn", "gateway.jvm.org._jvm_id"],
    f"{NAMES}:_package": ["gateway.jvm._gateway_client"],
    f"{GATEWAY}:ClientObjects": [
        "gateway._gateway_client",
        "frame._jdf._target_id",
        "py4j.java_gateway.JavaObject",
        "py4j.protocol.GATEWAY_SERVER_OBJECT_ID",
    ],
}
"""Attributes of ``session``, ``frame`` (a DataFrame) and ``gateway``, or of modules."""
