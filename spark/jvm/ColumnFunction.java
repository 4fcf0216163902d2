/*
 * A function of columns that is a Java method (java.py). Made here, in one call by py4j for each column where the parts
 * of its expression took ten.
 *
 * Spark's own compiler of Java, Janino, reads this.
 */

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.ObjectType;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

public class ColumnFunction {
  private final Class owner;
  private final Object target;
  private final String method;
  private final DataType returns;

  /** Of a method of "target"; null: of a static one. */
  public ColumnFunction(Class owner, Object target, String method, DataType returns) {
    this.owner = owner;
    this.target = target;
    this.method = method;
    this.returns = returns;
  }

  public Column of(Object first) {
    return of(new Object[] {first});
  }

  public Column of(Object first, Object second) {
    return of(new Object[] {first, second});
  }

  public Column of(Object first, Object second, Object third) {
    return of(new Object[] {first, second, third});
  }

  public Column of(Object first, Object second, Object third, Object fourth) {
    return of(new Object[] {first, second, third, fourth});
  }

  private Column of(Object[] arguments) {
    List given = new ArrayList();
    for (int at = 0; at < arguments.length; at++) {
      given.add(ExpressionUtils.expression(functions.lit(arguments[at])));  // a column stays a column
    }
    Seq passed = (Seq) CollectionConverters.asScala(given).toSeq();
    Seq noTypes = (Seq) Nil$.MODULE$;
    Expression call = target == null
        ? (Expression) new StaticInvoke(owner, returns, method, passed, noTypes, true, true, true, Option.empty())
        : (Expression) new Invoke(new Literal(target, new ObjectType(owner)), method, returns, passed, noTypes, true, true, true);
    return ExpressionUtils.column(call);
  }
}
