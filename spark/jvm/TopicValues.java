/*
 * All that a small topic holds, by one consumer: a query of Spark's costs a third of a CPU second, however few records it reads.
 *
 * Spark's own compiler of Java, Janino, reads this (spark/jvm/java.py): without lambdas, and with casts of each generic
 * type's values.
 */

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;

public class TopicValues {
  private static final Duration POLL = Duration.ofMillis(200L);

  /**
   * Of each record with a value its partition (4 bytes), offset (8), the value's length (4) and the value; a partition's in their order.
   * Nothing where there is no such topic. It fails where no record comes within "within_ms".
   */
  public byte[] read(Properties options, String topic, long withinMs) throws Exception {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    DataOutputStream told = new DataOutputStream(bytes);
    KafkaConsumer consumer = new KafkaConsumer(options);
    try {
      List places = new ArrayList();
      for (Iterator each = consumer.partitionsFor(topic).iterator(); each.hasNext();) {
        places.add(new TopicPartition(topic, ((PartitionInfo) each.next()).partition()));
      }
      Map ends = consumer.endOffsets(places);
      consumer.assign(places);
      consumer.seekToBeginning(places);
      long deadline = System.nanoTime() + withinMs * 1000000L;
      while (!isRead(consumer, ends)) {
        ConsumerRecords records = consumer.poll(POLL);
        for (Iterator each = records.iterator(); each.hasNext();) {
          ConsumerRecord record = (ConsumerRecord) each.next();
          byte[] value = (byte[]) record.value();
          if (value != null) {
            told.writeInt(record.partition());
            told.writeLong(record.offset());
            told.writeInt(value.length);
            told.write(value);
          }
        }
        if (!records.isEmpty()) {
          deadline = System.nanoTime() + withinMs * 1000000L;
        } else if (System.nanoTime() > deadline) {
          throw new TimeoutException(topic + " gives no record");
        }
      }
    } finally {
      consumer.close();
    }
    return bytes.toByteArray();
  }

  private static boolean isRead(KafkaConsumer consumer, Map ends) {
    for (Iterator each = ends.entrySet().iterator(); each.hasNext();) {
      Map.Entry end = (Map.Entry) each.next();
      if (consumer.position((TopicPartition) end.getKey()) < ((Long) end.getValue()).longValue()) {
        return false;
      }
    }
    return true;
  }
}
