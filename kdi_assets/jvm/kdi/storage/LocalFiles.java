package kdi.storage;

import java.io.IOException;
import java.nio.file.Files;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's files of this machine, which get their permissions without a process.
 *
 * <p>Without its native library, Hadoop starts {@code chmod} for each file that it creates, and each data file has a
 * second one with its checksums. All else is as in the class that Hive brings for these files.
 */
public final class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new Raw());
    }

    /** Replaces no file. */
    @Override
    public boolean rename(Path from, Path to) throws IOException {
        return !(exists(to) && getFileStatus(to).isFile()) && super.rename(from, to);
    }

    static final class Raw extends RawLocalFileSystem {
        private static final String MODE = "unix:mode";
        private static final int SET_IDS = 06000;

        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {
            var file = pathToFile(path).toPath();
            try {
                // As chmod does with four digits: a folder keeps the bits by which what is in it belongs to its group.
                int kept = Files.isDirectory(file) ? (int) Files.getAttribute(file, MODE) & SET_IDS : 0;
                Files.setAttribute(file, MODE, kept | permission.toShort());
            } catch (UnsupportedOperationException | IllegalArgumentException notUnix) {
                super.setPermission(path, permission);
            }
        }
    }
}
