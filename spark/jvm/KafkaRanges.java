/*
 * Ranges of many Kafka partitions, read by few consumers (kafka_ranges.py).
 *
 * Spark's own reader has a consumer for each Kafka partition, and makes a new reader for each of them in every batch. Of a
 * tenant with two hundred small tables that was two fifths of all that a batch cost. Here a task has one consumer for all that it
 * reads, and asks for all of it at once.
 *
 * Spark's own compiler of Java, Janino, reads this (spark/jvm/java.py): without lambdas, and with casts of each generic
 * type's values.
 */

package headwater;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.spark.SparkThrowable;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The source. Options: "parts", "fails_on_loss", "stalls_after_ms", the consumer's under "kafka.", and under "header." and the name
 *  of a column of text the header that it holds; NULL where a record has none. */
public class KafkaRanges implements TableProvider {
  private static final String COLUMNS =
      "key binary, value binary, topic string, partition int, offset bigint, headers array<struct<key string, value binary>>";
  private static final String OF_CONSUMER = "kafka.";
  private static final String OF_HEADERS = "header.";

  public StructType inferSchema(CaseInsensitiveStringMap options) {
    StructType schema = StructType.fromDDL(COLUMNS);
    for (Iterator each = under(OF_HEADERS, options).keySet().iterator(); each.hasNext();) {
      schema = schema.add((String) each.next(), "string");
    }
    return schema;
  }

  /** The options that begin so, by the rest of their names, in the order of these. */
  private static TreeMap under(String prefix, CaseInsensitiveStringMap options) {
    TreeMap found = new TreeMap();
    for (Iterator each = options.asCaseSensitiveMap().entrySet().iterator(); each.hasNext();) {
      Map.Entry option = (Map.Entry) each.next();
      String name = (String) option.getKey();
      if (name.startsWith(prefix)) {
        found.put(name.substring(prefix.length()), option.getValue());
      }
    }
    return found;
  }

  public Table getTable(StructType schema, Transform[] partitioning, Map options) {
    return new Records(schema);
  }

  private static class Records implements Table, SupportsRead {
    private final StructType schema;

    Records(StructType schema) {
      this.schema = schema;
    }

    public String name() {
      return "ranges of Kafka partitions";
    }

    public StructType schema() {
      return schema;
    }

    public Set capabilities() {
      return EnumSet.of(TableCapability.BATCH_READ);
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return new Reading(schema, options);
    }
  }

  private static class Reading implements ScanBuilder, SupportsPushDownRequiredColumns, Scan, Batch {
    private StructType schema;
    private final CaseInsensitiveStringMap options;

    Reading(StructType schema, CaseInsensitiveStringMap options) {
      this.schema = schema;
      this.options = options;
    }

    public void pruneColumns(StructType wanted) {
      schema = wanted;
    }

    public Scan build() {
      return this;
    }

    public StructType readSchema() {
      return schema;
    }

    public String description() {
      return "ranges of Kafka partitions";
    }

    public Batch toBatch() {
      return this;
    }

    /** One for each line of "parts", that is for each task. */
    public InputPartition[] planInputPartitions() {
      String told = options.get("parts");
      String[] lines = told.isEmpty() ? new String[0] : told.split("\n");
      InputPartition[] parts = new InputPartition[lines.length];
      for (int at = 0; at < lines.length; at++) {
        parts[at] = new Part(lines[at]);
      }
      return parts;
    }

    public PartitionReaderFactory createReaderFactory() {
      boolean failsOnLoss = options.getBoolean("fails_on_loss", true);
      long stallsAfterMs = options.getLong("stalls_after_ms", 0);
      TreeMap headers = under(OF_HEADERS, options);
      return new Readers(under(OF_CONSUMER, options), headers, schema.fieldNames(), failsOnLoss, stallsAfterMs);
    }
  }

  /** Ranges: "topic partition from to topic partition from to …"; a topic's name has no spaces. */
  private static class Part implements InputPartition {
    final String ranges;

    Part(String ranges) {
      this.ranges = ranges;
    }
  }

  private static class Readers implements PartitionReaderFactory {
    private final TreeMap consumer;
    private final TreeMap headers;
    private final String[] columns;
    private final boolean failsOnLoss;
    private final long stallsAfterMs;

