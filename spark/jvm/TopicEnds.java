/*
 * Where topics end, of all tenants of a job in two requests, and only the changed ones: by py4j each partition would cost a
 * call.
 *
 * Spark's own compiler of Java, Janino, reads this (spark/jvm/java.py): without lambdas, and with casts of each generic
 * type's values.
 */

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class TopicEnds {
  /** A partition that is away has that long; then it is asked apart from the others, which would wait for it each time. */
  private static final int ANSWERS_WITHIN_MS = 5000;
  /** Looks without a partition until it counts as gone: brokers hear of a topic one after another. */
  private static final int LOOKS_WITHOUT = 3;

  private static final long GONE = -1L;
  private static final long SILENT = -2L;

  private final KafkaConsumer lists;
  private final AdminClient asks;
  private final Map ends = new HashMap();
  private final Map missing = new HashMap();
  private final Set silent = new HashSet();
  private final Set asked = new HashSet();
  private ListOffsetsResult late;

  public TopicEnds(Object listOptions, Object askOptions) {
    lists = new KafkaConsumer((Properties) listOptions);
    asks = AdminClient.create((Properties) askOptions);
  }

  /**
   * A line for each change since the last call: topic, partition, and the end for readers of committed transactions.
   * Instead of an end, -1: the partition is gone; -2: it does not answer. Of topics that begin with one of tenants and a dot.
   */
  public synchronized String changes(String[] tenants) throws Exception {
    StringBuilder told = new StringBuilder();
    Set there = partitions(new HashSet(Arrays.asList(tenants)));
    for (Iterator each = new HashSet(ends.keySet()).iterator(); each.hasNext();) {
      TopicPartition known = (TopicPartition) each.next();
      if (there.contains(known)) {
        missing.remove(known);
        continue;
      }
      Integer looks = (Integer) missing.get(known);
      int without = looks == null ? 1 : looks.intValue() + 1;
      missing.put(known, Integer.valueOf(without));
      if (without >= LOOKS_WITHOUT) {
        tell(told, known, GONE);
        ends.remove(known);
        missing.remove(known);
      }
    }
    silent.retainAll(there);
    Map wanted = new HashMap();
    for (Iterator each = there.iterator(); each.hasNext();) {
      Object partition = each.next();
      if (!silent.contains(partition)) {
        wanted.put(partition, OffsetSpec.latest());
      }
    }
    if (!wanted.isEmpty()) {
      ListOffsetsResult found = ask(wanted);
      for (Iterator each = wanted.keySet().iterator(); each.hasNext();) {
        TopicPartition partition = (TopicPartition) each.next();
        try {
          note(told, partition, found);
        } catch (ExecutionException failed) { // of this partition: the others' tenants are served
          silent.add(partition);
          tell(told, partition, SILENT);
        }
      }
    }
    lookAtSilent(told);
    return told.toString();
  }

  /** Where partitions begin, in their order, each a line; a topic and a partition each, with a tab between. */
  public String begins(String[] partitions) throws Exception {
    Map wanted = new HashMap();
    TopicPartition[] order = new TopicPartition[partitions.length];
    for (int place = 0; place < partitions.length; place++) {
      String[] words = partitions[place].split("\t");
      order[place] = new TopicPartition(words[0], Integer.parseInt(words[1]));
      wanted.put(order[place], OffsetSpec.earliest());
    }
    ListOffsetsResult found = ask(wanted);
    StringBuilder told = new StringBuilder();
    for (int place = 0; place < order.length; place++) {
      told.append(offset(found, order[place])).append('\n');
    }
    return told.toString();
  }

  public synchronized void close() {
    lists.close();
    asks.close();
  }

  private Set partitions(Set tenants) {
    Set found = new HashSet();
    for (Iterator each = lists.listTopics().entrySet().iterator(); each.hasNext();) {
      Map.Entry listed = (Map.Entry) each.next();
      String topic = (String) listed.getKey();
      int dot = topic.indexOf('.');
      if (dot >= 0 && tenants.contains(topic.substring(0, dot))) {
        for (Iterator of = ((List) listed.getValue()).iterator(); of.hasNext();) {
          found.add(new TopicPartition(topic, ((PartitionInfo) of.next()).partition()));
        }
      }
    }
    return found;
  }

  private ListOffsetsResult ask(Map wanted) {
    ListOffsetsOptions options = new ListOffsetsOptions(IsolationLevel.READ_COMMITTED);
    options.timeoutMs(Integer.valueOf(ANSWERS_WITHIN_MS));
    return asks.listOffsets(wanted, options);
  }

  /** Asked again and again; nobody waits for it. */
  private void lookAtSilent(StringBuilder told) throws Exception {
    for (Iterator each = new HashSet(asked).iterator(); each.hasNext();) {
      TopicPartition partition = (TopicPartition) each.next();
      KafkaFuture answer = late.partitionResult(partition);
      if (answer.isDone()) {
        asked.remove(partition);
        if (!answer.isCompletedExceptionally() && silent.remove(partition)) {
          note(told, partition, late);
        }
      }
    }
    if (asked.isEmpty() && !silent.isEmpty()) {
      Map wanted = new HashMap();
      for (Iterator each = silent.iterator(); each.hasNext();) {
        wanted.put(each.next(), OffsetSpec.latest());
      }
      asked.addAll(silent);
      late = ask(wanted);
    }
  }

  private void note(StringBuilder told, TopicPartition partition, ListOffsetsResult found) throws Exception {
    Long end = Long.valueOf(offset(found, partition));
    if (!end.equals(ends.put(partition, end))) {
      tell(told, partition, end.longValue());
    }
  }

  private static long offset(ListOffsetsResult found, TopicPartition partition) throws Exception {
    return ((ListOffsetsResult.ListOffsetsResultInfo) found.partitionResult(partition).get()).offset();
  }

  private static void tell(StringBuilder told, TopicPartition partition, long end) {
    told.append(partition.topic()).append('\t').append(partition.partition()).append('\t').append(end).append('\n');
  }
}
