/*
 * An event's text cut at the places that cut_envelope.py names, in one look at its bytes.
 *
 * Spark has expressions for it too. Each of them that looks for a text compares it at every byte by a call, which was a fifth
 * of the cost of a log of changes.
 *
 * Spark's own compiler of Java, Janino, reads this (spark/jvm/java.py). Nothing is copied: the parts are views of the text's
 * own bytes.
 */

package headwater;

import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

public class CutEnvelope {
  private static final byte[] BEFORE = bytes("{\"before\":");
  private static final byte[] BEFORE_ROW = bytes("{\"before\":{\"");
  private static final byte[] BEFORE_NULL = bytes("{\"before\":null,");
  private static final byte[] AFTER = bytes(",\"after\":");
  private static final byte[] AFTER_ROW = bytes(",\"after\":{\"");
  private static final byte[] NO_ROW_AFTER = bytes("},\"after\":null");
  private static final byte[] NEW_ROW = bytes("{\"before\":null,\"after\":{\"");
  private static final byte[] SOURCE = bytes(",\"source\":{\"version\":\"");
  private static final byte[] OP = bytes(",\"op\":\"");
  private static final byte[] COMMITTED_AT_US = bytes("\"ts_us\":");
  private static final byte[] COMMITTED_AT_MS = bytes("\"ts_ms\":");
  private static final byte[] SCHEMA = bytes("{\"schema\":");
  private static final byte[] PAYLOAD = bytes(",\"payload\":{\"before\":");
  // How the objects begin that a row may hold: Debezium's Geometry and Geography, Point, VariableScaleDecimal. A row that begins
  // so itself is parsed for its parts, which is slower and gives the same.
  private static final byte[][] OBJECTS = {bytes("{\"wkb\":"), bytes("{\"x\":"), bytes("{\"scale\":")};

  // A text with an object is looked for by its brace: there are few of them.
  private static final int BRACE_AFTER = AFTER_ROW.length - 2;
  private static final int BRACE_PAYLOAD = PAYLOAD.length - BEFORE.length;
  private static final int BRACE_SOURCE = SOURCE.length - "{\"version\":\"".length();

  private static final boolean IS_LITTLE_ENDIAN = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;
  private static final long LOW_BITS = 0x7f7f7f7f7f7f7f7fL;
  private static final int NOWHERE = -1;
  private static final int MOST_DIGITS = 18;  // of a long

  private final Object base;
  private final long offset;
  private final int size;

  private CutEnvelope(Object base, long offset, int size) {
    this.base = base;
    this.offset = offset;
    this.size = size;
  }

  /** op, committed_at_us, image, before, is_partial; null: this is no such text, and has to be parsed. "before" is there if asked
   *  for, of an update. An update is partial whose rows both hold a placeholder. */
  public static InternalRow cut(UTF8String text, boolean withBefore, UTF8String placeholder, UTF8String encodedPlaceholder) {
    CutEnvelope whole = new CutEnvelope(text.getBaseObject(), text.getBaseOffset(), text.numBytes());
    return whole.payload().parts(withBefore, placeholder.getBytes(), encodedPlaceholder.getBytes());
  }

  /** The payload after an event's Connect schema, where it has one. */
  private CutEnvelope payload() {
    int at = isAt(SCHEMA, 0, size) ? lastOf(PAYLOAD, BRACE_PAYLOAD, 0, size) : NOWHERE;
    int from = at + BRACE_PAYLOAD;
    return at == NOWHERE ? this : new CutEnvelope(base, offset + from, size - 1 - from);
  }

