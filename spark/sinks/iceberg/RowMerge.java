/*
 * A few changes merged into a small table by the thread that asks: what MERGE does, without a query.
 *
 * Reading, writing and committing are Iceberg's own, by the interfaces through which Spark's MERGE asks for them: the scan of the
 * row-level operation, its writer of rows and deletes, its validated commit. Only what MERGE does between them is here: a look-up
 * of each stored row's key among the changes.
 *
 * Spark's own compiler of Java, Janino, reads this (spark/java.py): without lambdas, and what comes out of a generic type is cast.
 */

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.Callable;

import org.apache.iceberg.BaseTable;
import org.apache.iceberg.OverwriteFiles;
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
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
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

  /** Whether rows of this type are the table's, with the op behind its columns. That a value may be NULL says nothing. */
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
   *  comes. What fails takes its files away. */
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

  /** One commit of what was written, validated against all that came since, with "properties" in it. */
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

  /** Stored rows, or what became of them. */
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

  /** Whether a row that is written anew keeps what this says of it, as its number in tables of format 3. */
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
   *  settings, a tenth of what a small table costs; nobody fetches it. And it hands the few manifests of a commit to other
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
