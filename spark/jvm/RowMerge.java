/*
 * A few changes merged into a small table by the calling thread: a MERGE without a query.
 *
 * Reading, writing and committing are Iceberg's own, by the interfaces through which Spark's MERGE asks for them: the scan of the
 * row-level operation, its writer of rows and deletes, its validated commit. Only MERGE's step between them is here: a
 * look-up of each stored row's key among the changes.
 *
 * Spark's own compiler of Java, Janino, reads this (spark/jvm/java.py): without lambdas, and with casts of each generic
 * type's values.
 */

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.Callable;

import org.apache.iceberg.BaseTable;
import org.apache.iceberg.OverwriteFiles;
import org.apache.iceberg.PartitionField;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Table;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.relocated.com.google.common.util.concurrent.MoreExecutors;
import org.apache.iceberg.spark.CommitMetadata;
import org.apache.iceberg.spark.source.SparkTable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.FieldReference;
import org.apache.spark.sql.connector.expressions.LiteralValue;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.IndexedSeq;
import scala.jdk.javaapi.CollectionConverters;

public class RowMerge implements Callable {
  private static final CaseInsensitiveStringMap NO_OPTIONS = new CaseInsensitiveStringMap(new HashMap());
  private static final int NOTHING = -1;

  private final SparkTable table;
  private final SupportsDelta operation;
  private final StructType schema;
  private final String[] key;
  private final int[] keyAt;
  private final String order;
  private final int orderAt;
  private final String op;
  private final int opAt;
  private final UTF8String delete;
  private BatchWrite write;
  private WriterCommitMessage written;

  /** Into the table as it is now, by the columns "key"; the greater "order" wins, and an "op" of "delete" is a delete. */
  public RowMerge(Table iceberg, String[] key, String order, String op, String delete) {
    // Others than Iceberg's plain tables, as those of a REST catalog, plan their scans themselves.
    boolean isPlain = iceberg.getClass() == BaseTable.class;
    this.table = SparkTable.create(isPlain ? new OfDriver((BaseTable) iceberg) : iceberg, (String) null);
    this.operation = (SupportsDelta) table.newRowLevelOperationBuilder(new Merge()).build();
    this.schema = table.schema();
    this.key = key;
    this.keyAt = places(schema, key);
    this.order = order;
    this.orderAt = schema.fieldIndex(order);
    this.op = op;
    this.opAt = schema.length();
    this.delete = UTF8String.fromString(delete);
  }

  /** Whether rows of this type are the table's, with the op after its columns. That a value may be NULL says nothing. */
  public boolean takes(StructType changes) {
    if (changes.length() != schema.length() + 1 || !changes.fields()[opAt].name().equals(op)) {
      return false;
    }
    for (int at = 0; at < schema.length(); at++) {
      StructField given = changes.fields()[at];
      StructField wanted = schema.fields()[at];
      if (!given.name().equals(wanted.name()) || !given.dataType().equals(wanted.dataType())) {
        return false;
      }
    }
    return true;
  }

  /** Write the files of the merge, which nobody sees before the commit. Of a key's changes the last one counts, wherever it
   *  comes. A failed write deletes its files. */
  public void write(Iterator changes) throws IOException {
    Map latest = latest(changes);
    StructType rowId = fields(operation.rowId());
    StructType about = fields(((RowLevelOperation) operation).requiredMetadataAttributes());
    Scan scan = scan(rowId, about);  // before the writer, which validates against the snapshot that it reads
    DeltaWriter writer = writer(rowId, about);
    try {
      replace(scan, latest, writer, rowId, about);
      for (Iterator each = unmet(latest).iterator(); each.hasNext();) {
        writer.insert((InternalRow) each.next());
      }
      written = writer.commit();
    } finally {
      end(writer);
    }
  }

