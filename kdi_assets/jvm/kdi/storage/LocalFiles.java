package kdi.storage;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
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
        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {
            if (permission.getStickyBit()) { // Java knows none
                super.setPermission(path, permission);
                return;
            }
            try {
                Files.setPosixFilePermissions(
                    pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString()));
            } catch (UnsupportedOperationException notPosix) {
                super.setPermission(path, permission);
            }
        }
    }
}