    Readers(TreeMap consumer, TreeMap headers, String[] columns, boolean failsOnLoss, long stallsAfterMs) {
      this.consumer = consumer;
      this.headers = headers;
      this.columns = columns;
      this.failsOnLoss = failsOnLoss;
      this.stallsAfterMs = stallsAfterMs;
    }

    public PartitionReader createReader(InputPartition part) {
      return new Reader(((Part) part).ranges, consumer, headers, columns, failsOnLoss, stallsAfterMs);
    }
  }

  /** The offsets to read of one Kafka partition. */
  private static class Range {
    final TopicPartition place;
    final long from;
    final long to;

    Range(TopicPartition place, long from, long to) {
      this.place = place;
      this.from = from;
      this.to = to;
    }
  }

  private static class Reader implements PartitionReader {
    private static final Logger LOG = LoggerFactory.getLogger("headwater.KafkaRanges");
    private static final long FROM_BEGIN = -2;
    private static final Duration POLL = Duration.ofMillis(500);
    private static final long ASKS_FOR_TOPICS_AFTER_MS = 2_000;

    private final KafkaConsumer consumer;
    private final Map headers;  // their names by their columns
    private final String[] columns;
    private final boolean failsOnLoss;
    private final long stallsAfterMs;
    private final HashMap open = new HashMap();  // ranges that are not read to their end, by Kafka partition
    private ConsumerRecords polled = ConsumerRecords.empty();
    private Iterator places = Collections.emptyIterator();  // those of "polled" that are not handed out
    private Iterator records = Collections.emptyIterator();  // those of the Kafka partition at hand
    private ConsumerRecord record;
    private UTF8String topic;
    private long to;
    private long positions = Long.MIN_VALUE;  // the sum of all, when it was asked last
    private long waitsSinceMs;
    private long asksForTopicsAtMs;

