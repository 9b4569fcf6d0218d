package kdi.tests;

import java.io.BufferedOutputStream;
import java.io.File;
import java.io.FileWriter;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.regex.Pattern;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * Files of this machine that fail as they are told to: what Spark and Delta see as scheme "file", beside the rules.
 *
 * The rules lie in the file that the property kdi.tests.faults names, read at each operation, a rule on a line:
 * operation, path (a regular expression), what, probability, how many at most; tabs between. The first line is a seed:
 * the n-th operation that a rule fits meets the same fate whenever the rules are the same. What happened is appended to
 * the file beside it, with ".log" at the end. Janino compiles this: no lambdas, no diamonds.
 */
public class FaultyFiles extends LocalFileSystem {
    public FaultyFiles() {
        super(new Raw());
        setWriteChecksum(false);
        setVerifyChecksum(false);
    }

    /** The same for FileContext, by which Delta puts a commit into the log. */
    public static class Context extends DelegateToFileSystem {
        public Context(URI uri, Configuration conf) throws Exception {
            super(uri, new Raw(), conf, "file", false);
        }
    }

    /** Each operation asks the rules first, and once more when it is done. */
    public static class Raw extends RawLocalFileSystem {
        public FSDataInputStream open(Path path, int bufferSize) throws IOException {
            Rules.before(getConf(), "open", path);
            return super.open(path, bufferSize);
        }

        public FSDataOutputStream create(
            Path path, boolean overwrite, int bufferSize, short replication, long blockSize, Progressable progress
        ) throws IOException {
            Rules.before(getConf(), "create", path);
            return faulty(super.create(path, overwrite, bufferSize, replication, blockSize, progress), path);
        }

        public FSDataOutputStream create(
            Path path, FsPermission permission, boolean overwrite, int bufferSize, short replication, long blockSize,
            Progressable progress
        ) throws IOException {
            Rules.before(getConf(), "create", path);
            return faulty(
                super.create(path, permission, overwrite, bufferSize, replication, blockSize, progress), path
            );
        }

        public FSDataOutputStream createNonRecursive(
            Path path, FsPermission permission, boolean overwrite, int bufferSize, short replication, long blockSize,
            Progressable progress
        ) throws IOException {
            Rules.before(getConf(), "create", path);
            return faulty(
                super.createNonRecursive(path, permission, overwrite, bufferSize, replication, blockSize, progress),
                path
            );
        }

        public boolean rename(Path from, Path to) throws IOException {
            Rules.before(getConf(), "rename", to);
            boolean done = super.rename(from, to);
            Rules.after(getConf(), "rename", to);
            return done;
        }

        public boolean delete(Path path, boolean recursive) throws IOException {
            Rules.before(getConf(), "delete", path);
            return super.delete(path, recursive);
        }

        public boolean mkdirs(Path path) throws IOException {
            Rules.before(getConf(), "mkdirs", path);
            return super.mkdirs(path);
        }

        public boolean mkdirs(Path path, FsPermission permission) throws IOException {
            Rules.before(getConf(), "mkdirs", path);
            return super.mkdirs(path, permission);
        }

        public FileStatus[] listStatus(Path path) throws IOException {
            Rules.before(getConf(), "list", path);
            return super.listStatus(path);
        }

        private FSDataOutputStream faulty(FSDataOutputStream whole, Path path) throws IOException {
            return new FSDataOutputStream(new BufferedOutputStream(new Output(getConf(), whole, path)), null);
        }
    }

    /** Writes through, unless a rule says otherwise. */
    static class Output extends OutputStream {
        private final Configuration conf;
        private final OutputStream to;
        private final Path path;

        Output(Configuration conf, OutputStream to, Path path) {
            this.conf = conf;
            this.to = to;
            this.path = path;
        }

        public void write(int one) throws IOException {
            write(new byte[] {(byte) one}, 0, 1);
        }

        public void write(byte[] bytes, int from, int length) throws IOException {
            try {
                Rules.before(conf, "write", path);
            } catch (IOException full) {
                to.write(bytes, from, length / 2); // a disk that fills up takes a part of it
                throw full;
            }
            to.write(bytes, from, length);
        }

        public void flush() throws IOException {
            to.flush();
        }

        public void close() throws IOException {
            try {
                Rules.before(conf, "close", path);
            } finally {
                to.close();
            }
        }
    }

    /** What the rules say of an operation, for the whole process. */
    static class Rules {
        private static String text = "";
        private static List rules = new ArrayList();

        static void before(Configuration conf, String operation, Path path) throws IOException {
            meet(conf, operation, path);
        }

        static void after(Configuration conf, String operation, Path path) throws IOException {
            meet(conf, "after " + operation, path);
        }

        private static void meet(Configuration conf, String operation, Path path) throws IOException {
            Rule rule = fitting(conf, operation, path.toUri().getPath());
            if (rule == null) {
                return;
            }
            if (rule.what.startsWith("delay ")) {
                try {
                    Thread.sleep(Long.parseLong(rule.what.substring(6)));
                } catch (InterruptedException stopped) {
                    throw new java.io.InterruptedIOException(path.toString());
                }
                return;
            }
            throw new IOException(path.toString() + ": " + rule.what);
        }

        private static synchronized Rule fitting(Configuration conf, String operation, String path) throws IOException {
            String file = conf.get("kdi.tests.faults");
            if (file == null || !new File(file).exists()) {
                return null;
            }
            load(new String(Files.readAllBytes(Paths.get(file)), StandardCharsets.UTF_8));
            for (int i = 0; i < rules.size(); i++) {
                Rule rule = (Rule) rules.get(i);
                if (rule.meets(operation, path)) {
                    FileWriter log = new FileWriter(file + ".log", true);
                    log.write(operation + "\t" + path + "\t" + rule.what + "\n");
                    log.close();
                    return rule;
                }
            }
            return null;
        }

        private static void load(String now) {
            if (now.equals(text)) {
                return;
            }
            text = now;
            rules = new ArrayList();
            String[] lines = now.split("\n");
            for (int i = 1; i < lines.length; i++) {
                rules.add(new Rule(lines[i].split("\t"), Long.parseLong(lines[0].split("\t")[0]) * 31 + i));
            }
        }
    }

    /** One rule, and how often it was met. */
    static class Rule {
        final String what;
        private final String operation;
        private final Pattern path;
        private final double probability;
        private final Random chance;
        private int left;

        Rule(String[] told, long seed) {
            operation = told[0];
            path = Pattern.compile(told[1]);
            what = told[2];
            probability = Double.parseDouble(told[3]);
            left = Integer.parseInt(told[4]);
            chance = new Random(seed);
        }

        boolean meets(String asked, String at) {
            if (left == 0 || !operation.equals(asked) || !path.matcher(at).find()) {
                return false;
            }
            if (chance.nextDouble() >= probability) {
                return false;
            }
            left--;
            return true;
        }
    }
}
