package kdi.tests;

import io.delta.storage.LogStore;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.invoke.VarHandle;
import java.net.URI;
import java.nio.LongBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

/**
 * A JVM that writes each version of a log, at the same moment as a second one, and prints the versions that it won.
 *
 * Arguments: class of the log store, folder of the log, file that both JVMs share, number of this one (0, 1), versions.
 */
public final class LogRacer {
    private static final int CONTENT = 0;
    private static final int RENAME = 1;
    private static final int CACHE_LINE = 8;
    private static LongBuffer reached;
    private static int number;
    private static int version;

    public static void main(String[] told) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set("fs.AbstractFileSystem.file.impl", RenamesTogether.class.getName());
        LogStore store = (LogStore)
                Class.forName(told[0]).getConstructor(Configuration.class).newInstance(configuration);
        number = Integer.parseInt(told[3]);
        try (RandomAccessFile shared = new RandomAccessFile(told[2], "rw")) {
            reached = shared.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 1024).asLongBuffer();
            for (version = 1; version <= Integer.parseInt(told[4]); version++) {
                Path path = new Path(told[1], String.format("%020d.json", version));
                try {
                    store.write(path, new Content(), false, configuration);
                    System.out.println(version);
                } catch (FileAlreadyExistsException lost) {
                    // the other one won
                }
            }
        }
    }

    /** Returns when the other JVM is at this step of this version too. */
    private static void meet(int step) {
        reached.put((2 * step + number) * CACHE_LINE, version);
        do {
            VarHandle.fullFence();
            Thread.yield();
        } while (reached.get((2 * step + 1 - number) * CACHE_LINE) < version);
    }

    /** Ends in both JVMs at once. */
    private static final class Content implements Iterator<String> {
        private final Iterator<String> lines = List.of(number + " wrote " + version).iterator();

        @Override
        public boolean hasNext() {
            if (!lines.hasNext()) {
                meet(CONTENT);
            }
            return lines.hasNext();
        }

        @Override
        public String next() {
            return lines.next();
        }
    }

    /** The local files by which Delta's store renames: both JVMs have looked for the file before one of them renames. */
    public static final class RenamesTogether extends DelegateToFileSystem {
        public RenamesTogether(URI uri, Configuration configuration) throws Exception {
            super(uri, new Raw(), configuration, "file", false);
        }

        private static final class Raw extends RawLocalFileSystem {
            @Override
            public boolean rename(Path from, Path to) throws IOException {
                meet(RENAME);
                return super.rename(from, to);
            }
        }
    }
}
