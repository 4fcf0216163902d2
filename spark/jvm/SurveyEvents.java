/*
 * The figures of a part of a micro-batch, in one look at its events (survey.py).
 *
 * Spark has aggregates for it too. One by the events' orders copies each of them, and all of them together took an eighth of
 * the cost of a log of changes.
 *
 * Spark's own compiler of Java, Janino, reads this (spark/jvm/java.py): without lambdas, and with casts of each generic
 * type's values.
 */

package headwater;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.types.UTF8String;

public class SurveyEvents implements FlatMapFunction, Serializable {
  // Columns of the events, in this order.
  private static final int TOPIC = 0;
  private static final int SCHEMA_VERSION = 1;
  private static final int KAFKA_PARTITION = 2;
  private static final int OFFSET = 3;
  private static final int ORDER = 4;
  private static final int OP = 5;
  private static final int COMMITTED_AT_US = 6;
  private static final int KEY = 7;
  private static final int IS_PARTIAL = 8;
  private static final int IMAGE = 9;

  private static final int MOST_TIMES = 1024;  // of which quantiles are taken
  private static final int SURE_DIGITS = 18;  // of a long

  private final String delete;
  private final String insert;
  private final String snapshot;
  private final String snapshotOrdinal;
  private final int quantiles;

  /** The ops, how the orders of rows of a snapshot end, and the number of commit times to return. */
  public SurveyEvents(String delete, String insert, String snapshot, String snapshotOrdinal, Integer quantiles) {
    this.delete = delete;
    this.insert = insert;
    this.snapshot = snapshot;
    this.snapshotOrdinal = snapshotOrdinal;
    this.quantiles = quantiles.intValue();
  }

  /** One text: JSON's list of the portions that the rows, InternalRow, have. A row is good until the next one. */
  public Iterator call(Object rows) throws JsonProcessingException {
    Marks marks = new Marks(this);
    HashMap portions = new HashMap();
    Portion portion = null;
    for (Iterator each = (Iterator) rows; each.hasNext();) {
      InternalRow row = (InternalRow) each.next();
      if (portion == null || !portion.has(row)) {  // the next event is of the same one but for a few times a batch
        portion = portionOf(row, portions);
      }
      portion.add(row, marks);
    }
    List told = new ArrayList();
    for (Iterator each = portions.values().iterator(); each.hasNext();) {
      told.add(((Portion) each.next()).told(quantiles));
    }
    return Collections.singletonList(new ObjectMapper().writeValueAsString(told)).iterator();
  }

  private static Portion portionOf(InternalRow row, Map portions) {
    Portion wanted = new Portion(row);
    Portion known = (Portion) portions.get(wanted.name());
    if (known == null) {
      portions.put(wanted.name(), wanted);
      return wanted;
    }
    return known;
  }

  private static class Marks {
    final UTF8String delete;
    final UTF8String insert;
    final UTF8String snapshot;
    final UTF8String snapshotOrdinal;

    Marks(SurveyEvents given) {
      delete = UTF8String.fromString(given.delete);
      insert = UTF8String.fromString(given.insert);
      snapshot = UTF8String.fromString(given.snapshot);
      snapshotOrdinal = UTF8String.fromString(given.snapshotOrdinal);
    }
  }

  /** Events of one topic, version and Kafka partition. */
  private static class Portion {
    private final UTF8String topic;
    private final boolean hasVersion;
    private final int version;
    private final int kafkaPartition;
    private long rows;
    private long orderedRows;
    private long firstOffset = Long.MAX_VALUE;
    private long lastOffset = Long.MIN_VALUE;
    private UTF8String oldestOrder;
    private UTF8String newestOrder;
    private long newestOffset;
    private long newestCommittedAtUs;
    private Keyless newestKeyless;
    private Keyless oldestKeyless;
    private UTF8String newestDelete;
    private long partialRows;
    private long firstRows;
    private long snapshotRows;
    private final Numbers numbers = new Numbers();
    private final Times liveTimes = new Times();
    private long imageBytes;