  private InternalRow parts(boolean withBefore, byte[] placeholder, byte[] encodedPlaceholder) {
    int opAt = lastOf(OP, 1, 0, size);
    int sourceAt = lastOf(SOURCE, BRACE_SOURCE, 0, size);
    if (opAt == NOWHERE || sourceAt == NOWHERE || opAt < sourceAt + SOURCE.length) {
      return null;
    }
    int op = opAt + OP.length;
    if (op + 1 >= size || at(op + 1) != '"') {
      return null;
    }
    int from;
    int to = sourceAt;
    switch (at(op)) {
      case 'd':
        if (!isAt(BEFORE_ROW, 0, sourceAt) || !isAt(NO_ROW_AFTER, sourceAt - NO_ROW_AFTER.length, sourceAt)) {
          return null;
        }
        from = BEFORE.length;
        to = sourceAt - NO_ROW_AFTER.length + 1;
        break;
      case 'c':
      case 'r':
      case 'u':
        int afterAt = isAt(NEW_ROW, 0, sourceAt) ? BEFORE_NULL.length - 1 : lastOf(AFTER_ROW, BRACE_AFTER, 0, sourceAt);
        if (afterAt == NOWHERE || at(sourceAt - 1) != '}') {
          return null;
        }
        from = afterAt + AFTER.length;
        break;
      default:
        return null;
    }
    for (int object = 0; object < OBJECTS.length; object++) {
      if (isAt(OBJECTS[object], from, to)) {
        return null;
      }
    }
    UTF8String before = null;
    boolean isPartial = at(op) == 'u' && holds(placeholder, encodedPlaceholder, from, to)
        && (!isAt(BEFORE_ROW, 0, sourceAt) || holds(placeholder, encodedPlaceholder, BEFORE.length, from - AFTER.length));
    if (withBefore && at(op) == 'u' && !isAt(BEFORE_NULL, 0, sourceAt)) {
      int rowEnd = from - AFTER.length;
      if (!isAt(BEFORE_ROW, 0, rowEnd)) {
        return null;
      }
      before = text(BEFORE.length, rowEnd);
      isPartial = isPartial || holds(placeholder, encodedPlaceholder, BEFORE.length, rowEnd);
    }
    int source = sourceAt + SOURCE.length;
    Long committedAt = null;
    int digits = behindLast(COMMITTED_AT_US, source, opAt);
    long unit = 1;
    if (digits == NOWHERE) {
      digits = behindLast(COMMITTED_AT_MS, source, opAt);
      unit = 1000;
    }
    if (digits != NOWHERE) {
      long time = number(digits, opAt);
      if (time == NOWHERE || time > Long.MAX_VALUE / unit) {
        return null;
      }
      committedAt = Long.valueOf(unit * time);
    }
    return new GenericInternalRow(
        new Object[] {text(op, op + 1), committedAt, text(from, to), before, Boolean.valueOf(isPartial)});
  }

  /** The whole number of digits alone from there to the member's end; NOWHERE: it is another, or none. */
  private long number(int from, int end) {
    long number = 0;
    for (int place = from; place < end && place - from <= MOST_DIGITS; place++) {
      byte digit = at(place);
      if ((digit == ',' || digit == '}') && place > from) {
        return number;
      }
      if (digit < '0' || digit > '9') {
        return NOWHERE;
      }
      number = 10 * number + (digit - '0');
    }
    return NOWHERE;
  }

  private int behindLast(byte[] sought, int from, int end) {
    int found = lastOf(sought, 0, from, end);
    return found == NOWHERE ? NOWHERE : found + sought.length;
  }

  /** Looked for by its byte at that place of it. */
  private int lastOf(byte[] sought, int looked, int from, int end) {
    int place = end;
    while ((place = lastOf(sought[looked], from + looked, place)) != NOWHERE) {
      if (isAt(sought, place - looked, end)) {
        return place - looked;
      }
    }
    return NOWHERE;
  }

  private int lastOf(byte sought, int from, int end) {
    long everywhere = everywhere(sought);
    int place = end;
    while (place - 8 >= from) {
      long found = found(everywhere, place - 8);
      if (found != 0) {
        return place - 1 - (Long.numberOfLeadingZeros(found) >> 3);
      }
      place -= 8;
    }
    while (--place >= from) {
      if (at(place) == sought) {
        return place;
      }
    }
    return NOWHERE;
  }

  private boolean holds(byte[] one, byte[] other, int from, int end) {
    long first = everywhere(one[0]);
    long firstOfOther = everywhere(other[0]);
    int place = from;
    for (; place + 8 <= end; place += 8) {
      for (long found = found(first, place) | found(firstOfOther, place); found != 0; found &= found - 1) {
        int at = place + (Long.numberOfTrailingZeros(found) >> 3);
        if (isAt(one, at, end) || isAt(other, at, end)) {
          return true;
        }
      }
    }
    return false;  // neither is so short as the rest
  }

  /** Of the eight bytes from there, the top bit of each that is the one that is everywhere in that; the first byte is the lowest. */
  private long found(long everywhere, int place) {
    long bytes = Platform.getLong(base, offset + place);
    long differing = (IS_LITTLE_ENDIAN ? bytes : Long.reverseBytes(bytes)) ^ everywhere;
    return ~((differing & LOW_BITS) + LOW_BITS | differing | LOW_BITS);
  }

  private static long everywhere(byte value) {
    return (value & 0xffL) * 0x0101010101010101L;
  }

  private boolean isAt(byte[] sought, int place, int end) {
    if (place < 0 || place + sought.length > end) {
      return false;
    }
    for (int number = 0; number < sought.length; number++) {
      if (at(place + number) != sought[number]) {
        return false;
      }
    }
    return true;
  }

  private byte at(int place) {
    return Platform.getByte(base, offset + place);
  }

  private UTF8String text(int from, int end) {
    return UTF8String.fromAddress(base, offset + from, end - from);
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }
}