  /** Whether the table is a history, its own columns by these names, and rows of this type, with their order, commit time and op
   *  after them, are its changes; its keys are of "keyTypes", and its other columns of those or of "moreTypes". */
  public boolean takesVersions(StructType changes, String[] own, String[] keyTypes, String[] moreTypes) {
    for (int at = 0; at < changes.length(); at++) {
      String type = changes.fields()[at].dataType().simpleString().split("[(]")[0];
      boolean isOfKey = isIn(key, changes.fields()[at].name());
      if (!isIn(keyTypes, type) && (isOfKey || !isIn(moreTypes, type))) {
        return false;
      }
    }
    for (int at = 0; at < own.length; at++) {
      if (schema.getFieldIndex(own[at]).isEmpty()) {
        return false;
      }
    }
    for (int at = 0; at < schema.length(); at++) {
      StructField wanted = schema.fields()[at];
      if (isIn(own, wanted.name()) && !wanted.name().equals(order)) {
        continue;
      }
      if (changes.getFieldIndex(wanted.name()).isEmpty()
          || !changes.apply(wanted.name()).dataType().equals(wanted.dataType())) {
        return false;
      }
    }
    List specs = new ArrayList(table.table().specs().values());
    if (specs.size() != 1) {
      return false;
    }
    List of = ((PartitionSpec) specs.get(0)).fields();
    if (of.size() != 1 || !((PartitionField) of.get(0)).transform().isIdentity()) {
      return false;
    }
    return ((PartitionField) of.get(0)).name().equals(own[Versions.IS_CURRENT]);
  }

  /**
   * Write the files of a merge of changes into a history, which nobody sees before the commit. False: nothing was written,
   * because a change is not newer than its stored row. "own" are the names of the history's own columns, "tracked"
   * those of which a change opens a version. The rules are those of versions_of (spark/transforms/versions.py), of changes
   * that come in order.
   */
  public boolean writeVersions(Iterator changes, StructType type, String[] own, String[] tracked) throws IOException {
    Versions versions = new Versions(schema, type, key, own, tracked, op, delete);
    versions.read(changes);
    StructType rowId = fields(operation.rowId());
    StructType about = fields(((RowLevelOperation) operation).requiredMetadataAttributes());
    Scan scan = scanOfCurrent(own[Versions.IS_CURRENT], rowId, about);
    StructType stored = scan.readSchema();
    int[] all = places(stored, schema.fieldNames());
    int[] storedKeyAt = places(stored, key);
    int[] rowIdAt = places(stored, rowId.fieldNames());
    int[] aboutAt = places(stored, about.fieldNames());
    int[] keptAboutAt = new int[aboutAt.length];
    for (int at = 0; at < aboutAt.length; at++) {
      keptAboutAt[at] = isKept(about.fields()[at]) ? aboutAt[at] : NOTHING;
    }
    int currentAt = stored.fieldIndex(own[Versions.IS_CURRENT]);
    Rows rows = new Rows(scan.toBatch());
    try {
      while (rows.next()) {
        Versions.OfKey of = rows.row.getBoolean(currentAt) ? versions.of(values(rows.row, stored, storedKeyAt)) : null;
        if (of != null) {
          InternalRow kept = rows.row.copy();
          if (!of.meet(values(kept, stored, all), new Stored(
              values(kept, stored, rowIdAt), values(kept, stored, aboutAt), values(kept, stored, keptAboutAt)))) {
            return false;
          }
        }
      }
    } finally {
      rows.close();
    }
    versions.finish();
    DeltaWriter writer = writer(rowId, about);
    try {
      // The writer wants each partition's rows together, and places in the order in which they were read.
      for (Iterator each = versions.replaced.iterator(); each.hasNext();) {
        Stored place = (Stored) each.next();
        writer.delete(projected(about, place.about), place.rowId);
      }
      writeAll(versions.ended, writer, about);
      writeAll(versions.current, writer, about);
      written = writer.commit();
    } finally {
      end(writer);
    }
    return true;
  }

  private static void writeAll(List rows, DeltaWriter writer, StructType about) throws IOException {
    for (Iterator each = rows.iterator(); each.hasNext();) {
      Versions.Row version = (Versions.Row) each.next();
      if (version.replaces == null) {
        writer.insert(version.row);
      } else {
        writer.reinsert(projected(about, ((Stored) version.replaces).keptAbout), version.row);
      }
    }
  }

