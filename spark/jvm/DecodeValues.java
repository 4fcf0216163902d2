/*
 * Values of columns from their wire form, where Spark's own expressions take long ways (value_types.py).
 *
 * Spark's own compiler of Java, Janino, reads this (spark/jvm/java.py).
 */

package headwater;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.LocalDate;
import java.time.YearMonth;
import java.time.ZoneOffset;

import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.errors.QueryExecutionErrors;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;
import scala.runtime.AbstractFunction0;

public class DecodeValues {
  private static final int MOST_LONG_DIGITS = 18;
  private static final int MOST_SCALE = 1000;
  private static final long[] POWERS_OF_TEN = new long[MOST_LONG_DIGITS + 1];
  private static final UTF8String PATTERN = UTF8String.fromString("0000-00-00T00:00:00");
  private static final int MOST_FRACTION_DIGITS = 6;
  private static final long MICROS = 1_000_000L;

  private static final AbstractFunction0 NOTHING = new AbstractFunction0() {
    public Object apply() {
      return null;
    }
  };

  static {
    POWERS_OF_TEN[0] = 1;
    for (int digits = 1; digits <= MOST_LONG_DIGITS; digits++) {
      POWERS_OF_TEN[digits] = 10 * POWERS_OF_TEN[digits - 1];
    }
  }

  /** Big-endian two's complement bytes as a decimal. Bytes with more digits, or none, fail by the
   *  condition of malformed JSON; null, if not "isStrict". */
  public static Decimal decimal(byte[] unscaled, int precision, int scale, boolean isStrict) {
    if (unscaled.length > 0 && unscaled.length <= 8 && precision <= MOST_LONG_DIGITS) {
      long number = unscaled[0];
      for (int at = 1; at < unscaled.length; at++) {
        number = number << 8 | unscaled[at] & 0xff;
      }
      if (number < POWERS_OF_TEN[precision] && number > -POWERS_OF_TEN[precision]) {
        return Decimal.createUnsafe(number, precision, scale);
      }
    } else if (unscaled.length > 0) {
      BigDecimal number = new BigDecimal(new BigInteger(unscaled), scale);
      if (number.precision() <= precision) {
        return Decimal.apply(number, precision, scale);
      }
    }
    if (isStrict) {
      Platform.throwException(
          QueryExecutionErrors.malformedRecordsDetectedInRecordParsingError("a number with more digits than its column", null));
    }
    return null;
  }

  /** Big-endian two's complement bytes as text with all digits and no exponent. No bytes, or more zeros than any source's numbers
   *  have, fail by the condition that malformed JSON has; null, if not "isStrict". */
  public static UTF8String numberText(byte[] unscaled, int scale, boolean isStrict) {
    if (unscaled.length > 0 && Math.abs((long) scale) <= MOST_SCALE) {
      return UTF8String.fromString(new BigDecimal(new BigInteger(unscaled), scale).toPlainString());
    }
    if (isStrict) {
      Platform.throwException(
          QueryExecutionErrors.malformedRecordsDetectedInRecordParsingError("a number without bytes, or of a scale beyond 1000", null));
    }
    return null;
  }

  /** Microseconds since 1970 of a text. Debezium's form is read here. Any other text is left to Spark's
   *  cast, or to try_cast, if not "isStrict". */
  public static Long instant(UTF8String text, boolean isStrict) {
    Long plain = plainInstant(text);
    if (plain != null) {
      return plain;
    }
    if (isStrict) {
      return Long.valueOf(DateTimeUtils.stringToTimestampAnsi(text, ZoneOffset.UTC, null));
    }
    return (Long) DateTimeUtils.stringToTimestamp(text, ZoneOffset.UTC).getOrElse(NOTHING);
  }

  /** Of a text 2026-11-21T05:29:36.114628Z; null: it is none. */
  private static Long plainInstant(UTF8String text) {
    int end = text.numBytes() - 1;
    int size = PATTERN.numBytes();
    if (end < size || text.getByte(end) != 'Z') {
      return null;
    }
    for (int at = 0; at < size; at++) {
      byte expected = PATTERN.getByte(at);
      if (expected == '0' ? !isDigit(text.getByte(at)) : text.getByte(at) != expected) {
        return null;
      }
    }
    int year = number(text, 0, 4);
    int month = number(text, 5, 7);
    int day = number(text, 8, 10);
    int hour = number(text, 11, 13);
    int minute = number(text, 14, 16);
    int second = number(text, 17, 19);
    boolean isDay = month >= 1 && month <= 12 && day >= 1 && (day <= 28 || day <= YearMonth.of(year, month).lengthOfMonth());
    if (!isDay || hour > 23 || minute > 59 || second > 59) {
      return null;
    }
    long fraction = 0;
    if (end > size) {
      int digits = end - size - 1;
      if (text.getByte(size) != '.' || digits < 1 || digits > MOST_FRACTION_DIGITS) {
        return null;
      }
      for (int at = size + 1; at < end; at++) {
        if (!isDigit(text.getByte(at))) {
          return null;
        }
        fraction = 10 * fraction + text.getByte(at) - '0';
      }
      fraction *= POWERS_OF_TEN[MOST_FRACTION_DIGITS - digits];
    }
    long days = LocalDate.of(year, month, day).toEpochDay();
    return Long.valueOf((((days * 24 + hour) * 60 + minute) * 60 + second) * MICROS + fraction);
  }

  private static boolean isDigit(byte given) {
    return given >= '0' && given <= '9';
  }

  private static int number(UTF8String text, int from, int to) {
    int number = 0;
    for (int at = from; at < to; at++) {
      number = 10 * number + text.getByte(at) - '0';
    }
    return number;
  }

  /** A local time is held as the same number as an instant in UTC, the session's zone. */
  public static Long localTime(long micros) {
    return Long.valueOf(micros);
  }
}
