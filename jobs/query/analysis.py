"""The ledger in an analyst's Spark session: every table and view by its name.

from jobs.query.analysis import register_ledger
from jobs.runtime.spark_session import build_session

spark = build_session("analysis", "local[2]")
register_ledger(spark, ".waystation/tables")
spark.sql("SELECT * FROM topic_traffic").show()
"""

from deltalake import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from jobs.errors import QueryError
from jobs.query.ledger_reader import installed_views
from jobs.stack.missing import why_no_tables
from pipelines.sources import read_table, table_uri
from schemas.tables import TABLES


def register_ledger(spark: SparkSession, tables: str) -> list[str]:
    """Register the Delta tables under `tables`, a directory or an object store's URI, and the views over them as
    temporary views of the session; returns their names.

    A table is read as of the moment of each query. Tables that do not exist yet are left out. Raises QueryError if none
    exist.
    """
    names = [name for name in TABLES if DeltaTable.is_deltatable(table_uri(tables, TABLES[name]))]
    if not names:
        raise QueryError(why_no_tables(tables))
    for name in (*TABLES, *installed_views()):  # views of another ledger
        spark.catalog.dropTempView(name)
    for name in names:
        read_table(spark, tables, TABLES[name]).createOrReplaceTempView(name)
    for name, sql in installed_views("spark").items():
        try:
            spark.sql(sql).createOrReplaceTempView(name)
        except AnalysisException:  # a table that it reads does not exist
            continue
        names.append(name)
    return names