  private Scan scanOfCurrent(String isCurrent, StructType rowId, StructType about) {
    StructType wanted = schema;
    StructField[] others = concat(rowId.fields(), about.fields());
    for (int at = 0; at < others.length; at++) {
      wanted = wanted.add(others[at]);
    }
    ScanBuilder builder = ((RowLevelOperation) operation).newScanBuilder(NO_OPTIONS);
    Predicate current = new Predicate("=", new Expression[] {
        FieldReference.apply(isCurrent), new LiteralValue(Boolean.TRUE, DataTypes.BooleanType)});
    ((SupportsPushDownV2Filters) builder).pushPredicates(new Predicate[] {current});
    ((SupportsPushDownRequiredColumns) builder).pruneColumns(wanted);
    return builder.build();
  }

  private static boolean isIn(String[] names, String name) {
    for (int at = 0; at < names.length; at++) {
      if (names[at].equals(name)) {
        return true;
      }
    }
    return false;
  }

  /** The same by one file that takes the place of all that the table has, which is read whole. Rows have no numbers that would
   *  have to be kept: the table is of format 2. "snapshot" is its current one. */
  public void writeAnew(Iterator changes, String snapshot) throws IOException {
    Map latest = latest(changes);
    Scan scan = table.newScanBuilder(NO_OPTIONS).build();
    Map options = new HashMap();
    options.put("isolation-level", "serializable");
    options.put("validate-from-snapshot-id", snapshot);
    LogicalWriteInfo rewrite = new Rewrite(schema, null, null, new CaseInsensitiveStringMap(options));
    write = ((SupportsTruncate) table.newWriteBuilder(rewrite)).truncate().build().toBatch();
    DataWriter writer = write.createBatchWriterFactory(new OnePartition()).createWriter(0, 0L);
    try {
      copy(scan, latest, writer);
      for (Iterator each = unmet(latest).iterator(); each.hasNext();) {
        writer.write(each.next());
      }
      written = writer.commit();
    } finally {
      end(writer);
    }
  }

  /** One commit of the written files, validated against all later commits, with "properties" in it. */
  public void commit(Map properties) throws Exception {
    CommitMetadata.withCommitProperties(properties, this, Exception.class);
  }

  /** The commit itself. */
  public Object call() {
    WriterCommitMessage[] messages = new WriterCommitMessage[] {written};
    boolean isCommitted = false;
    try {
      write.commit(messages);
      isCommitted = true;
    } finally {
      if (!isCommitted) {
        write.abort(messages);  // which leaves the files where it is not known whether the commit came about
      }
    }
    return null;
  }

  private void end(DataWriter writer) throws IOException {
    if (written == null) {
      writer.abort();
    }
    writer.close();
  }

  private Map latest(Iterator changes) {
    Map latest = new LinkedHashMap();
    while (changes.hasNext()) {
      InternalRow row = (InternalRow) changes.next();
      InternalRow rowKey = values(row, schema, keyAt);
      Change known = (Change) latest.get(rowKey);
      if (known == null || row.getUTF8String(orderAt).compareTo(known.row.getUTF8String(orderAt)) > 0) {
        InternalRow kept = row.copy();
        latest.put(values(kept, schema, keyAt), new Change(kept));
      }
    }
    return latest;
  }

