/*
 * The CPU time of Spark's tasks, by the pool of their stage, and of one thread of the JVM. Each tenant's query has a pool of
 * its own.
 *
 * Spark's own events report the tasks, one by one. Its store of stages keeps the newest alone, and a batch over many tables
 * has more.
 *
 * Spark's own compiler of Java, Janino, reads this (spark/jvm/java.py).
 */

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;

public class CpuMeter extends SparkListener {
  /** Tasks of a stage that was given up end after it. */
  private static final int MOST_STAGES = 10000;

  private final ThreadMXBean threads = ManagementFactory.getThreadMXBean();
  private final ThreadLocal seen = new ThreadLocal();
  private final LinkedHashMap pools = new LinkedHashMap();
  private HashMap nanos = new HashMap();

  public CpuMeter() {}

  public synchronized void onStageSubmitted(SparkListenerStageSubmitted submitted) {
    String pool = submitted.properties() == null ? null : submitted.properties().getProperty("spark.scheduler.pool");
    if (pool == null) {
      return;
    }
    pools.put(Integer.valueOf(submitted.stageInfo().stageId()), pool);
    if (pools.size() > MOST_STAGES) {
      Iterator oldest = pools.keySet().iterator();
      oldest.next();
      oldest.remove();
    }
  }

  public synchronized void onTaskEnd(SparkListenerTaskEnd ended) {
    TaskMetrics metrics = ended.taskMetrics();
    Object pool = pools.get(Integer.valueOf(ended.stageId()));
    if (metrics == null || pool == null) {
      return;
    }
    Long before = (Long) nanos.get(pool);
    long took = metrics.executorCpuTime() + metrics.executorDeserializeCpuTime();
    nanos.put(pool, Long.valueOf((before == null ? 0L : before.longValue()) + took));
  }

  /** Tasks' nanoseconds since the last call: lines of the pool, a tab, and the number. */
  public synchronized String takeOfTasks() {
    StringBuilder lines = new StringBuilder();
    Iterator entries = nanos.entrySet().iterator();
    while (entries.hasNext()) {
      Map.Entry entry = (Map.Entry) entries.next();
      lines.append(entry.getKey()).append('\t').append(entry.getValue()).append('\n');
    }
    nanos = new HashMap();
    return lines.toString();
  }

  /** Nanoseconds that the thread which asks has had since it asked last, or since it began. */
  public long takeOfThisThread() {
    long now = threads.getCurrentThreadCpuTime();
    Long before = (Long) seen.get();
    seen.set(Long.valueOf(now));
    return before == null ? now : now - before.longValue();
  }
}
