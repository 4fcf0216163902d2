/*
 * A document's text as a VARIANT, or nothing (parsed_variant.py).
 *
 * The parse is Spark's (VariantBuilder). Spark asks for a number as a double only where its decimals do not hold it, so that one
 * place sees every number that would change.
 *
 * Spark's own compiler of Java, Janino, reads this (spark/jvm/java.py).
 */

package headwater;

import java.io.IOException;
import java.math.BigDecimal;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParseException;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.core.util.JsonParserDelegate;
import org.apache.spark.sql.errors.QueryExecutionErrors;
import org.apache.spark.types.variant.Variant;
import org.apache.spark.types.variant.VariantBuilder;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.unsafe.types.VariantVal;

public class ParseVariant {
  // The parser's own limit of a text is 20 million characters; a VARIANT's limit counts.
  private static final JsonFactory FACTORY = new JsonFactory();

  static {
    FACTORY.setStreamReadConstraints(StreamReadConstraints.builder().maxStringLength(Integer.MAX_VALUE).build());
  }

  /** Null where it is refused, if not "isStrict"; else it fails there, by the condition that malformed JSON has, and without the
   *  row's text. */
  public static VariantVal parse(UTF8String text, boolean isStrict) {
    try {
      JsonParser parser = new Exact(FACTORY.createParser(text.getBytes()));
      try {
        parser.nextToken();
        Variant parsed = VariantBuilder.parseJson(parser, false);
        if (parser.nextToken() != null) {
          throw new JsonParseException(parser, "more than one document");
        }
        return new VariantVal(parsed.getValue(), parsed.getMetadata());
      } finally {
        parser.close();
      }
    } catch (IOException error) {
      return refused(isStrict);
    } catch (RuntimeException error) {  // a name twice, a value too large
      return refused(isStrict);
    }
  }

  private static VariantVal refused(boolean isStrict) {
    if (isStrict) {
      Platform.throwException(
          QueryExecutionErrors.malformedRecordsDetectedInRecordParsingError("a document that VARIANT does not hold", null));
    }
    return null;
  }

  private static class Exact extends JsonParserDelegate {
    Exact(JsonParser parser) {
      super(parser);
    }

    /** Fails where another number would come of it. A double's own text, however few digits it takes, is less than one unit of its
     *  last digit away; of an infinity there is no BigDecimal, which fails, too. */
    public double getDoubleValue() throws IOException {
      double number = delegate.getDoubleValue();
      BigDecimal told = new BigDecimal(delegate.getText()).stripTrailingZeros();
      if (told.subtract(new BigDecimal(number)).abs().compareTo(told.ulp()) >= 0) {
        throw new JsonParseException(this, "a number that neither a decimal nor a double holds");
      }
      return number;
    }
  }
}