  /** Stored rows give way to newer changes of their keys. */
  private void replace(Scan scan, Map latest, DeltaWriter writer, StructType rowId, StructType about) throws IOException {
    StructType stored = scan.readSchema();
    int[] storedKeyAt = places(stored, key);
    int[] rowIdAt = places(stored, rowId.fieldNames());
    int[] aboutAt = places(stored, about.fieldNames());
    int[] keptAboutAt = new int[aboutAt.length];
    for (int at = 0; at < aboutAt.length; at++) {
      keptAboutAt[at] = isKept(about.fields()[at]) ? aboutAt[at] : NOTHING;
    }
    int storedOrderAt = stored.fieldIndex(order);
    Rows rows = new Rows(scan.toBatch());
    try {
      while (rows.next()) {
        InternalRow row = rows.row;
        Change change = (Change) latest.get(values(row, stored, storedKeyAt));
        if (change == null) {
          continue;
        }
        change.isMet = true;
        if (isNewer(change, row, storedOrderAt)) {
          writer.delete(projected(about, values(row, stored, aboutAt)), values(row, stored, rowIdAt));
          if (!isDelete(change.row)) {
            writer.reinsert(projected(about, values(row, stored, keptAboutAt)), change.row);
          }
        }
      }
    } finally {
      rows.close();
    }
  }

  /** Stored rows, or their replacements. */
  private void copy(Scan scan, Map latest, DataWriter writer) throws IOException {
    int[] all = places(schema, schema.fieldNames());
    Rows rows = new Rows(scan.toBatch());
    try {
      while (rows.next()) {
        Change change = (Change) latest.get(values(rows.row, schema, keyAt));
        if (change != null) {
          change.isMet = true;
        }
        if (change == null || !isNewer(change, rows.row, orderAt)) {
          writer.write(values(rows.row, schema, all));
        } else if (!isDelete(change.row)) {
          writer.write(change.row);
        }
      }
    } finally {
      rows.close();
    }
  }

  private boolean isNewer(Change change, InternalRow stored, int storedOrderAt) {
    return change.row.getUTF8String(orderAt).compareTo(stored.getUTF8String(storedOrderAt)) > 0;
  }

  /** Of keys that no stored row has: the rows to insert. */
  private List unmet(Map latest) {
    List rows = new ArrayList();
    for (Iterator each = latest.values().iterator(); each.hasNext();) {
      Change change = (Change) each.next();
      if (!change.isMet && !isDelete(change.row)) {
        rows.add(change.row);
      }
    }
    return rows;
  }

  private boolean isDelete(InternalRow change) {
    return delete.equals(change.getUTF8String(opAt));
  }

  private Scan scan(StructType rowId, StructType about) {
    StructType wanted = new StructType();
    for (int at = 0; at < key.length; at++) {
      wanted = wanted.add(schema.apply(key[at]));
    }
    wanted = wanted.add(schema.apply(order));
    StructField[] others = concat(rowId.fields(), about.fields());
    for (int at = 0; at < others.length; at++) {
      wanted = wanted.add(others[at]);
    }
    ScanBuilder builder = ((RowLevelOperation) operation).newScanBuilder(NO_OPTIONS);
    ((SupportsPushDownRequiredColumns) builder).pruneColumns(wanted);
    return builder.build();
  }

  private DeltaWriter writer(StructType rowId, StructType about) {
    WriteBuilder builder = ((RowLevelOperation) operation).newWriteBuilder(new Rewrite(schema, rowId, about, NO_OPTIONS));
    write = ((Write) builder.build()).toBatch();
    DataWriterFactory factory = write.createBatchWriterFactory(new OnePartition());
    return (DeltaWriter) factory.createWriter(0, 0L);
  }

  /** Columns that are the table's own or, as a row's place is, its rows' metadata. */
  private StructType fields(NamedReference[] references) {
    StructType found = new StructType();
    MetadataColumn[] metadata = table.metadataColumns();
    for (int each = 0; each < references.length; each++) {
      String name = references[each].fieldNames()[0];
      for (int at = 0; at < metadata.length; at++) {
        if (metadata[at].name().equals(name)) {
          String said = metadata[at].metadataInJSON();
          Metadata more = said == null ? Metadata.empty() : Metadata.fromJson(said);
          found = found.add(new StructField(name, metadata[at].dataType(), metadata[at].isNullable(), more));
        }
      }
    }
    return found;
  }

