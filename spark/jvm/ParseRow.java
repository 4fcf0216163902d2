/*
 * A row image's JSON text as Spark's own JSON reader has it, from its bytes (parsed_row.py).
 *
 * Plain values, of which nearly all rows are, are taken as they come from Jackson. Any other value, or one that does not fit,
 * is read by Spark's reader, which returns it or raises. The result is from_json's. There a text comes to Jackson through a
 * decoder of characters that is made for each text, with a buffer of eight kilobytes.
 *
 * Spark's own compiler of Java, Janino, reads this (spark/jvm/java.py).
 */

package headwater;

import java.io.IOException;
import java.io.Serializable;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.JsonTokenId;
import com.fasterxml.jackson.core.StreamReadFeature;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.json.JSONOptions;
import org.apache.spark.sql.catalyst.json.JacksonParser;
import org.apache.spark.sql.catalyst.util.FailFastMode$;
import org.apache.spark.sql.catalyst.util.FailureSafeParser;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
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
  private transient PlainRows plainRows;
  private transient FailureSafeParser parser;

  public ParseRow(StructType type) {
    this.type = type;
  }

  /** Of a text that does not fit the type it fails, as from_json with FAILFAST. Each task has an object of its own. */
  public InternalRow parse(UTF8String text) {
    if (parser == null) {
      plainRows = new PlainRows(type);
      parser = newParser();
    }
    InternalRow plain = plainRows.parse(text);
    if (plain != null) {
      return plain;
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

  /** Objects whose members are plain values of the columns' types. */
  private static class PlainRows {
    private static final int OTHER = 0;
    private static final int BOOLEAN = 1;
    private static final int INT = 2;
    private static final int LONG = 3;
    private static final int FLOAT = 4;
    private static final int DOUBLE = 5;
    private static final int STRING = 6;
    private static final int BINARY = 7;

    // Made once: it knows the names that it has met.
    private final JsonFactory factory = new JsonFactory();
    private final String[] names;
    private final int[] kinds;

    PlainRows(StructType type) {
      StructField[] fields = type.fields();
      names = new String[fields.length];
      kinds = new int[fields.length];
      for (int at = 0; at < fields.length; at++) {
        names[at] = fields[at].name().intern();  // as Jackson's are
        kinds[at] = kindOf(fields[at].dataType());
      }
    }

    private static int kindOf(DataType type) {
      if (type instanceof StringType) {
        return STRING;
      }
      if (type instanceof IntegerType) {
        return INT;
      }
      if (type instanceof LongType) {
        return LONG;
      }
      if (type instanceof DoubleType) {
        return DOUBLE;
      }
      if (type instanceof FloatType) {
        return FLOAT;
      }
      if (type instanceof BooleanType) {
        return BOOLEAN;
      }
      return type instanceof BinaryType ? BINARY : OTHER;
    }

    /** null: this is no such object. */
    InternalRow parse(UTF8String text) {
      try {
        JsonParser parser = opened(text);
        try {
          return row(parser);
        } finally {
          parser.close();
        }
      } catch (IOException notPlain) {
        return null;
      }
    }

    private JsonParser opened(UTF8String text) throws IOException {
      Object base = text.getBaseObject();
      int size = text.numBytes();
      JsonParser parser = base instanceof byte[]
          ? factory.createParser((byte[]) base, (int) (text.getBaseOffset() - Platform.BYTE_ARRAY_OFFSET), size)
          : factory.createParser(text.getBytes());
      return parser.enable(StreamReadFeature.USE_FAST_DOUBLE_PARSER.mappedFeature());
    }

    private InternalRow row(JsonParser parser) throws IOException {
      Object[] values = new Object[names.length];
      if (parser.nextToken() != JsonToken.START_OBJECT) {
        return null;
      }
      int next = 0;
      while (parser.nextToken() == JsonToken.FIELD_NAME) {
        int column = columnOf(parser.currentName(), next);
        JsonToken token = parser.nextToken();
        if (column == names.length) {
          parser.skipChildren();
          continue;
        }
        next = column + 1;
        values[column] = null;
        if (token != JsonToken.VALUE_NULL) {
          values[column] = value(kinds[column], token, parser);
          if (values[column] == null) {
            return null;
          }
        }
      }
      boolean isWhole = parser.currentToken() == JsonToken.END_OBJECT && parser.nextToken() == null;
      return isWhole ? new GenericInternalRow(values) : null;
    }

    /** Most rows have their members in the order of their columns. After all columns: it is none of them. */
    private int columnOf(String name, int expected) {
      if (expected < names.length && names[expected] == name) {
        return expected;
      }
      int column = 0;
      while (column < names.length && !names[column].equals(name)) {
        column++;
      }
      return column;
    }

    private static Object value(int kind, JsonToken token, JsonParser parser) throws IOException {
      switch (token.id()) {
        case JsonTokenId.ID_STRING:
          if (kind == STRING) {
            return UTF8String.fromString(parser.getText());
          }
          return kind == BINARY ? parser.getBinaryValue() : null;
        case JsonTokenId.ID_NUMBER_INT:
          if (kind == INT) {
            return Integer.valueOf(parser.getIntValue());
          }
          return kind == LONG ? (Object) Long.valueOf(parser.getLongValue()) : fraction(kind, parser);
        case JsonTokenId.ID_NUMBER_FLOAT:
          return fraction(kind, parser);
        case JsonTokenId.ID_TRUE:
          return kind == BOOLEAN ? Boolean.TRUE : null;
        case JsonTokenId.ID_FALSE:
          return kind == BOOLEAN ? Boolean.FALSE : null;
        default:
          return null;
      }
    }

    private static Object fraction(int kind, JsonParser parser) throws IOException {
      if (kind == DOUBLE) {
        return Double.valueOf(parser.getDoubleValue());
      }
      return kind == FLOAT ? (Object) Float.valueOf(parser.getFloatValue()) : null;
    }
  }
}
