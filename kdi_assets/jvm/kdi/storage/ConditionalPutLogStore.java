package kdi.storage;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Delta's log on S3, safe for any number of drivers: a commit is a put with {@code If-None-Match: *}.
 *
 * <p>Delta's own store looks first whether the file exists and then puts it without a condition, so two drivers can
 * both believe that they wrote a version. Reading and listing stay Delta's.
 *
 * <p>Source: Amazon S3, "How to prevent object overwrites with conditional writes"; Hadoop, "FSDataOutputStreamBuilder".
 */
public final class ConditionalPutLogStore extends S3SingleDriverLogStore {
    private static final String CONDITION = "fs.option.create.conditional.overwrite";
    private static final int CONFLICT = 409;
    private static final int ATTEMPTS = 8;
    private static final int PAUSE_MILLIS = 50;

    public ConditionalPutLogStore(Configuration configuration) {
        super(configuration);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration configuration)
            throws IOException {
        FileSystem files = path.getFileSystem(configuration);
        // The whole content, because it may have to be put again and is compared with what the store holds.
        byte[] content = lines(actions);
        if (overwrite) {
            write(files.create(path, true), content);
        } else {
            create(files, path, content);
        }
    }

    private static void create(FileSystem files, Path path, byte[] content) throws IOException {
        for (int attempt = 1; ; attempt++) {
            try {
                write(conditional(files, path), content);
                return;
            } catch (IOException failed) {
                // The client repeats a put whose answer was lost; the repetition then fails on our own file. Equal bytes
                // mean the same actions, so nothing is lost if another driver wrote them: and none did, because a
                // commit of Delta names its transaction, and a commit of ours its attempt.
                byte[] found = read(files, path, failed);
                if (Arrays.equals(found, content)) {
                    return;
                }
                if (found != null) {
                    throw new FileAlreadyExistsException(path.toString());
                }
                // A conflict does not say who won: another put may still be on its way, and may fail.
                if (status(failed) != CONFLICT) {
                    throw failed;
                }
                if (attempt == ATTEMPTS) {
                    throw new IOException(
                            path + ": the storage answered " + ATTEMPTS + " conditional puts with 409 (conflict);"
                                    + " the file was not there at the last look. The next plan reads the log.",
                            failed);
                }
                pause(attempt);
            }
        }
    }

    private static FSDataOutputStream conditional(FileSystem files, Path path) throws IOException {
        FSDataOutputStreamBuilder<?, ?> builder = files.createFile(path).create().overwrite(false);
        // "must": a file system that does not know the condition refuses.
        builder.must(CONDITION, true);
        return (FSDataOutputStream) builder.build();
    }

    private static void write(FSDataOutputStream stream, byte[] content) throws IOException {
        try {
            stream.write(content);
        } catch (IOException | RuntimeException failed) {
            stream.abort(); // closing the stream would store what was written so far
            throw failed;
        }
        stream.close();
    }

    /** The content of the file that could not be created, null without a file; throws {@code failed} if unreadable. */
    private static byte[] read(FileSystem files, Path path, IOException failed) throws IOException {
        try {
            FileStatus status = files.getFileStatus(path);
            byte[] content = new byte[Math.toIntExact(status.getLen())];
            try (FSDataInputStream stream = files.open(path)) {
                stream.readFully(0, content);
            }
            return content;
        } catch (FileNotFoundException none) {
            return null;
        } catch (IOException unreadable) {
            failed.addSuppressed(unreadable);
            throw failed;
        }
    }

    /** The HTTP status that the S3 client reports, 0 without one; its classes are not on every class path. */
    private static int status(Throwable failed) {
        for (Throwable cause = failed; cause != null; cause = cause.getCause()) {
            try {
                return (int) cause.getClass().getMethod("statusCode").invoke(cause);
            } catch (ReflectiveOperationException none) {
                continue;
            }
        }
        return 0;
    }

    private static void pause(int attempt) throws InterruptedIOException {
        try {
            Thread.sleep(ThreadLocalRandom.current().nextInt(PAUSE_MILLIS << attempt));
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("stopped while a commit waited for the storage");
        }
    }

    private static byte[] lines(Iterator<String> actions) {
        ByteArrayOutputStream lines = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            lines.writeBytes(actions.next().getBytes(StandardCharsets.UTF_8));
            lines.write('\n');
        }
        return lines.toByteArray();
    }
}