  /** Whether a row that is written again keeps this fact about it, such as its number in tables of format 3. */
  private static boolean isKept(StructField about) {
    String name = MetadataColumn.PRESERVE_ON_REINSERT;
    return about.metadata().contains(name) && about.metadata().getBoolean(name);
  }

  /** In the shape in which Spark's MERGE gives it, which Iceberg's writer looks into. */
  private static InternalRow projected(StructType type, InternalRow row) {
    List places = new ArrayList();
    for (int at = 0; at < type.length(); at++) {
      places.add(Integer.valueOf(at));
    }
    IndexedSeq all = (IndexedSeq) CollectionConverters.asScala(places).toIndexedSeq();
    ProjectingInternalRow projected = new ProjectingInternalRow(type, all);
    projected.project(row);
    return projected;
  }

  private static StructField[] concat(StructField[] some, StructField[] more) {
    StructField[] all = new StructField[some.length + more.length];
    System.arraycopy(some, 0, all, 0, some.length);
    System.arraycopy(more, 0, all, some.length, more.length);
    return all;
  }

  private static int[] places(StructType type, String[] names) {
    int[] places = new int[names.length];
    for (int at = 0; at < names.length; at++) {
      places[at] = type.fieldIndex(names[at]);
    }
    return places;
  }

  /** A row of some of a row's values, equal to another one by them; good for as long as that row is. NOTHING gives NULL. */
  private static InternalRow values(InternalRow row, StructType type, int[] places) {
    Object[] values = new Object[places.length];
    for (int at = 0; at < places.length; at++) {
      if (places[at] != NOTHING && !row.isNullAt(places[at])) {  // a row of columns has 0 for NULL
        values[at] = row.get(places[at], type.fields()[places[at]].dataType());
      }
    }
    return new GenericInternalRow(values);
  }

  /** A table that is read and written by this thread alone. Iceberg broadcasts each table for either, with all of Hadoop's
   *  settings, a tenth of a small table's cost; nobody fetches it. And it hands the few manifests of a commit to other
   *  threads, of which it looks each ten milliseconds whether they are done. */
  private static class OfDriver extends BaseTable {
    OfDriver(BaseTable table) {
      super(table.operations(), table.name(), table.reporter());
    }

    public RowDelta newRowDelta() {
      return (RowDelta) super.newRowDelta().scanManifestsWith(MoreExecutors.newDirectExecutorService());
    }

    public OverwriteFiles newOverwrite() {
      return (OverwriteFiles) super.newOverwrite().scanManifestsWith(MoreExecutors.newDirectExecutorService());
    }

    public FileIO io() {
      return new IoOfDriver(super.io());
    }
  }

  private static class IoOfDriver implements FileIO {
    private final transient FileIO io;

    IoOfDriver(FileIO io) {
      this.io = io;
    }

    public InputFile newInputFile(String path) {
      return io.newInputFile(path);
    }

    public InputFile newInputFile(String path, long length) {
      return io.newInputFile(path, length);
    }

    public OutputFile newOutputFile(String path) {
      return io.newOutputFile(path);
    }

    public void deleteFile(String path) {
      io.deleteFile(path);
    }

    public Map properties() {
      return io.properties();
    }
  }

  /** Where a row is stored. */
  private static class Stored {
    final InternalRow rowId;
    final InternalRow about;
    final InternalRow keptAbout;

    Stored(InternalRow rowId, InternalRow about, InternalRow keptAbout) {
      this.rowId = rowId;
      this.about = about;
      this.keptAbout = keptAbout;
    }
  }

  /** The effect of changed rows on a history: the versions that end, and the current ones. */
  private static class Versions {
    static final int VALID_FROM = 0;
    static final int VALID_TO = 1;
    static final int IS_CURRENT = 2;
    static final int ORDER = 3;
    static final int COMMITTED_AT = 4;
    static final int OPENED_BY = 5;
    static final int CLOSED_BY = 6;

    final List replaced = new ArrayList();
    final List ended = new ArrayList();
    final List current = new ArrayList();
    private final Map byKey = new LinkedHashMap();
    private final StructType schema;
    private final StructType type;
    private final int[] keyAt;
    private final int[] given;
    private final int[] own;
    private final int[] tracked;
    private final int opAt;
    private final UTF8String delete;

