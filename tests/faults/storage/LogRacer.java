package kdi.tests;

import io.delta.storage.LogStore;
import java.io.RandomAccessFile;
import java.nio.LongBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * A JVM that writes each version of a log, at the same moment as a second one, and prints the versions that it won.
 *
 * Arguments: class of the log store, folder of the log, file that both JVMs share, number of this one (0, 1), versions.
 */
public final class LogRacer {
    public static void main(String[] told) throws Exception {
        Configuration configuration = new Configuration();
        LogStore store = (LogStore)
                Class.forName(told[0]).getConstructor(Configuration.class).newInstance(configuration);
        int number = Integer.parseInt(told[3]);
        try (RandomAccessFile shared = new RandomAccessFile(told[2], "rw")) {
            LongBuffer reached = shared.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 1024).asLongBuffer();
            for (int version = 1; version <= Integer.parseInt(told[4]); version++) {
                Path path = new Path(told[1], String.format("%020d.json", version));
                Iterator<String> content = List.of(number + " wrote " + version).iterator();
                try {
                    store.write(path, new Together(content, reached, number, version), false, configuration);
                    System.out.println(version);
                } catch (FileAlreadyExistsException lost) {
                    // the other one won
                }
            }
        }
    }

    /** Ends in both JVMs at once: all that a store does after the content happens at the same time. */
    private static final class Together implements Iterator<String> {
        private static final int CACHE_LINE = 8;
        private final Iterator<String> content;
        private final LongBuffer reached;
        private final int number;
        private final int version;

        Together(Iterator<String> content, LongBuffer reached, int number, int version) {
            this.content = content;
            this.reached = reached;
            this.number = number;
            this.version = version;
        }

        @Override
        public boolean hasNext() {
            if (content.hasNext()) {
                return true;
            }
            reached.put(number * CACHE_LINE, version);
            java.lang.invoke.VarHandle.fullFence();
            while (reached.get((1 - number) * CACHE_LINE) < version) {
                java.lang.invoke.VarHandle.fullFence();
                Thread.yield();
            }
            return false;
        }

        @Override
        public String next() {
            return content.next();
        }
    }
}
