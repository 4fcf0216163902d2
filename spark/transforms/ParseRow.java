/*
 * A row image's JSON text read by Spark's own JSON reader, from its bytes (parsed_row.py).
 *
 * What from_json does but for how a text comes to Jackson: there through a decoder of characters that is made for each text, with
 * a buffer of eight kilobytes.
 *
 * Spark's own compiler of Java, Janino, reads this (spark/java.py).
 */

package headwater;

import java.io.IOException;
import java.io.Serializable;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.StreamReadFeature;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.json.JSONOptions;
import org.apache.spark.sql.catalyst.json.JacksonParser;
import org.apache.spark.sql.catalyst.util.FailFastMode$;
import org.apache.spark.sql.catalyst.util.FailureSafeParser;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.Iterator;
import scala.collection.immutable.Map;
import scala.collection.immutable.Nil$;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractFunction2;

public class ParseRow implements Serializable {
  // No name of a column: one that is named so would be given the text.
  private static final String NO_COLUMN = "\u0000";

  private static final String TIME_ZONE = "UTC";

  private final StructType type;
  private transient FailureSafeParser parser;

  public ParseRow(StructType type) {
    this.type = type;
  }

  /** Of a text that does not fit the type it fails, as from_json with FAILFAST. Each task has an object of its own. */
  public InternalRow parse(UTF8String text) {
    if (parser == null) {
      parser = newParser();
    }
    Iterator rows = parser.parse(text);
    return rows.hasNext() ? (InternalRow) rows.next() : null;
  }

  private FailureSafeParser newParser() {
    Map options = new Map.Map1("mode", "FAILFAST");
    final JacksonParser reader =
        new JacksonParser(type, new JSONOptions(options, TIME_ZONE, NO_COLUMN), false, Nil$.MODULE$);
    final OpenBytes openBytes = new OpenBytes();
    final Itself itself = new Itself();
    AbstractFunction1 read = new AbstractFunction1() {
      public Object apply(Object text) {
        return reader.parse(text, openBytes, itself);
      }
    };
    return new FailureSafeParser(read, FailFastMode$.MODULE$, type, NO_COLUMN);
  }

  // Two columns of one type are one.
  @Override
  public boolean equals(Object other) {
    return other instanceof ParseRow && type.equals(((ParseRow) other).type);
  }

  @Override
  public int hashCode() {
    return type.hashCode();
  }

  @Override
  public String toString() {
    return "row";
  }

  private static class OpenBytes extends AbstractFunction2 {
    public Object apply(Object factory, Object text) {
      // Whole arrays: the reader takes parts of them by their places.
      byte[] bytes = ((UTF8String) text).getBytes();
      try {
        JsonParser opened = ((JsonFactory) factory).createParser(bytes);
        return opened.enable(StreamReadFeature.USE_FAST_DOUBLE_PARSER.mappedFeature());
      } catch (IOException error) {
        throw new IllegalStateException(error);
      }
    }
  }

  private static class Itself extends AbstractFunction1 {
    public Object apply(Object text) {
      return text;
    }
  }
}