    Versions(
        StructType schema, StructType type, String[] key, String[] own, String[] tracked, String op, UTF8String delete) {
      this.schema = schema;
      this.type = type;
      this.keyAt = places(schema, key);
      this.own = places(schema, own);
      this.tracked = places(schema, tracked);
      this.opAt = type.fieldIndex(op);
      this.delete = delete;
      this.given = new int[schema.length()];
      for (int at = 0; at < given.length; at++) {
        boolean isGiven = type.getFieldIndex(schema.fieldNames()[at]).isDefined();
        given[at] = isGiven ? type.fieldIndex(schema.fieldNames()[at]) : NOTHING;
      }
    }

    /** Changes, in any order. */
    void read(Iterator changes) {
      while (changes.hasNext()) {
        InternalRow change = ((InternalRow) changes.next()).copy();
        Element element = new Element(values(change, type, given), delete.equals(change.getUTF8String(opAt)));
        element.at = element.order;
        element.since = element.values.getLong(own[COMMITTED_AT]);
        InternalRow key = values(element.values, schema, keyAt);
        OfKey of = (OfKey) byKey.get(key);
        if (of == null) {
          of = new OfKey();
          byKey.put(key, of);
        }
        of.add(element);
      }
    }

    OfKey of(InternalRow key) {
      return (OfKey) byKey.get(key);
    }

    void finish() {
      for (Iterator each = byKey.values().iterator(); each.hasNext();) {
        ((OfKey) each.next()).finish();
      }
    }

    /** One thing that happened to a row, or its stored version. */
    private class Element {
      final InternalRow values;
      final UTF8String order;
      final boolean isEnd;
      UTF8String at;
      long since;

      Element(InternalRow values, boolean isEnd) {
        this.values = values;
        this.order = values.getUTF8String(own[ORDER]);
        this.isEnd = isEnd;
      }
    }

    /** A version to be written. */
    static class Row {
      final InternalRow row;
      final Object replaces;

      Row(InternalRow row, Object replaces) {
        this.row = row;
        this.replaces = replaces;
      }
    }

    class OfKey {
      private final TreeMap changes = new TreeMap();
      private Element stored;
      private Object place;

      void add(Element change) {
        Element known = (Element) changes.get(change.order);
        if (known == null || known.isEnd) {
          changes.put(change.order, change);
        }
      }

      /** The current version that is stored. False: it is not the only one, or not older than all changes. */
      boolean meet(InternalRow version, Object storedAt) {
        if (stored != null) {
          return false;
        }
        stored = new Element(version, false);
        stored.at = version.getUTF8String(own[OPENED_BY]);
        stored.since = version.getLong(own[VALID_FROM]);
        place = storedAt;
        UTF8String oldest = (UTF8String) changes.firstKey();
        return oldest.compareTo(stored.at) > 0 && oldest.compareTo(stored.order) > 0;
      }

      void finish() {
        Element begin = stored;
        Element newest = stored;
        Element before = stored;
        for (Iterator each = changes.values().iterator(); each.hasNext();) {
          Element change = (Element) each.next();
          if (change.isEnd || before == null || before.isEnd || differ(before.values, change.values)) {
            version(begin, newest, change);
            begin = change.isEnd ? null : change;
          }
          newest = change;
          before = change;
        }
        version(begin, newest, null);
      }

      private void version(Element begin, Element newest, Element until) {
        if (begin == null || (until == null && newest == stored)) {
          return;
        }
        Object[] row = new Object[schema.length()];
        for (int at = 0; at < row.length; at++) {
          row[at] = newest.values.isNullAt(at) ? null : newest.values.get(at, schema.fields()[at].dataType());
        }
        row[own[VALID_FROM]] = Long.valueOf(begin.since);
        row[own[VALID_TO]] = until == null ? null : Long.valueOf(until.since);
        row[own[IS_CURRENT]] = Boolean.valueOf(until == null);
        row[own[OPENED_BY]] = begin.at;
        row[own[CLOSED_BY]] = until == null ? null : until.at;
        boolean isStored = begin == stored;
        if (isStored) {
          replaced.add(place);
        }
        (until == null ? current : ended).add(new Row(new GenericInternalRow(row), isStored ? place : null));
      }
    }

