/*
 * Events of many small tables in the driver's memory, from where each table's are decoded without a query of their own.
 *
 * Spark's own compiler of Java, Janino, reads this (spark/jvm/java.py): without lambdas, and with casts of each generic
 * type's values.
 */

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;

public class EventsAtHand {
  private final Map byTopic = new HashMap();

  /** Of rows whose last column is the topic. */
  public EventsAtHand(InternalRow[] rows) {
    for (int at = 0; at < rows.length; at++) {
      String topic = rows[at].getString(rows[at].numFields() - 1);
      List known = (List) byTopic.get(topic);
      if (known == null) {
        known = new ArrayList();
        byTopic.put(topic, known);
      }
      known.add(rows[at]);
    }
  }

  /** How many events of a topic there are. */
  public int count(String topic) {
    List rows = (List) byTopic.get(topic);
    return rows == null ? 0 : rows.size();
  }

  /** A topic's events through "projections", one after another; a row is good until the next one. They are forgotten here. */
  public Iterator take(String topic, List projections) {
    List rows = (List) byTopic.remove(topic);
    return new Projected(rows == null ? new ArrayList().iterator() : rows.iterator(), projections);
  }

  private static class Projected implements Iterator {
    private final Iterator rows;
    private final List projections;

    Projected(Iterator rows, List projections) {
      this.rows = rows;
      this.projections = projections;
    }

    public boolean hasNext() {
      return rows.hasNext();
    }

    public Object next() {
      Object row = rows.next();
      for (int at = 0; at < projections.size(); at++) {
        row = ((UnsafeProjection) projections.get(at)).apply((InternalRow) row);
      }
      return row;
    }
  }
}
