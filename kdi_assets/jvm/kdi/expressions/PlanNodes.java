package kdi.expressions;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationDef;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationRef;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StringType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What is asked of the nodes of an analysed plan, in one answer.
 *
 * <p>Python would ask the JVM for each fact of each node and column, a hundred times for a plan of five nodes.
 */
public final class PlanNodes {
  private static final ObjectMapper JSON = new ObjectMapper();

  private PlanNodes() {}

  /** Whether an expression is one of the time now, of the user, or of the session. */
  public static boolean askClock(Dataset<Row> rows) {
    return rows.queryExecution().analyzed().containsPattern(TreePattern.CURRENT_LIKE());
  }

  /** The nodes as a JSON array, the top one first. */
  public static String toJson(Dataset<Row> rows) throws JsonProcessingException {
    List<Map<String, Object>> nodes = new ArrayList<>();
    add(rows.queryExecution().analyzed(), nodes);
    return JSON.writeValueAsString(nodes);
  }

  /** The columns that a node makes by a cast of bytes to text, as a JSON array of their names. */
  public static String ofBytesAsText(Dataset<Row> rows) throws JsonProcessingException {
    Set<String> columns = new TreeSet<>();
    addOfBytes(rows.queryExecution().analyzed(), columns);
    return JSON.writeValueAsString(columns);
  }

  private static void addOfBytes(QueryPlan<?> node, Set<String> columns) {
    for (Expression expression : CollectionConverters.asJava(node.expressions())) {
      if (castsBytes(expression)) {
        columns.add(expression instanceof Alias column ? column.name() : "");
      }
    }
    CollectionConverters.asJava(node.subqueries()).forEach(plan -> addOfBytes(plan, columns));
    CollectionConverters.asJava(node.children()).forEach(child -> addOfBytes((QueryPlan<?>) child, columns));
  }

  private static boolean castsBytes(Expression expression) {
    boolean casts = expression instanceof Cast cast && has(BinaryType.class, cast.child()) && has(StringType.class, cast);
    return casts || CollectionConverters.asJava(expression.children()).stream().anyMatch(PlanNodes::castsBytes);
  }

  private static boolean has(Class<? extends DataType> type, Expression value) {
    return value.dataType().existsRecursively(part -> type.isInstance(part));
  }

  private static void add(LogicalPlan node, List<Map<String, Object>> nodes) {
    List<LogicalPlan> children = CollectionConverters.asJava(node.children());
    Map<String, Object> facts = new LinkedHashMap<>();
    facts.put("name", node.nodeName());
    facts.put("has_children", !children.isEmpty());
    facts.put("has_subqueries", !CollectionConverters.asJava(node.subqueriesAll()).isEmpty());
    facts.put("is_deterministic", node.deterministic());
    facts.put("columns", columns(node));
    facts.put("made", made(node));
    facts.put("grouped_by", node instanceof Aggregate groups ? ids(groups.groupingExpressions()) : null);
    facts.put("query_of_with", node instanceof CTERelationDef query ? query.id() : null);
    facts.put("reads_with", node instanceof CTERelationRef read ? read.cteId() : null);
    nodes.add(facts);
    children.forEach(child -> add(child, nodes));
  }

  /** Name and id of each column. */
  private static List<Object> columns(LogicalPlan node) {
    List<Object> columns = new ArrayList<>();
    for (Attribute column : CollectionConverters.asJava(node.output())) {
      columns.add(List.of(column.name(), id(column)));
    }
    return columns;
  }

  /** The id of each column that the node makes, with those of the columns that it is made of. */
  private static List<Object> made(LogicalPlan node) {
    List<Object> made = new ArrayList<>();
    for (Expression expression : CollectionConverters.asJava(node.expressions())) {
      if (expression instanceof Alias column) {
        made.add(List.of(id(column), ids(column.references())));
      }
    }
    if (node instanceof Generate generate) {
      for (Attribute column : CollectionConverters.asJava(generate.generatorOutput())) {
        made.add(List.of(id(column), ids(((Expression) generate.generator()).references())));
      }
    }
    return made;
  }

  /** Of the expressions that are a column. */
  private static List<Long> ids(scala.collection.immutable.Seq<Expression> expressions) {
    List<Long> ids = new ArrayList<>();
    for (Expression expression : CollectionConverters.asJava(expressions)) {
      if (expression instanceof Attribute column) {
        ids.add(id(column));
      }
    }
    return ids;
  }

  private static List<Long> ids(AttributeSet columns) {
    List<Long> ids = new ArrayList<>();
    CollectionConverters.asJava(columns.toSeq()).forEach(column -> ids.add(id(column)));
    return ids;
  }

  private static long id(NamedExpression column) {
    return column.exprId().id();
  }
}
