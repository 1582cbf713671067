"""The workshop: Millpond's own part of Spark's planner, and the names of Spark that it stands on.

It is Java, kept as source beside this file and compiled by Janino, the compiler that Spark ships for its generated
code: once per JVM, in under a second, without a build step. It exists in the driver only: plans that reach executors
hold nothing of it.

The planner's internals change between minor versions without notice. So the version is pinned, every name is listed and
has a test of its own, and what is missing is one clear error.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from millpond.errors import SparkUnavailable

# Whatever py4j returns: a Java object, seen through the gateway.
Java: TypeAlias = Any

VERSION = "4.3"
# FD_SETSIZE of the C library.
DESCRIPTORS_OF_SELECT = 1_024

# In the order of compilation: each may use those before it.
SOURCES = (
    "Answers",
    "ExpressionText",
    "CarefulParquet",
    "ObjectTable",
    "PinnedStream",
    "PondIndex",
    "SettledIndex",
    "WholeFiles",
    "FileList",
    "NumberedFiles",
    "PinnedFiles",
    "DatasetIndex",
    "LiveRelation",
    "StreamRelation",
    "SnapshotRule",
    "PondOffset",
    "MicroBatch",
    "PondSource",
    "PondProvider",
    "PondSink",
    "PondWriter",
    "OwnViews",
    "Workshop",
)
# Found by Spark itself, by its name, so it must lie where Spark's class loader looks. All others see it, too.
FOUND_BY_NAME = ("DefaultSource", "OneCommit")
PACKAGE = "millpond.spark"

# What the Java sources import, and what is called from here: class -> members.
NAMES: dict[str, tuple[str, ...]] = {
    "org.codehaus.janino.SimpleCompiler": ("setParentClassLoader", "cook", "getBytecodes", "getClassLoader"),
    "org.apache.hadoop.fs.FSDataInputStream": ("readAllBytes",),
    "org.apache.hadoop.fs.FileStatus": (),
    "org.apache.hadoop.fs.Path": (),
    "org.apache.spark.api.java.JavaRDD": ("rdd",),
    "org.apache.spark.api.java.JavaSparkContext": ("parallelize", "union"),
    "org.apache.spark.api.python.PythonUtils": ("toSeq", "toScalaMap"),
    "org.apache.spark.internal.io.FileCommitProtocol": (
        "abortJob",
        "abortTask",
        "commitJob",
        "commitTask",
        "newTaskTempFile",
        "newTaskTempFileAbsPath",
        "setupJob",
        "setupTask",
    ),
    "org.apache.spark.internal.io.FileCommitProtocol$TaskCommitMessage": ("obj",),
    "org.apache.spark.internal.io.FileNameSpec": ("prefix", "suffix"),
    "org.apache.spark.rdd.RDD": (),
    "org.apache.spark.sql.AnalysisException": (),
    "org.apache.spark.sql.Dataset": ("createOrReplaceTempView", "createTempView", "where", "union"),
    "org.apache.spark.sql.ExperimentalMethods": ("extraOptimizations", "extraOptimizations_$eq"),
    "org.apache.spark.sql.SQLContext": (),
    "org.apache.spark.sql.SaveMode": ("name",),
    "org.apache.spark.sql.catalyst.InternalRow": ("empty",),
    "org.apache.spark.sql.catalyst.analysis.TempTableAlreadyExistsException": (),
    "org.apache.spark.sql.catalyst.catalog.SessionCatalog": ("getRawTempView",),
    "org.apache.spark.sql.catalyst.expressions.Attribute": ("name",),
    "org.apache.spark.sql.catalyst.expressions.AttributeReference": ("name",),
    "org.apache.spark.sql.catalyst.expressions.Cast": (),
    "org.apache.spark.sql.catalyst.expressions.GenericInternalRow": (),
    "org.apache.spark.sql.catalyst.expressions.GetStructField": ("extractFieldName",),
    "org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual": (),
    "org.apache.spark.sql.catalyst.expressions.InSet": ("hset",),
    "org.apache.spark.sql.catalyst.expressions.Like": ("escapeChar",),
    "org.apache.spark.sql.catalyst.expressions.Literal": ("value",),
    "org.apache.spark.sql.catalyst.expressions.NamedExpression$": ("newExprId",),
    "org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression": ("timeZoneId", "zoneId"),
    "org.apache.spark.sql.catalyst.expressions.UnsafeProjection": ("create",),
    "org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation$": ("apply",),
    "org.apache.spark.sql.catalyst.optimizer.PushPredicateThroughNonJoin$": ("apply",),
    "org.apache.spark.sql.catalyst.optimizer.PushProjectionThroughUnion$": ("apply",),
    "org.apache.spark.sql.catalyst.plans.logical.Filter": (),
    "org.apache.spark.sql.catalyst.plans.logical.LocalRelation": ("data",),
    "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan": ("transformUpWithSubqueries",),
    "org.apache.spark.sql.catalyst.plans.logical.Project": (),
    "org.apache.spark.sql.catalyst.plans.logical.Subquery": (),
    "org.apache.spark.sql.catalyst.plans.logical.Union": (),
    "org.apache.spark.sql.catalyst.rules.Rule": ("apply",),
    "org.apache.spark.sql.catalyst.types.DataTypeUtils": ("toAttributes",),
    "org.apache.spark.sql.classic.Dataset": ("queryExecution", "schema", "union"),
    "org.apache.spark.sql.classic.Dataset$": ("ofRows",),
    "org.apache.spark.sql.classic.SparkSession": (
        "baseRelationToDataFrame",
        "catalog",
        "cloneSession",
        "conf",
        "experimental",
        "internalCreateDataFrame",
        "parseDataType",
        "sessionState",
        "sessionUUID",
        "sparkContext",
        "sqlContext",
    ),
    "org.apache.spark.sql.connector.read.streaming.Offset": ("json",),
    "org.apache.spark.sql.connector.read.streaming.ReadAllAvailable": (),
    "org.apache.spark.sql.connector.read.streaming.ReadLimit": (),
    "org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics": ("metrics",),
    "org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow": (
        "getDefaultReadLimit",
        "latestOffset",
        "prepareForTriggerAvailableNow",
        "reportLatestOffset",
    ),
    "org.apache.spark.sql.execution.QueryExecution": ("toRdd",),
    "org.apache.spark.sql.execution.arrow.ArrowConverters$": ("fromIPCStream",),
    "org.apache.spark.sql.execution.datasources.DataSource": ("providingInstance", "resolveRelation"),
    "org.apache.spark.sql.execution.datasources.DataSourceStrategy$": ("normalizeExprs",),
    "org.apache.spark.sql.execution.datasources.FileFormat": (
        "allowDuplicatedColumnNames",
        "buildReader",
        "buildReaderWithPartitionValues",
        "inferSchema",
        "isSplitable",
        "prepareWrite",
        "supportBatch",
        "supportDataType",
        "supportFieldName",
        "supportReadDataType",
        "vectorTypes",
    ),
    "org.apache.spark.sql.execution.datasources.FileIndex": (
        "inputFiles",
        "listFiles",
        "partitionSchema",
        "rootPaths",
        "sizeInBytes",
    ),
    "org.apache.spark.sql.execution.datasources.FileStatusWithMetadata": (
        "getLen",
        "getModificationTime",
        "getPath",
    ),
    "org.apache.spark.sql.execution.datasources.HadoopFsRelation": (
        "dataSchema",
        "fileFormat",
        "location",
        "options",
        "partitionSchema",
    ),
    "org.apache.spark.sql.execution.datasources.LogicalRelation": ("copy", "newInstance"),
    "org.apache.spark.sql.execution.datasources.LogicalRelation$": ("apply",),
    "org.apache.spark.sql.execution.datasources.OutputWriterFactory": (),
    "org.apache.spark.sql.execution.datasources.PartitionDirectory": ("files", "values"),
    "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat": ("buildReaderWithPartitionValues",),
    "org.apache.spark.sql.execution.streaming.Offset": (),
    "org.apache.spark.sql.execution.streaming.Sink": ("addBatch",),
    "org.apache.spark.sql.execution.streaming.Source": (
        "getBatch",
        "getOffset",
        "commit",
        "schema",
        "stop",
        "initialOffset",
        "deserializeOffset",
    ),
    "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager": (
        "createAtomic",
        "exists",
        "mkdirs",
        "open",
    ),
    "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$": ("create",),
    "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$CancellableFSDataOutputStream": (
        "cancel",
        "close",
        "write",
    ),
    "org.apache.spark.sql.internal.SQLConf": (),
    "org.apache.spark.sql.sources.BaseRelation": ("needConversion",),
    "org.apache.spark.sql.sources.CatalystScan": ("buildScan",),
    "org.apache.spark.sql.sources.CreatableRelationProvider": ("createRelation",),
    "org.apache.spark.sql.sources.Filter": ("references",),
    "org.apache.spark.sql.sources.RelationProvider": ("createRelation",),
    "org.apache.spark.sql.sources.StreamSinkProvider": ("createSink",),
    "org.apache.spark.sql.sources.StreamSourceProvider": ("createSource", "sourceSchema"),
    "org.apache.spark.sql.streaming.OutputMode": (),
    "org.apache.spark.sql.types.DataType": ("fromJson",),
    "org.apache.spark.sql.util.CloseableIterator": ("close",),
    "org.apache.spark.unsafe.types.UTF8String": ("isValid",),
    "org.apache.spark.util.MutableURLClassLoader": ("addURL",),
    "scala.runtime.AbstractPartialFunction": ("applyOrElse",),
}

_lock = threading.Lock()
# The compiled workshop of each JVM that this process has talked to: practically one.
_workshops: dict[int, tuple[Any, Java]] = {}


def missing_names(spark: SparkSession, names: dict[str, tuple[str, ...]] | None = None) -> list[str]:
    """The classes and members that this JVM does not have."""
    jvm: Java = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    missing = []
    for name, members in (NAMES if names is None else names).items():
        try:
            found = jvm.java.lang.Class.forName(name, False, loader)
        except Exception:  # py4j wraps whatever Java throws
            missing.append(name)
            continue
        if members:
            there = {method.getName() for method in found.getMethods()}
            missing += [f"{name}.{member}" for member in members if member not in there]
    return missing


def java_source(name: str) -> str:
    return files("millpond.spark").joinpath("java", f"{name}.java").read_text(encoding="utf-8")


def _check_callbacks(gateway: Java) -> None:
    """py4j waits for the JVM's calls with select(2), which ends its thread, and so hangs every query, when the socket's
    number is too large for it."""
    number = gateway._callback_server.server_socket.fileno()
    if number >= DESCRIPTORS_OF_SELECT:
        raise SparkUnavailable(
            f"this process has too many open files for py4j: its socket is number {number}, over "
            f"{DESCRIPTORS_OF_SELECT - 1}",
            hint="attach to Spark before opening many files, or settle: a pond with fewer journal files holds fewer",
        )


def workshop_of(spark: SparkSession) -> Java:
    """This JVM's workshop, compiled when it is first asked for."""
    gateway = spark.sparkContext._gateway
    with _lock:
        known = _workshops.get(id(gateway))
        if known is None or known[0] is not gateway:
            ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
            _check_callbacks(gateway)
            _publish(spark)
            known = _workshops[id(gateway)] = (gateway, _compile(spark, gateway, SOURCES))
        return known[1]


