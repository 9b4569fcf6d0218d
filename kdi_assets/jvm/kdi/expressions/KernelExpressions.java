package kdi.expressions;

import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.List;
import kdi.formats.PlainTime;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.ParseToDate;
import org.apache.spark.sql.catalyst.expressions.ParseToTimestamp;
import org.apache.spark.sql.catalyst.expressions.ParseUrl;
import org.apache.spark.sql.catalyst.expressions.Substring;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.expressions.url.ParseUrlEvaluator;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/** Replaces expressions by methods of the kernel that give the same, and take less time for plain values. */
public final class KernelExpressions extends AbstractPartialFunction<Expression, Expression> {
  private KernelExpressions() {}

  /** The frame; the expressions of its plan that the kernel has are replaced. */
  public static Dataset<Row> replacedIn(Dataset<Row> frame) {
    LogicalPlan plan = frame.queryExecution().analyzed();
    LogicalPlan replaced = (LogicalPlan) plan.transformAllExpressions(new KernelExpressions());
    return replaced == plan ? frame : Dataset.ofRows(frame.sparkSession(), replaced);
  }

  @Override
  public boolean isDefinedAt(Expression expression) {
    return replacement(expression) != null;
  }

  @Override
  @SuppressWarnings("unchecked")
  public <A extends Expression, B> B applyOrElse(A expression, Function1<A, B> otherwise) {
    Expression replacement = replacement(expression);
    return replacement == null ? otherwise.apply(expression) : (B) replacement;
  }

  /** The call of the kernel; null if it does not have the expression. */
  private static Expression replacement(Expression expression) {
    if (expression instanceof ParseUrl url) {
      return partOfUrl(url);
    }
    Expression same = expression;
    if (expression instanceof ParseToDate date && date.format().isEmpty()) {
      same = date.replacement();
    } else if (expression instanceof ParseToTimestamp time && time.format().isEmpty()) {
      same = time.replacement();
    }
    return same instanceof Cast cast ? ofText(cast) : null;
  }

  private static Expression partOfUrl(ParseUrl url) {
    List<Expression> given = CollectionConverters.asJava(url.children());
    Object name = given.size() == 2 && given.get(1) instanceof Literal constant ? constant.value() : null;
    UrlPart.Part part = name == null ? null : UrlPart.Part.of(name.toString());
    if (part == null) {
      return null;
    }
    ParseUrlEvaluator spark = new ParseUrlEvaluator(null, (UTF8String) name, null, url.failOnError());
    return call(url.dataType(), given, new UrlPart(part, spark));
  }

  /** A date or time of a text, whose cast fails for what is none; null for every other cast. */
  private static Expression ofText(Cast cast) {
    if (!(cast.child().dataType() instanceof StringType) || cast.evalMode() != EvalMode.ANSI()) {
      return null;
    }
    if (cast.dataType() instanceof TimestampType && cast.zoneId().normalized().equals(ZoneOffset.UTC)) {
      return call(cast.dataType(), List.of(cast.child()), new TimeOfText(cast.getContextOrNull()));
    }
    return cast.dataType() instanceof DateType ? date(cast) : null;
  }

  private static Expression date(Cast cast) {
    Expression whole = cast.child() instanceof Substring part && isBeginning(part) ? part.str() : null;
    DateOfText kernel = new DateOfText(whole != null, cast.getContextOrNull());
    return call(cast.dataType(), List.of(whole == null ? cast.child() : whole), kernel);
  }

  private static boolean isBeginning(Substring part) {
    return is(1, part.pos()) && is(PlainTime.DATE, part.len()) && part.str().dataType() instanceof StringType;
  }

  private static boolean is(int number, Expression expression) {
    return expression instanceof Literal constant && Integer.valueOf(number).equals(constant.value());
  }

  /** A call of the kernel's method {@code of}, null if an argument is, with the kernel as the last argument. */
  private static Expression call(DataType type, List<Expression> arguments, Object kernel) {
    List<Expression> passed = new ArrayList<>(arguments);
    passed.add(Literal.fromObject(kernel, new ObjectType(kernel.getClass())));
    Seq<AbstractDataType> any = PythonUtils.toSeq(List.of());
    return new StaticInvoke(
        kernel.getClass(), type, "of", PythonUtils.toSeq(passed), any, true, true, true, Option.empty());
  }
}