    Portion(InternalRow row) {
      topic = row.getUTF8String(TOPIC).copy();
      hasVersion = !row.isNullAt(SCHEMA_VERSION);
      version = hasVersion ? row.getInt(SCHEMA_VERSION) : 0;
      kafkaPartition = row.getInt(KAFKA_PARTITION);
    }

    String name() {
      return kafkaPartition + " " + hasVersion + " " + version + " " + topic;
    }

    boolean has(InternalRow row) {
      return row.getInt(KAFKA_PARTITION) == kafkaPartition
          && row.isNullAt(SCHEMA_VERSION) != hasVersion
          && (!hasVersion || row.getInt(SCHEMA_VERSION) == version)
          && row.getUTF8String(TOPIC).equals(topic);
    }

    void add(InternalRow row, Marks marks) {
      long offset = row.getLong(OFFSET);
      UTF8String order = row.isNullAt(ORDER) ? null : row.getUTF8String(ORDER);
      UTF8String op = row.isNullAt(OP) ? null : row.getUTF8String(OP);
      boolean isCommitted = !row.isNullAt(COMMITTED_AT_US);
      long committedAtUs = isCommitted ? row.getLong(COMMITTED_AT_US) : 0;
      rows++;
      firstOffset = Math.min(firstOffset, offset);
      lastOffset = Math.max(lastOffset, offset);
      newestCommittedAtUs = Math.max(newestCommittedAtUs, committedAtUs);
      if (order != null) {
        addOrdered(order, offset, op, row, marks);
        if (isCommitted && !order.endsWith(marks.snapshotOrdinal)) {
          liveTimes.add(committedAtUs);
        }
        if (row.isNullAt(KEY)) {
          addKeyless(order, committedAtUs);
        }
      }
      if (!row.isNullAt(KEY)) {
        numbers.add(row.getUTF8String(KEY));
      }
      if (!row.isNullAt(IS_PARTIAL) && row.getBoolean(IS_PARTIAL)) {
        partialRows++;
      }
      if (!row.isNullAt(IMAGE)) {
        imageBytes += row.getUTF8String(IMAGE).numBytes();
      }
    }

    private void addOrdered(UTF8String order, long offset, UTF8String op, InternalRow row, Marks marks) {
      orderedRows++;
      if (oldestOrder == null || order.binaryCompare(oldestOrder) < 0) {
        oldestOrder = order.copy();
      }
      if (newestOrder == null || order.binaryCompare(newestOrder) > 0) {
        newestOrder = order.copy();
        newestOffset = offset;
      }
      if (op == null) {
        return;
      }
      if (op.equals(marks.snapshot)) {
        snapshotRows++;
        firstRows++;
      } else if (op.equals(marks.insert)) {
        firstRows++;
      } else if (op.equals(marks.delete) && (newestDelete == null || order.binaryCompare(newestDelete) > 0)) {
        newestDelete = order.copy();
      }
    }

    private void addKeyless(UTF8String order, long committedAtUs) {
      if (newestKeyless == null || order.binaryCompare(newestKeyless.order) > 0) {
        newestKeyless = new Keyless(order.copy(), committedAtUs);
      }
      if (oldestKeyless == null || order.binaryCompare(oldestKeyless.order) < 0) {
        oldestKeyless = new Keyless(order.copy(), committedAtUs);
      }
    }

