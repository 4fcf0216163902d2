/*
 * Iceberg's facts about a table in one text, because py4j costs a call for each question.
 *
 * Spark's own compiler of Java, Janino, reads this (spark/jvm/java.py): without lambdas, and with casts of each generic
 * type's values.
 */

import java.util.LinkedHashMap;
import java.util.Map;

import org.apache.iceberg.BaseTable;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.util.JsonUtil;

public class TableFacts {
  /* `batchProperty`: of a snapshot's summary. Manifests are counted where `countsManifests`: their list is a file. */
  public String tell(Table table, String batchProperty, boolean countsManifests) throws Exception {
    Map facts = new LinkedHashMap();
    facts.put("format_version", Integer.valueOf(((BaseTable) table).operations().current().formatVersion()));
    facts.put("uuid", table.uuid().toString());
    facts.put("schema", SchemaParser.toJson(table.schema()));
    facts.put("properties", table.properties());
    facts.put("is_partitioned", Boolean.valueOf(table.spec().isPartitioned()));
    facts.put("is_sorted", Boolean.valueOf(table.sortOrder().isSorted()));
    facts.put("snapshots", Integer.valueOf(table.history().size()));
    Snapshot newest = table.currentSnapshot();
    if (newest != null) {
      facts.put("newest", tellSnapshot(table, newest, batchProperty, countsManifests));
    }
    return JsonUtil.mapper().writeValueAsString(facts);
  }

  private static Map tellSnapshot(Table table, Snapshot newest, String batchProperty, boolean countsManifests) {
    Map told = new LinkedHashMap();
    told.put("id", Long.valueOf(newest.snapshotId()));
    told.put("sequence_number", Long.valueOf(newest.sequenceNumber()));
    told.put("summary", newest.summary());
    int age = 1;
    Snapshot snapshot = newest;
    while (snapshot != null && snapshot.summary().get(batchProperty) == null) {
      Long parent = snapshot.parentId();
      snapshot = parent == null ? null : table.snapshot(parent.longValue());
      age++;
    }
    if (snapshot != null) {
      told.put("batch", snapshot.summary().get(batchProperty));
      told.put("batch_age", Integer.valueOf(age));
    }
    if (countsManifests) {
      told.put("manifests", Integer.valueOf(newest.allManifests(table.io()).size()));
    }
    return told;
  }
}