    private boolean differ(InternalRow one, InternalRow other) {
      for (int each = 0; each < tracked.length; each++) {
        int at = tracked[each];
        if (one.isNullAt(at) != other.isNullAt(at)) {
          return true;
        }
        if (!one.isNullAt(at)
            && !isEqual(one.get(at, schema.fields()[at].dataType()), other.get(at, schema.fields()[at].dataType()))) {
          return true;
        }
      }
      return false;
    }

    /** As Spark's SQL compares: of fractions all that are no number are equal, and so are both zeros. */
    private static boolean isEqual(Object one, Object other) {
      if (one instanceof byte[]) {
        return Arrays.equals((byte[]) one, (byte[]) other);
      }
      if (one instanceof Double) {
        double a = ((Double) one).doubleValue();
        double b = ((Double) other).doubleValue();
        return a == b || (a != a && b != b);
      }
      if (one instanceof Float) {
        float a = ((Float) one).floatValue();
        float b = ((Float) other).floatValue();
        return a == b || (a != a && b != b);
      }
      return one.equals(other);
    }
  }

  /** The last change of a key. */
  private static class Change {
    final InternalRow row;
    boolean isMet;

    Change(InternalRow row) {
      this.row = row;
    }
  }

  /** All rows of a scan, one after another; each is good until the next one. */
  private static class Rows {
    InternalRow row;
    private final InputPartition[] parts;
    private final PartitionReaderFactory factory;
    private int read;
    private PartitionReader reader;
    private Iterator ofBatch;

    Rows(Batch batch) {
      parts = batch.planInputPartitions();
      factory = batch.createReaderFactory();
    }

    boolean next() throws IOException {
      while (true) {
        if (ofBatch != null && ofBatch.hasNext()) {
          row = (InternalRow) ofBatch.next();
          return true;
        }
        if (reader == null) {
          if (read == parts.length) {
            return false;
          }
          InputPartition part = parts[read++];
          reader = factory.supportColumnarReads(part) ? factory.createColumnarReader(part) : factory.createReader(part);
        }
        if (!reader.next()) {
          close();
        } else {
          Object got = reader.get();
          if (!(got instanceof ColumnarBatch)) {
            row = (InternalRow) got;
            return true;
          }
          ofBatch = ((ColumnarBatch) got).rowIterator();
        }
      }
    }

    void close() throws IOException {
      ofBatch = null;
      if (reader != null) {
        reader.close();
        reader = null;
      }
    }
  }

  private static class Merge implements RowLevelOperationInfo {
    public CaseInsensitiveStringMap options() {
      return NO_OPTIONS;
    }

    public RowLevelOperation.Command command() {
      return RowLevelOperation.Command.MERGE;
    }
  }

  private static class Rewrite implements LogicalWriteInfo {
    private final String queryId = UUID.randomUUID().toString();
    private final StructType schema;
    private final StructType rowId;
    private final StructType about;
    private final CaseInsensitiveStringMap options;

    Rewrite(StructType schema, StructType rowId, StructType about, CaseInsensitiveStringMap options) {
      this.schema = schema;
      this.rowId = rowId;
      this.about = about;
      this.options = options;
    }

    public CaseInsensitiveStringMap options() {
      return options;
    }

    public String queryId() {
      return queryId;
    }

    public StructType schema() {
      return schema;
    }

    public Optional rowIdSchema() {
      return Optional.ofNullable(rowId);
    }

    public Optional metadataSchema() {
      return Optional.ofNullable(about);
    }
  }

  private static class OnePartition implements PhysicalWriteInfo {
    public int numPartitions() {
      return 1;
    }
  }
}