    /** As _Portion in survey.py has it. */
    Map told(int quantiles) {
      Map told = new LinkedHashMap();
      told.put("topic", topic.toString());
      told.put("schema_version", hasVersion ? Integer.valueOf(version) : null);
      told.put("kafka_partition", Integer.valueOf(kafkaPartition));
      told.put("rows", Long.valueOf(rows));
      told.put("ordered_rows", Long.valueOf(orderedRows));
      told.put("first_offset", Long.valueOf(firstOffset));
      told.put("last_offset", Long.valueOf(lastOffset));
      told.put("oldest_order", text(oldestOrder));
      told.put("newest_order", text(newestOrder));
      told.put("newest_offset", Long.valueOf(newestOffset));
      told.put("newest_committed_at_us", Long.valueOf(newestCommittedAtUs));
      told.put("newest_keyless", newestKeyless == null ? null : newestKeyless.told());
      told.put("oldest_keyless", oldestKeyless == null ? null : oldestKeyless.told());
      told.put("newest_delete", text(newestDelete));
      told.put("partial_rows", Long.valueOf(partialRows));
      told.put("first_rows", Long.valueOf(firstRows));
      told.put("snapshot_rows", Long.valueOf(snapshotRows));
      told.put("numbered_rows", Long.valueOf(numbers.rows));
      told.put("least_number", Long.valueOf(numbers.least));
      told.put("greatest_number", Long.valueOf(numbers.greatest));
      told.put("live_rows", Long.valueOf(liveTimes.seen));
      told.put("live_times", liveTimes.quantiles(quantiles));
      told.put("image_bytes", Long.valueOf(imageBytes));
      return told;
    }

    private static String text(UTF8String given) {
      return given == null ? null : given.toString();
    }
  }

  private static class Keyless {
    final UTF8String order;
    final long committedAtUs;

    Keyless(UTF8String order, long committedAtUs) {
      this.order = order;
      this.committedAtUs = committedAtUs;
    }

    List told() {
      return Arrays.asList(new Object[] {order.toString(), Long.valueOf(committedAtUs)});
    }
  }

  /** The last numbers of keys, as last_number in parse_keys.py has them. */
  private static class Numbers {
    long rows;
    long least = Long.MAX_VALUE;
    long greatest = Long.MIN_VALUE;

    void add(UTF8String key) {
      int from = key.numBytes();
      while (from > 0 && key.getByte(from - 1) != ':') {
        from--;
      }
      int to = from;
      while (to < key.numBytes() && key.getByte(to) != '}') {
        to++;
      }
      boolean isNegative = from < to && key.getByte(from) == '-';
      int digits = isNegative ? from + 1 : from;
      if (digits == to) {
        return;
      }
      long number = 0;
      for (int at = digits; at < to; at++) {
        int digit = key.getByte(at) - '0';
        if (digit < 0 || digit > 9) {
          return;
        }
        number = 10 * number + digit;
      }
      if (to - digits > SURE_DIGITS) {
        try {
          number = Long.parseLong(new String(key.getBytes(), from, to - from, StandardCharsets.US_ASCII));
        } catch (NumberFormatException tooLong) {
          return;
        }
      } else if (isNegative) {
        number = -number;
      }
      rows++;
      least = Math.min(least, number);
      greatest = Math.max(greatest, number);
    }
  }

  /** Of many times each second, fourth, eighth one, so many as fit in. */
  private static class Times {
    private final long[] kept = new long[MOST_TIMES];
    private int size;
    private long every = 1;
    long seen;

    void add(long time) {
      if (seen % every == 0 && size == MOST_TIMES) {
        for (int at = 0; at < MOST_TIMES / 2; at++) {
          kept[at] = kept[2 * at];
        }
        size = MOST_TIMES / 2;
        every = 2 * every;
      }
      if (seen % every == 0) {
        kept[size] = time;
        size++;
      }
      seen++;
    }

    /** The middles of so many equal shares. */
    long[] quantiles(int shares) {
      long[] sorted = Arrays.copyOf(kept, size);
      Arrays.sort(sorted);
      long[] quantiles = new long[size == 0 ? 0 : shares];
      for (int share = 0; share < quantiles.length; share++) {
        quantiles[share] = sorted[(2 * share + 1) * size / (2 * shares)];
      }
      return quantiles;
    }
  }
}