    Reader(String ranges, Map options, Map headers, String[] columns, boolean failsOnLoss, long stallsAfterMs) {
      this.headers = headers;
      this.columns = columns;
      this.failsOnLoss = failsOnLoss;
      this.stallsAfterMs = stallsAfterMs;
      String[] words = ranges.split(" ");
      for (int at = 0; at < words.length; at += 4) {
        TopicPartition place = new TopicPartition(words[at], Integer.parseInt(words[at + 1]));
        open.put(place, new Range(place, Long.parseLong(words[at + 2]), Long.parseLong(words[at + 3])));
      }
      Properties properties = new Properties();
      properties.putAll(options);
      consumer = new KafkaConsumer(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
      consumer.assign(open.keySet());
      for (Iterator each = open.values().iterator(); each.hasNext();) {
        Range range = (Range) each.next();
        if (range.from == FROM_BEGIN) {
          consumer.seekToBeginning(Collections.singleton(range.place));
        } else {
          consumer.seek(range.place, range.from);
        }
      }
    }

    public boolean next() {
      while (true) {
        while (records.hasNext()) {
          record = (ConsumerRecord) records.next();
          if (record.offset() < to) {
            return true;
          }
        }
        if (places.hasNext()) {
          TopicPartition place = (TopicPartition) places.next();
          topic = UTF8String.fromString(place.topic());
          to = ((Range) open.get(place)).to;
          records = polled.records(place).iterator();
        } else if (!poll()) {
          return false;
        }
      }
    }

    public Object get() {
      Object[] values = new Object[columns.length];
      for (int at = 0; at < columns.length; at++) {
        values[at] = value(columns[at]);
      }
      return new GenericInternalRow(values);
    }

    public void close() {
      consumer.close(Duration.ZERO);
    }

    private Object value(String column) {
      if (column.equals("value")) {
        return record.value();
      }
      if (column.equals("key")) {
        return record.key();
      }
      if (column.equals("topic")) {
        return topic;
      }
      if (column.equals("partition")) {
        return Integer.valueOf(record.partition());
      }
      if (column.equals("offset")) {
        return Long.valueOf(record.offset());
      }
      return column.equals("headers") ? (Object) allHeaders() : header((String) headers.get(column));
    }

    private UTF8String header(String name) {
      Header header = record.headers().lastHeader(name);
      return header == null ? null : UTF8String.fromBytes(header.value());
    }

    private GenericArrayData allHeaders() {
      Header[] given = record.headers().toArray();
      Object[] headers = new Object[given.length];
      for (int at = 0; at < given.length; at++) {
        headers[at] = new GenericInternalRow(new Object[] {UTF8String.fromString(given[at].key()), given[at].value()});
      }
      return new GenericArrayData(headers);
    }

    /** Ask for more, all that came being handed out. False: all ranges are read to their ends. */
    private boolean poll() {
      close(readToTheirEnds());
      if (open.isEmpty()) {
        return false;
      }
      if (TaskContext.get() != null && TaskContext.get().isInterrupted()) {
        throw new TaskKilledException();
      }
      try {
        polled = consumer.poll(POLL);
      } catch (OffsetOutOfRangeException gone) {
        polled = ConsumerRecords.empty();
        lose(gone.offsetOutOfRangePartitions().keySet());
      }
      places = polled.partitions().iterator();
      long nowMs = System.currentTimeMillis();
      if (polled.isEmpty() && nowMs > asksForTopicsAtMs) {
        lose(withoutTopic());
        asksForTopicsAtMs = nowMs + ASKS_FOR_TOPICS_AFTER_MS;
        if (nowMs > waitsSinceMs + stallsAfterMs) {
          throw new TimeoutException("Kafka gives nothing of " + open.keySet() + " for " + stallsAfterMs + " ms");
        }
      }
      return true;
    }

    private void close(Collection read) {
      for (Iterator each = read.iterator(); each.hasNext();) {
        open.remove(each.next());
      }
      consumer.pause(read);
    }

    /** A position also counts offsets without a record to deliver: markers of transactions, records of aborted ones. */
    private List readToTheirEnds() {
      List read = new ArrayList();
      long sum = 0;
      for (Iterator each = open.values().iterator(); each.hasNext();) {
        Range range = (Range) each.next();
        long position = consumer.position(range.place);
        sum += position;
        if (position >= range.to) {
          read.add(range.place);
        }
      }
      if (sum != positions) {  // Spark's own time with the records is not Kafka's
        positions = sum;
        waitsSinceMs = System.currentTimeMillis();
        asksForTopicsAtMs = waitsSinceMs + ASKS_FOR_TOPICS_AFTER_MS;
      }
      return read;
    }

    /** Kafka partitions whose topic was deleted, or created again with fewer of them. */
    private Set withoutTopic() {
      Set gone = new HashSet(open.keySet());
      Map topics = consumer.listTopics();
      for (Iterator each = open.keySet().iterator(); each.hasNext();) {
        TopicPartition place = (TopicPartition) each.next();
        List there = (List) topics.get(place.topic());
        if (there != null && place.partition() < there.size()) {
          gone.remove(place);
        }
      }
      return gone;
    }

    /** The next records of these are gone: go on with the records that are left, where that is wanted. */
    private void lose(Set gone) {
      if (gone.isEmpty()) {
        return;
      }
      if (failsOnLoss) {
        throw new Lost(gone);
      }
      LOG.warn("Kafka lacks the next records of {}: they are passed over", gone);
      Set there = new HashSet(gone);
      there.removeAll(withoutTopic());
      Map begins = consumer.beginningOffsets(there);
      List without = new ArrayList();
      for (Iterator each = gone.iterator(); each.hasNext();) {
        TopicPartition place = (TopicPartition) each.next();
        Long begin = (Long) begins.get(place);
        long to = ((Range) open.get(place)).to;
        if (begin == null || begin.longValue() <= consumer.position(place) || begin.longValue() >= to) {
          without.add(place);
        } else {
          consumer.seek(place, begin.longValue());
        }
      }
      close(without);
    }
  }

  /** As Spark's own reader has it: lost_partitions (spark/jvm/errors.py) knows both. */
  public static class Lost extends RuntimeException implements SparkThrowable {
    private final String places;

    Lost(Set places) {
      super("Kafka lacks the next records of " + places);
      this.places = places.toString().replace("[", "").replace("]", "");
    }

    public String getCondition() {
      return "KAFKA_DATA_LOSS";
    }

    public Map getMessageParameters() {
      return Collections.singletonMap("partitions", places);
    }
  }
}