def _compile(spark: SparkSession, gateway: Any, sources: Sequence[str]) -> Java:
    jvm: Java = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in sources:
        loader = _cooked(spark, loader, name).getClassLoader()
    made = loader.loadClass(f"{PACKAGE}.{sources[-1]}").getConstructors()[0]
    return made.newInstance(gateway.new_array(jvm.java.lang.Object, 0))


def _cooked(spark: SparkSession, loader: Java, name: str) -> Java:
    """The compiler that has compiled one source, which may use whatever `loader` finds."""
    jvm: Java = spark._jvm
    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(java_source(name))
    except Exception as error:  # py4j wraps whatever Java throws
        missing = missing_names(spark)
        raise SparkUnavailable(
            f"Spark's planner has changed: {', '.join(missing) or f'{name}.java does not compile'}",
            hint=f"Millpond is made for Spark {VERSION}: pip install 'pyspark=={VERSION}.*'",
        ) from error
    return compiler


def _publish(spark: SparkSession) -> None:
    """Put the class that Spark looks for by name into a directory of Spark's class loader. A JVM that has it keeps it:
    a class is loaded once."""
    jvm: Java = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    directory = tempfile.mkdtemp(prefix="millpond-spark-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    jar = Path(directory, "millpond.jar")
    with zipfile.ZipFile(jar, "w") as classes:
        for source in FOUND_BY_NAME:
            for name, code in dict(_cooked(spark, loader, source).getBytecodes()).items():
                classes.writestr(f"{name.replace('.', '/')}.class", bytes(code))
    loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
    if not str(spark.sparkContext.master).startswith("local["):
        spark.sparkContext._jsc.sc().addJar(str(jar))  # for executors, which write by one of them
