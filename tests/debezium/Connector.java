import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileInputStream;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Debezium's own connector in its engine; its changes go to Kafka as Kafka Connect sends them. */
public final class Connector {

    /** Arguments: a file of the connector's properties, and the brokers' addresses. */
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (InputStream file = new FileInputStream(arguments[0])) {
            properties.load(file);
        }
        Properties client = new Properties();
        client.put("bootstrap.servers", arguments[1]);
        ByteArraySerializer unchanged = new ByteArraySerializer();
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(client, unchanged, unchanged);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(properties)
            .notifying((changes, committer) -> {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (ChangeEvent<String, String> change : changes) {
                    sent.add(producer.send(
                        new ProducerRecord<>(change.destination(), bytes(change.key()), bytes(change.value()))));
                }
                // An offset is stored only after Kafka has the change: a connector that is killed sends some again.
                for (int n = 0; n < sent.size(); n++) {
                    try {
                        sent.get(n).get();
                    } catch (ExecutionException failed) {
                        throw new IllegalStateException(failed);
                    }
                    committer.markProcessed(changes.get(n));
                }
                committer.markBatchFinished();
            })
            .using((succeeded, message, error) -> {
                System.out.println("ended: " + message);
                if (error != null) {
                    error.printStackTrace(System.out);
                }
            })
            .build();
        engine.run();
        System.exit(1); // it runs until the process is ended
    }

    private static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }
}
