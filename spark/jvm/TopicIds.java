/*
 * Kafka's own ids of topics, asked for in one call: by py4j each of them would cost a few.
 *
 * Spark's own compiler of Java, Janino, reads this (spark/jvm/java.py): without lambdas, and with casts of each generic
 * type's values.
 */

import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

public class TopicIds {
  private final Map clients = new HashMap();

  /* A topic and its id a line; topics that are not there, or that have none, are missing. */
  public String tell(Properties options, String[] topics) throws Exception {
    StringBuilder told = new StringBuilder();
    Map asked = client(options).describeTopics(Arrays.asList(topics)).topicNameValues();
    for (Iterator each = asked.entrySet().iterator(); each.hasNext();) {
      Map.Entry topic = (Map.Entry) each.next();
      try {
        Uuid id = ((TopicDescription) ((KafkaFuture) topic.getValue()).get()).topicId();
        if (!Uuid.ZERO_UUID.equals(id)) {
          told.append(topic.getKey()).append('\t').append(id).append('\n');
        }
      } catch (ExecutionException failed) {
        boolean isGone = failed.getCause() instanceof UnknownTopicOrPartitionException
            || failed.getCause() instanceof InvalidTopicException;
        boolean isHidden = failed.getCause() instanceof TopicAuthorizationException; // its reader gets that error
        if (!isGone && !isHidden) {
          throw failed;
        }
      }
    }
    return told.toString();
  }

  /* One for all that ask the same brokers as the same user, for the session's life: to make one costs more than to ask. */
  private synchronized AdminClient client(Properties options) {
    Object known = clients.get(options);
    if (known == null) {
      known = AdminClient.create(options);
      clients.put(options.clone(), known);
    }
    return (AdminClient) known;
  }
}
